from collections import Counter

import pytest

from captcha_ocr.scores import Scores, is_worse, score_confidences, score_texts, wilson_interval


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    # Computed by hand from the published formula, z = 1.959964.
    [
        (0, 10, 0.0, 0.27753),
        (10, 10, 0.72247, 1.0),
        (50, 100, 0.40383, 0.59617),
        (1, 1, 0.20654, 1.0),
        (0, 0, 0, 1),
    ],
)
def test_the_interval_is_wilsons(right, total, low, high):
    found = wilson_interval(right, total)
    assert found == pytest.approx((low, high), abs=1e-5)
    assert [end in (0, 1) for end in found] == [
        right == 0,
        right == total,
    ]  # exact only at the ends of the scale


@pytest.mark.parametrize(
    ("right", "other", "total", "worse"),
    # 9 and 3 of 10 are Newcombe's own example: 60 % apart, at least 17.05 %.
    [
        (3, 9, 10, True),
        (9, 10, 10, False),
        (496, 500, 500, False),
        (495, 500, 500, True),
        (10, 9, 10, False),
    ],
)
def test_worse_means_significantly_worse(right, other, total, worse):
    assert is_worse(right, other, total) is worse


def test_texts_are_scored_as_a_whole_and_by_position():
    scores = score_texts(["AB", "CD", "EF"], ["AB", "CX", "FE"])
    assert (scores.images, scores.exact, scores.pairs.total()) == (3, 1, 6)
    assert (scores.exact_match, scores.character_accuracy) == pytest.approx((1 / 3, 3 / 6))
    assert scores.worst() == [("D", "X", 1), ("E", "F", 1), ("F", "E", 1)]
    assert scores.summary()["interval"] == list(wilson_interval(1, 3))


@pytest.mark.parametrize(
    ("truth", "code", "accuracy", "worst"),
    [("ABC", "AB", 2 / 3, ("C", "", 1)), ("AB", "ABC", 2 / 3, ("", "C", 1))],
)
def test_a_text_of_another_length_is_wrong_where_it_has_ended(truth, code, accuracy, worst):
    scores = score_texts([truth], [code])
    assert (scores.exact, scores.worst()) == (0, [worst])
    assert scores.character_accuracy == pytest.approx(accuracy)
    assert "C" in str(scores)


def test_errors_of_case_are_counted_apart_if_there_are_letters_of_both():
    scores = score_texts(["aB", "Ab", "ab"], ["aB", "ab", "aX"])
    assert (scores.exact, scores.folded) == (1, 1)
    assert str(scores).count("66.67%") == 2  # of the images without case, and of the characters
    assert len(str(score_texts(["AB"], ["AC"])).splitlines()) == len(str(scores).splitlines()) - 1


def test_errors_of_look_alikes_are_counted_apart():
    scores = score_texts(["0A", "OO", "0A", "1c", "AB"], ["OA", "00", "OB", "lC", "AB"])
    assert (scores.exact, scores.lookalike) == (1, 3)
    assert scores.summary()["merged_match"] == pytest.approx(4 / 5)
    assert "80.00%" in str(scores)


def test_the_counts_of_two_parts_add_up_and_come_back():
    parts = [score_texts(["0A", "aB"], ["OA", "ab"]), score_texts(["AB"], ["AB"])]
    both = Scores.from_counts(parts[0].counts()) + Scores.from_counts(parts[1].counts())
    assert (both.images, both.exact, both.folded, both.lookalike) == (3, 1, 1, 1)
    assert both.pairs == parts[0].pairs + parts[1].pairs


def test_the_most_frequent_confusions_come_first():
    scores = Scores(9, 0, Counter({("O", "0"): 3, ("0", "O"): 5, ("A", "A"): 90}))
    assert scores.worst(1) == [("0", "O", 5)]


def test_the_calibration_error_is_the_mean_distance_of_confidence_and_truth():
    # 15 groups of 20 readings with one confidence each; only those of the last group are wrong.
    judged = [(1 - group / 100, group < 14) for group in range(15) for _ in range(20)]
    expected = (sum(group / 100 for group in range(14)) + 0.86) / 15
    reliability = score_confidences(judged[::-1])
    assert reliability.calibration_error == pytest.approx(expected)
    assert reliability.surest_95_match == pytest.approx(280 / 285)
    assert "98.25%" in str(reliability)
    assert "300" in str(score_confidences(judged[:299]))  # too few to judge
    assert score_confidences(judged[:299])._asdict() == {
        "calibration_error": None,
        "surest_95_match": None,
    }


def test_no_character_of_a_label_disturbs_a_terminal():
    lines = str(score_texts(["\x1b\n"], ["ab"])).split("\n")
    assert all(word in lines[-1] for word in (r"\n", r"\x1b"))
    assert all(line.isprintable() for line in lines)
