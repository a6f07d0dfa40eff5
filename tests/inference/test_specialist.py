from pathlib import Path

import pytest
from PIL import Image

from captcha_ocr import Reading, Recognizer
from captcha_ocr.config import Lengths
from captcha_ocr.inference.decoding import Decoder
from captcha_ocr.inference.model_folder import PRETRAINED, read_model_config
from captcha_ocr.inference.specialist import SPECIALIST, decoder_beside, edits, surer

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "00000-0ZLA.png"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("", "", 0), ("AB", "ab", 0), ("O234", "0234", 1), ("234", "1234", 1), ("kitten", "sitting", 3), ("", "AB", 2)],
)
def test_edits_count_what_changes_between_two_texts(one, other, expected):
    assert edits(one, other) == edits(other, one) == expected


def test_the_specialist_answers_where_it_is_surer_and_reads_nearly_the_same():
    general = Reading("O23A", 0.95)
    assert surer(general, Reading("0238", 0.99)).text == "0238"
    assert surer(general, Reading("0238", 0.94)) is general
    assert surer(general, Reading("0189", 0.99)) is general


def decoder(charset=None, length=None, fold_case=False):
    """Return the specialist's decoder beside a general one that was told this."""
    lengths = length and Lengths(*length)
    general = Decoder(read_model_config(PRETRAINED), charset, lengths, fold_case)
    return decoder_beside(general, read_model_config(SPECIALIST), charset, lengths)


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({}, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"),
        ({"fold_case": True}, "abcdefghijklmnopqrstuvwxyz0123456789"),
        ({"charset": "AB1", "fold_case": True}, "AB1"),
        ({"charset": "Ab1", "fold_case": True}, "ab1"),
        ({"charset": "AB1", "length": (4, 5)}, "AB1"),
    ],
)
def test_both_models_write_letters_in_the_same_case(told, names):
    assert "".join(decoder(**told).names) == names


@pytest.mark.parametrize("told", [{"charset": "ABab"}, {"charset": "AB+", "fold_case": True}, {"length": (3, 4)}])
def test_the_specialist_is_not_asked_for_texts_that_it_does_not_know(told):
    assert decoder(**told) is None
    assert Recognizer(**told).specialist is None


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_reading_tells_which_model_read_it(engine, torch_threads):
    reading = Recognizer(engine=engine, threads=1).predict(SAMPLE)
    assert (reading.model, reading.text) == ("captcha", "0ZLA")
    assert Recognizer(SPECIALIST, engine=engine, threads=1).predict(SAMPLE) == reading
    assert Recognizer(charset="alnum", engine=engine, threads=1).predict(SAMPLE).model == "general"


def test_only_images_of_its_own_size_are_shown_to_the_specialist():
    with Image.open(SAMPLE) as image:
        wider = image.resize((200, 60))
        models = [reading.model for reading in Recognizer().predict([wider, image, wider])]
    assert models == ["general", "captcha", "general"]
