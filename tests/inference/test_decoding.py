import numpy as np
import pytest

from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.decoding import allowed_classes, read_logits

CONFIG = ModelConfig(Charset("AB"), Lengths(1, 3), InputSize(8, 48, 1), NetworkConfig())


def read(rows: list[list[float]], charset: str | None = None, lengths: Lengths | None = None):
    """Read logits (3, 3). The columns are A, B and nothing."""
    (reading,) = read_logits(np.array([rows], np.float32), CONFIG, allowed_classes(CONFIG, charset, lengths))
    return reading


def test_a_text_ends_at_its_first_nothing_and_is_never_empty():
    assert read([[9, 0, 0], [0, 0, 9], [0, 9, 0]]).text == "A"
    assert read([[9, 0, 0], [0, 9, 0], [0, 9, 0]]).text == "ABB"
    assert read([[2, 1, 9], [0, 0, 9], [0, 0, 9]]).text == "A"


def test_the_confidence_includes_the_end_of_the_text_and_nothing_after_it():
    end = np.exp(9) / (np.exp(9) + 2)
    first = np.exp(9) / (np.exp(9) + 1)  # the first place cannot be empty
    assert read([[9, 0, 0], [0, 0, 9], [0, 0, 0]]).confidence == pytest.approx(first * end)


def test_reading_can_be_limited_to_lengths_and_to_an_alphabet():
    rows = [[9, 0, 0], [0, 5, 9], [5, 0, 9]]
    assert [read(rows, lengths=Lengths(n, n)).text for n in (1, 2, 3)] == ["A", "AB", "ABA"]
    assert read(rows, lengths=Lengths(2, 3)).text == "AB"
    assert read([[9, 1, 0], [9, 1, 0], [5, 0, 9]], charset="B").text == "BB"


def test_lengths_that_the_model_does_not_read_are_refused():
    for lengths in (Lengths(4, 4), Lengths(1, 4)):
        with pytest.raises(UsageError, match=r"\b1-3\b"):
            allowed_classes(CONFIG, lengths=lengths)


def test_the_end_of_the_text_can_be_the_runner_up():
    reading = read([[9, 0, 0], [0, 9, 8], [0, 0, 9]])
    assert reading.text == "AB"
    assert [character.runner_up for character in reading.characters] == ["B", ""]
