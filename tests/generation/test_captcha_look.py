"""With the package's random numbers, the engine's steps for a glyph give the pixels of the captcha package."""

import random

import numpy as np
import pytest
from captcha.image import DEFAULT_FONTS

from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.fast_renderer import MASK_TABLE, FastRenderer, RandomSource, ink_palette
from captcha_ocr.generation.operators.glyphs import rotation
from captcha_ocr.generation.rasters import raster
from captcha_ocr.generation.typesetting import colored, luminance, transform

COLOR, ALPHA = (150, 90, 30), 235


class NoWarp(RandomSource):
    """Random numbers that leave the corners of a glyph where they are; the angle is kept."""

    def __init__(self, rng):
        super().__init__(rng)
        self.angle = None

    def uniform(self, low, high):
        if low == -30:
            self.angle = super().uniform(low, high)
            return self.angle
        return 0.0

    def below(self, bound):
        return 0


@pytest.mark.parametrize("character", "AQ7W")
def test_a_glyph_has_the_pixels_of_the_package(character):
    source = NoWarp(random.Random(5))
    _, expected = FastRenderer(GeneratorConfig()).draw_glyph(character, ink_palette(COLOR, ALPHA), source)
    inked = raster(DEFAULT_FONTS[0], 42, character)
    turned = transform(colored(inked.mask, COLOR, ALPHA / 256), *rotation(random.Random(1), source.angle))
    image = turned.convert("RGBA").resize(inked.cell)
    assert np.array_equal(np.asarray(image), np.asarray(expected))
    opacity = np.frombuffer(expected.convert("L").tobytes().translate(MASK_TABLE), np.uint8)
    assert np.array_equal(luminance(image, 1.97).ravel(), opacity)
