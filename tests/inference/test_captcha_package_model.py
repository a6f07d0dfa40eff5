from pathlib import Path

import pytest
from PIL import Image

from captcha_ocr import Reading, Recognizer
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.inference.captcha_package_model import (
    CAPTCHA_PACKAGE_MODEL,
    choose_reading,
    count_edits,
    is_alike,
)
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.drawing import DrawingOptions

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "00000-0ZLA.png"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", 0),
        ("O234", "0234", 1),
        ("234", "1234", 1),
        ("kitten", "sitting", 3),
        ("", "AB", 2),
    ],
)
def test_edits_count_what_changes_between_two_texts(one, other, expected):
    assert count_edits(one, other) == count_edits(other, one) == expected


@pytest.mark.parametrize(
    ("general", "special", "answers"),
    [
        (("O23A", 0.95), ("0238", 0.99), True),
        (("O23A", 0.95), ("0238", 0.95), False),  # not surer
        (("O23A", 0.95), ("0189", 0.99), False),  # three characters differ
        (("o23v", 0.95), ("O23V", 0.99), False),  # the text may be of lower case
        (("1%/8", 0.95), ("1448", 0.99), False),  # it knows no sign
        (("0123456", 0.95), ("012456", 0.99), False),  # longer than it knows
        (("012345", 0.95), ("01234", 0.99), True),
        (("012345", 0.95), ("012333", 0.99), False),  # it may be longer
    ],
)
def test_the_captcha_network_answers_where_it_is_surer_and_can_know_the_text(
    general, special, answers
):
    both = Reading(*general), Reading(*special)
    assert choose_reading(*both, 6) is both[answers]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((160, 60), True),
        ((150, 56), True),
        ((171, 64), True),
        ((180, 70), False),
        ((160, 50), False),
    ],
)
def test_images_of_nearly_its_size_are_alike(size, expected):
    assert is_alike(size, InputSize(height=60, width=160, channels=1)) == expected


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
def test_the_captcha_network_is_asked_for_texts_that_it_knows(told, is_asked):
    recognizer = Recognizer(**told)
    assert (recognizer.captcha_model is not None) == is_asked
    reading = recognizer.predict(SAMPLE)
    assert set(reading.text) <= set(told.get("charset", reading.text))


def test_it_is_asked_where_the_general_network_is_unsure_of_an_image_of_its_size(tmp_path):
    generate(plan_drawing(DrawingOptions(count=60, seed=0)), tmp_path, 1)
    images = [Image.open(path) for path in sorted(tmp_path.glob("*.png"))]
    images += [image.resize((200, 60)) for image in images]
    recognizer, special = Recognizer(), Recognizer(CAPTCHA_PACKAGE_MODEL)
    both, of_special = recognizer.predict(images), special.predict(images)
    recognizer.captcha_model = None
    alone = recognizer.predict(images)
    answered = {number for number in range(120) if both[number] != alone[number]}
    assert answered
    assert max(answered) < 60
    assert all(both[number].text == of_special[number].text for number in answered)
