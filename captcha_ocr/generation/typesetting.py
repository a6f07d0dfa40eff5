"""The glyphs of a text, put through the operators for single glyphs, and their places on the canvas."""

import math
import random
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captcha_ocr.errors import check
from captcha_ocr.generation.design import Design, Step
from captcha_ocr.generation.operators.registry import Mask
from captcha_ocr.generation.rasters import LADDER, Raster, raster

IDENTITY = np.eye(2)
MIN_FACTOR, MAX_GLYPH = 1e-4, 10_000  # MAX_GLYPH: pixels of a side


class Glyph(NamedTuple):
    """A glyph ready to be placed. middle: of its mask, in pixels below the baseline. width: that it takes."""

    mask: Mask
    middle: float
    width: int


class Placed(NamedTuple):
    """A glyph and the left and top of its mask on the canvas, in pixels."""

    mask: Mask
    left: int
    top: int

    def on_canvas(self, height: int, width: int) -> tuple[slice, slice, Mask]:
        """Return the rows and columns of the canvas that the glyph covers, and the part of its mask that lies there."""
        top, left = max(0, self.top), max(0, self.left)
        bottom = max(top, min(height, self.top + self.mask.shape[0]))
        right = max(left, min(width, self.left + self.mask.shape[1]))
        part = self.mask[top - self.top : bottom - self.top, left - self.left : right - self.left]
        return slice(top, bottom), slice(left, right), part


class Typesetter:
    """Set the text of one image. steps: the operators on glyphs and lines that this image has, by stage."""

    def __init__(
        self, design: Design, faces: Sequence[str], steps: Mapping[str, list[Step]], rng: random.Random
    ) -> None:
        self.text, self.steps, self.rng = design.text, steps, rng
        self.padding = design.canvas["padding"](rng)
        self.faces = faces if design.fonts["per_glyph"](rng) else [rng.choice(faces)]
        self.face = self.faces[0]

    def value(self, name: str) -> Any:
        """Draw the value of a field of [text]."""
        return self.text[name](self.rng)

    def draw_ink(self, character: str) -> tuple[Raster, float]:
        """Draw a character in a random font and size; return the factor by which it is still to be scaled, too."""
        face = self.faces[int(self.rng.random() * len(self.faces))]
        size = self.value("size")
        if isinstance(size, int):
            return raster(face, size, character), 1.0
        step = next(step for step in LADDER if step >= size)
        return raster(face, step, character, margin=1), size / step

    def make_glyph(self, character: str) -> Glyph:
        """Draw one glyph and put it through the operators for single glyphs."""
        rng = self.rng
        inked, factor = self.draw_ink(character)
        mask = inked.mask
        if not mask.size:
            return Glyph(mask, 0, round(inked.cell[0] * factor))
        if self.steps["shape"] or factor != 1:
            matrices = [step.operator.function(rng, **step.values(rng)) for step in self.steps["shape"]]
            mask = transform(mask, factor * reduce(np.matmul, reversed(matrices), IDENTITY))
        cell = inked.cell if factor == 1 else (round(inked.cell[0] * factor), round(inked.cell[1] * factor))
        for step in self.steps["corners"]:
            mask = step.operator.function(mask, cell, rng, **step.values(rng))
        for step in self.steps["stroke"]:
            mask = step.operator.function(mask, rng, **step.values(rng))
        return Glyph(mask, inked.middle[1] * factor, mask.shape[1])

    def set_text(self, text: Sequence[str], width: int, height: int) -> tuple[list[Placed], int]:
        """Place the glyphs of a text; return them, and the width of the canvas that they need.

        width: of the canvas in pixels; 0 makes it as wide as the text.
        """
        glyphs = [self.make_glyph(character) for character in text]
        line, extent, total = self.place_in_line(glyphs)
        wide = max(width, total) if width else max(1, extent + 2 * self.padding)
        if self.value("spread"):
            wide = width or wide
            line = self.spread(glyphs, wide)
        else:
            left = round(self.value("x") * (wide - extent))
            line = [left + x for x in line]
        middles = self.find_middles(glyphs)
        tops = [middle - glyph.mask.shape[0] / 2 for glyph, middle in zip(glyphs, middles, strict=True)]
        bottom = max(top + glyph.mask.shape[0] for glyph, top in zip(glyphs, tops, strict=True))
        base = self.value("y") * (height - (bottom - min(tops))) - min(tops)
        return [Placed(g.mask, x, int(base + top)) for g, x, top in zip(glyphs, line, tops, strict=True)], wide

    def find_middles(self, glyphs: Sequence[Glyph]) -> list[float]:
        """Return the middle of each glyph, in pixels below the baseline."""
        middles = [0.0 if self.value("align") == "middle" else glyph.middle for glyph in glyphs]
        for step in self.steps["layout"]:
            shifts = step.operator.function(len(glyphs), self.rng, **step.values(self.rng)) * self.value("size")
            middles = [middle + shift for middle, shift in zip(middles, shifts.tolist(), strict=True)]
        return middles

    def place_in_line(self, glyphs: Sequence[Glyph]) -> tuple[list[int], int, int]:
        """Return where each glyph begins, how far the line reaches, and its width without overlaps, in pixels."""
        blanks = [self.blank_width() if self.rng.random() < self.value("blanks") else 0 for _ in glyphs]
        total = sum(blanks) + sum(glyph.width for glyph in glyphs)
        average = total / len(glyphs)
        x, line, gap = int(self.value("indent") * average), [], 0
        for glyph, blank in zip(glyphs, blanks, strict=True):
            if blank:
                x += blank + round(self.value("spacing") * average)
            line.append(x)
            gap = round(self.value("spacing") * average)
            x += glyph.width + gap
        return line, x - gap, max(x - gap, total)

    def spread(self, glyphs: Sequence[Glyph], width: int) -> list[int]:
        """Return where each glyph begins if they are spread over the canvas, each somewhere in its part."""
        part = width / len(glyphs)
        reach = [self.value("spacing") * part / 2 for _ in glyphs]
        places = [(number + 0.5) * part + self.rng.uniform(-each, each) for number, each in enumerate(reach)]
        return [round(place - glyph.width / 2) for place, glyph in zip(places, glyphs, strict=True)]

    def blank_width(self) -> int:
        """Return the width of a blank in pixels."""
        blank, factor = self.draw_ink(" ")
        return round(blank.cell[0] * factor)


def transform(mask: Mask, matrix: NDArray[np.float64]) -> Mask:
    """Map a mask by a (2, 2) matrix about its middle; the result is as large as it has to be."""
    (a, b), (c, d) = matrix.tolist()
    image = Image.fromarray(mask)
    fine = abs(a * d - b * c) ** 0.5 > MIN_FACTOR and max(image.size) * max(map(abs, (a, b, c, d))) < MAX_GLYPH
    check(fine, "the operators of the design scale, stretch and shear a glyph too far; give them factors closer to 1")
    shrink = int(abs(a * d - b * c) ** -0.5)
    if shrink > 1:  # bilinear sampling alone would skip pixels
        image = image.reduce(shrink)
        a, b, c, d = a * shrink, b * shrink, c * shrink, d * shrink
    width, height = image.size
    reach_x, reach_y = (abs(a) * width + abs(b) * height) / 2, (abs(c) * width + abs(d) * height) / 2
    wide = math.ceil(width / 2 + reach_x) - math.floor(width / 2 - reach_x)
    high = math.ceil(height / 2 + reach_y) - math.floor(height / 2 - reach_y)
    determinant = a * d - b * c
    a, b, c, d = d / determinant, -b / determinant, -c / determinant, a / determinant  # from the result to the mask
    left, top = width / 2 - a * wide / 2 - b * high / 2, height / 2 - c * wide / 2 - d * high / 2
    coefficients = (a, b, left, c, d, top)
    return np.asarray(image.transform((wide, high), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR))


def knock_out(placed: Sequence[Placed], height: int, width: int) -> list[Placed]:
    """Remove the ink where glyphs overlap."""
    total = np.zeros((height, width), np.int32)
    parts = [glyph.on_canvas(height, width) for glyph in placed]
    for rows, columns, part in parts:
        total[rows, columns] += part
    kept = [np.clip(2 * part.astype(np.int32) - total[rows, columns], 0, 255) for rows, columns, part in parts]
    places = [(columns.start, rows.start) for rows, columns, _ in parts]
    return [Placed(mask.astype(np.uint8), *place) for mask, place in zip(kept, places, strict=True)]
