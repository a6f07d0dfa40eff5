import re

import pytest

from captcha_ocr.advice import advice, advice_on_run
from captcha_ocr.metrics import score_texts
from captcha_ocr.run import Finished


def finished(trained: int, validated: int, images: int = 200, per_character: float = 1.0) -> Finished:
    """A run that read so many of some images exactly; the others with one wrong character of two, or both wrong."""

    def score(exact):
        wrong = "AX" if per_character else "XX"
        return score_texts(["AB"] * images, ["AB"] * exact + [wrong] * (images - exact)).summary()

    return Finished("all epochs done", 7, 7, 1.0, score(trained), score(validated), None)


def test_guessing_is_called_so():
    (sentence,) = advice(finished(0, 0, per_character=0), 36, False)
    assert "0.0%" in sentence
    assert "captcha-ocr inspect" in sentence


def test_overfitting_is_called_so():
    (sentence,) = advice(finished(200, 150), 36, False)
    assert all(word in sentence for word in ("100.0%", "75.0%", "--preset few", "--init"))


def test_who_augments_is_not_advised_to_do_so():
    (sentence,) = advice(finished(200, 150), 36, True)
    assert "--init" in sentence
    assert "--preset" not in sentence


def test_a_run_that_has_not_learnt_what_it_was_shown_is_still_learning():
    (sentence,) = advice(finished(100, 98), 36, False)
    assert all(word in sentence for word in ("50.0%", "--epochs"))
    assert re.search(r"\b7\b", sentence)


@pytest.mark.parametrize(("trained", "validated"), [(200, 199), (200, 192), (196, 198)])
def test_a_run_that_has_gone_well_needs_no_advice(trained, validated):
    assert advice(finished(trained, validated), 36, False) == []


def test_a_difference_within_chance_is_no_overfitting():
    assert advice(finished(10, 9, images=10), 36, False) == []


def test_the_advice_on_a_run_is_that_on_how_it_ended(run):
    (sentence,) = advice_on_run(run)
    assert "--epochs" in sentence


def test_there_is_no_advice_on_a_model_alone(run):
    assert advice_on_run(run / "best") == []
