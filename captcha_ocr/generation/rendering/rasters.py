"""Glyphs as FreeType draws them, kept for the next image."""

from functools import lru_cache
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

_KEPT_FONTS, _KEPT_GLYPHS = 512, 50_000  # in each process: up to 130 MB of glyphs
# The sizes in which glyphs are drawn if their size comes from a range; they are then shrunk. Two
# sizes for most keep FreeType's part small where there are hundreds of fonts.
LADDER = (40, 80, 160, 320, 640)


class Raster(NamedTuple):
    """A glyph in one font and size.

    image: its ink, in mode L; empty for a blank. middle: of the ink, (x, y) in pixels from the
    pen's place on the baseline. cell: (width, height) from the pen's place and the top of the line
    to the end of the ink. advance: pixels from the pen's place to that of the next glyph.
    """

    image: Image.Image
    middle: tuple[float, float]
    cell: tuple[int, int]
    advance: float


load_font = lru_cache(maxsize=_KEPT_FONTS)(ImageFont.truetype)  # (path, size in pixels)


@lru_cache(maxsize=_KEPT_GLYPHS)
def raster(path: str, size: int, character: str, margin: int = 0) -> Raster:
    """Draw a character with its combining marks, and a margin of pixels around its ink."""
    font = load_font(path, size)
    left, top, right, bottom = font.getbbox(character, anchor="ls")
    image = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), character, 255, font, anchor="ls")
    ascent, box, advance = font.getmetrics()[0], image.getbbox(), font.getlength(character)
    if box is None:
        return Raster(Image.new("L", (0, 0)), (0, 0), (round(advance) + 1, ascent + 1), advance)
    cell = int(right) + 1, ascent + int(bottom) + 1
    middle = left + (box[0] + box[2]) / 2, top + (box[1] + box[3]) / 2
    sides = box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin
    return Raster(image.crop(sides), middle, cell, advance)
