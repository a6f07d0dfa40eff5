"""With the same angle, size and colour, the engine draws the glyphs of the captcha package."""

import random

import captcha.image
import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.generation.operators.glyphs import corners, rotation
from captcha_ocr.generation.rasters import raster
from captcha_ocr.generation.typesetting import colored, luminance, transform

COLOR, ALPHA = (150, 90, 30), 235
TURN = 0.8  # of the way from -30 to 30 degrees


class Fixed:
    """A replacement of the module `secrets` that turns each glyph as far, and leaves its corners where they are."""

    def __init__(self):
        self.bits = iter([int(TURN * 2**32)])

    def choice(self, fonts):
        return fonts[0]

    def randbelow(self, bound):
        return 0

    def randbits(self, bits):
        return next(self.bits, 2**31)


@pytest.mark.parametrize("character", "AQ7W")
def test_a_glyph_has_the_pixels_of_the_package(character, monkeypatch):
    monkeypatch.setattr(captcha.image, "secrets", Fixed())
    draw, package = ImageDraw.Draw(Image.new("L", (1, 1))), captcha.image.ImageCaptcha()
    theirs = package._draw_character(character, draw, (*COLOR, ALPHA))

    inked = raster(captcha.image.DEFAULT_FONTS[0], 42, character)
    turned = transform(colored(inked.mask, COLOR, ALPHA / 256), *rotation(random.Random(1), TURN * 60 - 30))
    still = corners(turned, inked.cell, random.Random(1), x=0, y=0, fill=True, sampling="nearest")
    ours = still.convert("RGBA")
    # The package rounds to 8 bits once more between the turn and the corners.
    premultiplied = [np.asarray(image.convert("RGBa")).astype(int) for image in (ours, theirs)]
    assert np.abs(premultiplied[0] - premultiplied[1]).max() <= 3
    masks = [np.asarray(luminance(ours, 1.97)), np.asarray(theirs.convert("L").point(package.lookup_table))]
    assert np.abs(masks[0].astype(int) - masks[1]).mean() < 1
