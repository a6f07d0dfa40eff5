from pathlib import Path

import pytest
from PIL import Image

from captcha_ocr import Reading, Recognizer
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.inference.captcha_package_model import (
    CAPTCHA_PACKAGE_MODEL,
    CERTAIN,
    choose_reading,
    count_edits,
)
from captcha_ocr.inference.decoding import Character
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import Lengths

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "00000-0ZLA.png"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", 0),
        ("AB", "ab", 0),
        ("O234", "0234", 1),
        ("234", "1234", 1),
        ("kitten", "sitting", 3),
        ("", "AB", 2),
    ],
)
def test_edits_count_what_changes_between_two_texts(one, other, expected):
    assert count_edits(one, other) == count_edits(other, one) == expected


def reading(text, confidence, of_each=0.9):
    return Reading(
        text, confidence, tuple(Character(character, of_each, "", 0.0) for character in text)
    )


@pytest.mark.parametrize(
    ("general", "captcha", "answers"),
    [
        (reading("O23A", 0.95), reading("0238", 0.99), True),
        (reading("O23A", 0.95), reading("0238", 0.95), False),  # not surer
        (reading("O23A", 0.95), reading("0189", 0.99), False),  # three characters differ
        (reading("o23v", 0.95), reading("O23V", 0.99), True),
        (
            reading("k23v", 0.95),
            reading("K23V", 0.99),
            False,
        ),  # a letter that no capital looks like
        (reading("k23v", 0.05, of_each=0.5), reading("K23V", 0.99), True),  # if it is one
        (
            reading("0123456", 0.95),
            reading("012456", 0.99),
            False,
        ),  # longer than the captcha model reads
        (reading("012345", 0.95), reading("012344", 0.99), True),
        (reading("012345", 0.95), reading("01234", 0.99), True),
        (reading("012345", 0.95), reading("012333", 0.99), False),  # it may be longer
    ],
)
def test_the_captcha_model_answers_where_it_is_surer_and_can_know_the_text(
    general, captcha, answers
):
    assert choose_reading(general, captcha, 6) is (general, captcha)[answers]


@pytest.mark.parametrize(
    ("told", "is_asked"),
    [
        ({}, True),
        ({"charset": "AB1", "length": (4, 5)}, True),
        ({"charset": "ABab"}, False),
        ({"length": (3, 4)}, False),
        ({"fold_case": True}, False),
    ],
)
def test_the_captcha_model_is_asked_for_texts_that_it_knows(told, is_asked):
    recognizer = Recognizer(**told)
    assert (recognizer.captcha_model is not None) == is_asked
    reading = recognizer.predict(SAMPLE)
    assert set(reading.text) <= set(told.get("charset", reading.text))


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_reading_tells_which_model_read_it(engine, torch_threads):
    reading = Recognizer(engine=engine, threads=1).predict(SAMPLE)
    assert (reading.model, reading.text) == ("captcha", "0ZLA")
    assert Recognizer(CAPTCHA_PACKAGE_MODEL, engine=engine, threads=1).predict(SAMPLE) == reading
    assert Recognizer(charset="alnum", engine=engine, threads=1).predict(SAMPLE).model == "general"


def test_only_images_of_its_own_size_are_shown_to_the_captcha_model():
    with Image.open(SAMPLE) as image:
        first, second = Recognizer().predict([image.resize((200, 60)), image])
    assert (first.model, second.model) == ("general", "captcha")


def test_where_the_general_model_is_certain_the_captcha_model_is_not_asked(tmp_path):
    generate(plan_drawing(DrawingOptions(count=30, seed=0)), tmp_path, 1)
    paths = sorted(tmp_path.glob("*.png"))
    recognizer = Recognizer()
    both = recognizer.predict(paths)
    assert {reading.model for reading in both} == {"general", "captcha"}
    recognizer.captcha_model = None
    general = recognizer.predict(paths)
    certain = [pair for pair in zip(general, both, strict=True) if pair[0].confidence >= CERTAIN]
    alone, beside = zip(*certain, strict=True)
    assert alone == beside


@pytest.mark.parametrize(
    ("charset", "length"), [("ABCDEFGHIJKLMNPQRSTUVWXYZ", 8), ("abdefghjkmnpqrty", 4)]
)
def test_texts_that_the_captcha_model_cannot_know_are_left_to_the_general_model(
    tmp_path, charset, length
):
    options = DrawingOptions(
        count=20, seed=0, charset=charset, lengths=Lengths(length, length), width=160, height=60
    )
    generate(plan_drawing(options), tmp_path, 1)
    models = [reading.model for reading in Recognizer().predict(sorted(tmp_path.glob("*.png")))]
    assert models.count("general") >= 15
