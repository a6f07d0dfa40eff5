"""Marks that are made of letters: decoys, a ghost, small print."""

import random
import string

import numpy as np
from PIL import Image

from captcha_ocr.generation.operators.registry import Area, Mask, operator
from captcha_ocr.generation.operators.under import blurred
from captcha_ocr.generation.operators.values import Number
from captcha_ocr.generation.rendering.rasters import LADDER, raster

_LETTERS = string.ascii_letters + string.digits
_DRAWN_AT = LADDER[0]  # pixels: these glyphs are kept already


@operator(
    "mark",
    count=Number(1, 60, (4, 20), whole=True),
    size=Number(4, 100, (8, 20), "pixels", whole=True),
)
def decoys(area: Area, rng: random.Random, count: int, size: int) -> Mask:
    """Scatter small letters that are not part of the text."""
    canvas = Image.new("L", (area.width, area.height))
    for _ in range(count):
        place(canvas, area.font, size, rng.randrange(area.width), rng.randrange(area.height), rng)
    return np.asarray(canvas)


@operator("mark", sigma=Number(0, 20, (2, 5), "pixels"))
def ghost(area: Area, rng: random.Random, sigma: float) -> Mask:
    """Draw one large blurred letter that is not part of the text."""
    canvas = Image.new("L", (area.width, area.height))
    place(
        canvas,
        area.font,
        round(area.height * 1.2),
        rng.randrange(area.width),
        area.height // 2,
        rng,
    )
    return blurred(np.asarray(canvas), sigma)


@operator("mark", size=Number(5, 40, (6, 9), "pixels", whole=True))
def small_print(area: Area, rng: random.Random, size: int) -> Mask:
    """Write a line of small letters along the lower border."""
    canvas, x = Image.new("L", (area.width, area.height)), size
    while x < area.width - size:
        if rng.random() < 0.85:  # the rest are blanks
            place(canvas, area.font, size, x, area.height - size // 2 - 1, rng)
        x += size * 2 // 3
    return np.asarray(canvas)


def place(canvas: Image.Image, font: str, size: int, x: int, y: int, rng: random.Random) -> None:
    """Draw a random letter about (x, y)."""
    mask = raster(font, _DRAWN_AT, rng.choice(_LETTERS), margin=1).image
    width, height = (max(1, round(side * size / _DRAWN_AT)) for side in mask.size)
    canvas.paste(255, (x - width // 2, y - height // 2), mask.resize((width, height)))
