import pickle
from pathlib import Path

import pytest
from PIL import Image

from captcha_ocr import Recognizer
from captcha_ocr.inference.rapidocr_engine import RapidOcrEngine, find_network

SAMPLES = sorted(Path(__file__).parents[2].glob("data/samples/*.png"))


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    network = find_network()
    assert network is not None, "the extra `second` installs it"
    return Recognizer(RapidOcrEngine(network, threads=1))


def test_rapidocr_reads_the_samples_and_its_alphabet_can_be_limited(recognizer):
    texts = [path.stem.partition("-")[2] for path in SAMPLES]
    assert [reading.text for reading in recognizer.predict(SAMPLES)] == texts
    limited = recognizer.limited_to("lower-alnum", None, True)
    assert [reading.text for reading in limited.predict(SAMPLES)] == list(map(str.lower, texts))
    assert "RapidOCR" in repr(limited)


def test_an_image_is_read_alone_as_among_others_and_at_any_width(recognizer):
    with Image.open(SAMPLES[1]) as image:
        images = [image.resize((width, 48)) for width in (100, 320, 640)]
    together = recognizer.predict(images)
    assert [reading.text for reading in together] == ["YTX5"] * 3
    for image, reading in zip(images, together, strict=True):
        assert recognizer.predict(image).confidence == pytest.approx(reading.confidence, abs=1e-4)
    copied = pickle.loads(pickle.dumps(recognizer))
    assert copied.predict(images[0]).text == "YTX5"


def test_without_the_package_there_is_no_network(monkeypatch):
    monkeypatch.setattr("captcha_ocr.inference.rapidocr_engine.find_spec", lambda name: None)
    assert find_network() is None
