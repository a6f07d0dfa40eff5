import pytest

from captcha_ocr.audit.sections import coverage, knobs, money_of, people, tries

ROWS = [
    {"coverage": c, "images": round(100 * c), "right": round(90 * c), "interval": (0.8, 0.95)}
    for c in (1, 0.5)
]
SETTING = {"label": "none", "labels": 100, "shares": [0.5, 0.6], "fixed": 0.55}


def plain(html):
    return html.replace("\u00a0", " ")


def test_intervals_go_from_the_low_end_to_the_high_one():
    text = plain(tries({"share": 0.5, "interval": (0.4, 0.8)}))
    assert "2.00 (1.25 to 2.50)" in text  # captchas for one solved
    assert "87.5 % (78.4 % to 99.20 %)" in text  # at least one of three


@pytest.mark.parametrize(
    ("labels", "words"), [(0, "captcha-ocr's model as it is"), (300, "Trained on 300 labels")]
)
def test_the_solver_that_may_leave_captchas_out_is_named(labels, words):
    text = coverage({"start": "general", "labels": labels, "rows": ROWS})
    assert words in text.replace("&#x27;", "'")


def test_pairs_that_cannot_be_told_apart_are_listed():
    found = {"start": "random", "draws": 3, "settings": [SETTING], "confounded": ["a × b = c × d"]}
    found["effects"] = [{"knob": "a", "change": "0 → 1", "factor": (3.0, 2.0, 5.0)}]
    text = plain(knobs(found, []))
    assert "×3.00 (2.00 to 5.00)" in text
    assert "a × b = c × d" in text
    assert "knobs at their last level" in text
    assert "cannot tell apart" not in knobs(found | {"confounded": []}, [])


def test_what_was_not_measured_says_so():
    assert "--knobs" in knobs(None, ["Left out: 1 file."])
    assert "too short" in knobs(None, ["Not measured: knobs; the budget is too short."])
    assert "Not measured" in people(None)
    assert "95.0 %" in plain(
        people({"images": 100, "right": 95, "interval": (0.88, 0.98), "seconds": None})
    )


@pytest.mark.parametrize(
    ("interval", "text"), [((0.1, 0.1), "$0.10"), ((0.1, 0.5), "$0.10 ($0.10 to $0.50)")]
)
def test_an_interval_of_money_that_does_not_show_is_left_out(interval, text):
    assert money_of({"for_1000": 0.1, "interval": interval}) == text
