import math

import pytest

from captcha_ocr.audit.markup import finite, labels_needed, number, percent, table


def test_what_comes_from_outside_is_text_in_a_table():
    made = table("<i>", ["<u>"], [["<b>"]])
    assert [f"&lt;{name}&gt;" in made and f"<{name}>" not in made for name in "iub"] == [True] * 3


def test_a_percent_sign_and_an_interval_stay_on_one_line():
    assert "1\u00a0% (1\u00a0to\u00a02) of all" in table("a", ["b"], [["1 % (1 to 2) of all"]])


def test_infinities_are_left_out_of_json():
    assert finite({"a": [math.inf, 1.0]}) == {"a": [None, 1.0]}


@pytest.mark.parametrize(
    ("share", "text"), [(0.5, "50.0 %"), (0.9987, "99.87 %"), (0.0016, "0.16 %"), (0, "0.0 %")]
)
def test_shares(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "more than a million"), (123.4, "120"), (1.234, "1.23")]
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        ((50.0, 40.0, 60.0), "50 (40 to 60)"),
        ((0, 0, 0), "fewer than 30"),
        ((math.inf, 500.0, math.inf), "more than 1,000 (500 to more than 1,000)"),
        ((math.inf, math.inf, math.inf), "not reached with 1,000"),
    ],
)
def test_labels_needed(needed, text):
    assert labels_needed(needed, 30, 1000) == text
