import os
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr import Reading, Recognizer
from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.errors import ImageError, UsageError
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.two_readers import (
    PastReadings,
    TwoReaders,
    agree,
    judge_both,
    open_second_reader,
)

SAMPLES = sorted(Path(__file__).parents[1].glob("data/samples/*.png"))
TEXTS = [path.stem.partition("-")[2] for path in SAMPLES]
OPTIONS = ReadingOptions(threads=1)


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer(threads=1)


def past(readings: dict[Path, Reading]) -> PastReadings:
    return PastReadings({os.path.abspath(path): reading for path, reading in readings.items()})


def test_of_two_readings_the_surer_is_taken(recognizer):
    damaged = Path("damaged.png")
    damaged.write_bytes(b"no image")
    second = past({SAMPLES[0]: Reading("surely", 1.0), SAMPLES[1]: Reading("perhaps", 0.01)})
    results = list(TwoReaders(recognizer, second).read_all([*SAMPLES[:3], damaged]))
    assert [reading.text for reading in results[:3]] == ["surely", *TEXTS[1:3]]
    assert isinstance(results[3], ImageError)


@pytest.mark.parametrize(
    ("first", "second", "text", "confidence"),
    [
        (("ab", 0.6), ("AB", 0.5), "ab", 0.8),
        (("ab", 0.6), ("cd", 0.5), "ab", 0.3 / 0.7),
        (("ab", 0.5), ("cd", 0.6), "cd", 0.3 / 0.7),
        (("ab", 0.6), ("", 0.0), "ab", 0.6),
        (("ab", 1.0), ("cd", 1.0), "ab", 1.0),
    ],
)
def test_at_most_one_of_two_texts_is_right(first, second, text, confidence):
    judged = judge_both(Reading(*first), Reading(*second))
    assert (judged.text, judged.confidence) == (text, pytest.approx(confidence))


def test_both_are_told_what_the_texts_have_in_common_on_which_they_agree(recognizer):
    known = set(NAMED_ALPHABETS["upper-alnum"])
    fitted = TwoReaders(recognizer, Recognizer(threads=1)).fitted_to(SAMPLES * 3)
    for decoder in (fitted.decoder, fitted.second.decoder):
        assert (decoder.lengths, decoder.characters) == (Lengths(4, 4), known)
    # Where they never agree, the second one is not told
    other = TwoReaders(recognizer, Recognizer(length=6, threads=1)).fitted_to(SAMPLES * 3)
    assert other.decoder.lengths == Lengths(4, 4)
    assert other.second.decoder.lengths == Lengths(6, 6)
    few = TwoReaders(recognizer, Recognizer(threads=1))
    assert few.fitted_to(SAMPLES).recognizer is recognizer


def test_the_confidence_of_a_second_reader_is_doubted(recognizer):
    two = TwoReaders(recognizer, past({SAMPLES[0]: Reading("surely", 0.5)}))
    ((_, second),) = two.read_both(SAMPLES[:1])
    assert second == Reading("surely", 0.25)


def test_texts_agree_but_for_their_case_and_no_text_agrees_with_nothing():
    assert agree(Reading("aB", 0.1), Reading("Ab", 0.9))
    assert not agree(Reading("ab", 0.9), Reading("abc", 0.9))
    assert not agree(Reading("", 0.9), Reading("", 0.9))


def test_a_second_reader_is_rapidocr_or_none_or_a_table(tmp_path):
    (tmp_path / "a.png").symlink_to(SAMPLES[0])
    table = tmp_path / "theirs.csv"
    table.write_text("filename,text,confidence\na.png,XY,0.5\n")
    read = open_second_reader(str(table), tmp_path, OPTIONS).read_all([tmp_path / "a.png", "b.png"])
    assert list(read) == [Reading("XY", 0.5), Reading("", 0.0)]
    table.write_text("filename,text,confidence\na.png,XY,97\n")
    (percent,) = open_second_reader(str(table), tmp_path, OPTIONS).read_all([tmp_path / "a.png"])
    assert percent.confidence == 0.97
    longer = ReadingOptions(lengths=Lengths(3, 4), threads=1)
    (left_out,) = open_second_reader(str(table), tmp_path, longer).read_all([tmp_path / "a.png"])
    assert not left_out.text
    with pytest.raises(UsageError, match=naming("`second`", "nope", "rapidocr")):
        open_second_reader("nope", tmp_path, OPTIONS)
    (nothing,) = open_second_reader("none", tmp_path, OPTIONS).read_all([SAMPLES[0]])
    assert not nothing.text
    (found,) = open_second_reader("rapidocr", tmp_path, OPTIONS).read_all([SAMPLES[0]])
    assert found.text == TEXTS[0]
    table.write_text("filename,text,confidence\nz.png,XY,0.5\n")
    with pytest.raises(UsageError, match=naming(table, "z.png")):
        open_second_reader(str(table), tmp_path, OPTIONS)


def test_without_its_package_rapidocr_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("captcha_ocr.two_readers.find_network", lambda: None)
    with pytest.raises(UsageError, match=naming("`second`", "rapidocr")):
        open_second_reader("rapidocr", tmp_path, OPTIONS)
