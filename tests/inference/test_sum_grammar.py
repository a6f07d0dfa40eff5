import numpy as np
import pytest

from captcha_ocr.inference.sum_grammar import find_sum, is_misread_sum

SYMBOLS = [*"0123456789+-=?xo"]


def columns(text: str, *runners_up: str) -> np.ndarray:
    """Return columns that emit a text, `_` being the blank, and less likely some others."""
    classes = [*SYMBOLS, "_"]
    probabilities = np.full((len(text), len(classes)), 1e-4)
    for share, emitted in zip((0.6, 0.3, 0.05), (text, *runners_up), strict=False):
        for row, character in zip(probabilities, emitted, strict=True):
            row[classes.index(character)] += share
    return probabilities


@pytest.mark.parametrize(
    ("text", "is_misread"),
    [
        ("1243=?", True),
        ("12++3=", True),
        ("8t5=?", True),
        ("12+3=?", False),
        ("7x8", False),
        ("a+b", False),
        ("1234", False),
        ("user-1", False),
        ("12$+3", False),
        ("", False),
    ],
)
def test_a_misread_sum_has_a_sign_and_mostly_digits_and_no_result(text, is_misread):
    assert is_misread_sum(text) == is_misread


@pytest.mark.parametrize(
    ("text", "runner_up", "found"),
    [
        ("1_2_4_3_=_?_", "1_2_+_3_=_?_", "12+3=?"),
        ("8_o_5_=_", "8_x_5_=_", "8x5="),
        ("8_+_+_5_=_", "8_+_6_5_=_", "8+65="),
        ("8_+_55__", "8_+_55__", "8+5"),
        ("1_1+_2__", "1_1+_2__", "11+2"),
    ],
)
def test_the_likeliest_sum_is_found(text, runner_up, found):
    assert find_sum(columns(text, runner_up), SYMBOLS) == found


def test_too_few_columns_hold_no_sum():
    assert find_sum(columns("12"), SYMBOLS) == ""
