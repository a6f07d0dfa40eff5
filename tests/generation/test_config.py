from captcha_ocr.config import Lengths
from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.fast_renderer import render


def test_the_default_width_grows_with_the_length():
    drawn = [render(GeneratorConfig(lengths=Lengths(length, length)), 0) for length in (1, 4, 5, 10)]
    assert [(len(text), image.width) for text, image in drawn] == [(1, 160), (4, 160), (5, 200), (10, 400)]
