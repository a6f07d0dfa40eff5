"""Glyphs as FreeType draws them, kept for the next image."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import ImageFont

from captcha_ocr.generation.operators.registry import Mask

KEPT_FONTS, KEPT_GLYPHS = 512, 50_000  # in each process: up to 130 MB of glyphs
# The sizes in which glyphs are drawn if their size comes from a range; they are then shrunk. One size for most keeps
# FreeType's part small where there are hundreds of fonts.
LADDER = (80, 160, 320, 640)


class Raster(NamedTuple):
    """A glyph in one font and size.

    mask: its ink (height, width); empty for a blank. middle: of the ink, (x, y) in pixels from
    the pen's place on the baseline. cell: (width, height) from the pen's place and the top of the line to the end of
    the ink.
    """

    mask: Mask
    middle: tuple[float, float]
    cell: tuple[int, int]


@lru_cache(maxsize=KEPT_FONTS)
def load_font(path: str, size: int) -> ImageFont.FreeTypeFont:
    """Load a font at a size in pixels."""
    return ImageFont.truetype(path, size)


@lru_cache(maxsize=KEPT_GLYPHS)
def raster(path: str, size: int, character: str, margin: int = 0) -> Raster:
    """Draw a character with its combining marks, and leave a margin of so many pixels around its ink."""
    font = load_font(path, size)
    image, (left, top) = font.getmask2(character, "L", anchor="ls")
    width, height = image.size
    ascent, _ = font.getmetrics()
    ink = np.frombuffer(bytes(image), np.uint8).reshape(height, width)
    if not ink.any():
        return Raster(np.zeros((0, 0), np.uint8), (0, 0), (round(font.getlength(character)) + 1, ascent + 1))
    cell = int(left) + width + 1, ascent + int(top) + height + 1
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    mask = np.zeros((ink.shape[0] + 2 * margin, ink.shape[1] + 2 * margin), np.uint8)
    mask[margin : margin + ink.shape[0], margin : margin + ink.shape[1]] = ink
    middle = left + int(columns[0]) + ink.shape[1] / 2, top + int(rows[0]) + ink.shape[0] / 2
    return Raster(mask, middle, cell)
