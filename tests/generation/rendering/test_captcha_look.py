"""With the same angle, size and colour, the engine draws the glyphs of the captcha package."""

import random

import captcha.image
import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.generation.operators.glyphs import corners, rotation
from captcha_ocr.generation.rendering.rasters import raster
from captcha_ocr.generation.rendering.typesetting import paint, transform

COLOR = 150, 90, 30
TURN = 0.8  # of the way from -30 to 30 degrees


class Fixed:
    """A replacement of `secrets` that turns each glyph as far, and leaves its corners in place."""

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
    theirs = package._draw_character(character, draw, (*COLOR, 255))

    inked = raster(captcha.image.DEFAULT_FONTS[0], 42, character)
    turned = transform(inked.image, *rotation(random.Random(1), TURN * 60 - 30))
    still = corners(turned, inked.cell, random.Random(1), x=0, y=0, fill=True, sampling="nearest")
    stencil, colors = paint(still, COLOR, 1, 1.97)
    # The package also turns and warps the colours, rounded to 8 bits each time.
    assert np.abs(np.asarray(still).astype(int) - np.asarray(theirs.getchannel("A"))).max() <= 3
    painted_on = [Image.new("RGB", still.size, "white") for _ in range(2)]
    painted_on[0].paste(colors, mask=stencil)
    painted_on[1].paste(theirs, mask=theirs.convert("L").point(package.lookup_table))
    pixels = [np.asarray(image).astype(int) for image in painted_on]
    assert np.abs(pixels[0] - pixels[1]).mean() < 2
