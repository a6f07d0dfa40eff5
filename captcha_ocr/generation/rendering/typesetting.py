"""The glyphs of a text, through the operators for glyphs, and their places on the canvas."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captcha_ocr.data.images import LUMINANCE
from captcha_ocr.errors import check
from captcha_ocr.generation.designs.design import Design, Step
from captcha_ocr.generation.operators.glyphs import Matrix, mask_of
from captcha_ocr.generation.operators.registry import RGB, Mask
from captcha_ocr.generation.rendering.rasters import LADDER, raster
from captcha_ocr.options.drawing import MIN_SIDE

_LUMINANCE = np.rint(65536 * np.array(LUMINANCE)).astype(np.float32)  # as Pillow computes
_MIN_FACTOR, _MAX_GLYPH = 1e-4, 10_000  # _MAX_GLYPH: pixels of a side
_KEPT_SHAPES = 8192  # in each process: the look of the captcha package has 6,588, in 13 MB
_Ink = tuple[str, int, str, int]  # what `raster` takes


class Glyph(NamedTuple):
    """A glyph.

    image: its coverage, in mode L, or if its pixels have colours of their own these and the
    coverage, in mode RGBA; of a blank as wide and without a height. middle: of the image, in pixels
    below the baseline. pen: the pixels from its middle back to the pen's place, and from there to
    that of the next glyph. left, top: its place on the canvas in pixels, once it has one.
    """

    image: Image.Image
    middle: float
    pen: tuple[float, float] = (0, 0)
    left: int = 0
    top: int = 0

    @property
    def center(self) -> tuple[float, float]:
        """The glyph's middle on the canvas, (x, y) in pixels."""
        return self.left + self.image.width / 2, self.top + self.image.height / 2

    @property
    def is_colored(self) -> bool:
        """Whether its pixels have colours of their own."""
        return self.image.mode == "RGBA"

    @property
    def mask(self) -> Mask:
        """The glyph's coverage (height, width)."""
        return np.asarray(self.image)[..., 3] if self.is_colored else mask_of(self.image)

    def window(self, height: int, width: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """Return the glyph's rows and columns on the canvas, and those of its mask there."""
        top, left = max(0, self.top), max(0, self.left)
        bottom = max(top, min(height, self.top + self.image.height))
        right = max(left, min(width, self.left + self.image.width))
        part = slice(top - self.top, bottom - self.top), slice(left - self.left, right - self.left)
        return (slice(top, bottom), slice(left, right)), part


class Typesetter:
    """Set the text of one image.

    steps: the operators on glyphs and lines that this image has, by stage.
    """

    def __init__(
        self,
        design: Design,
        faces: Sequence[str],
        steps: Mapping[str, list[Step]],
        rng: random.Random,
    ) -> None:
        self.text, self.steps, self.rng = design.text, steps, rng
        self.padding = design.canvas["padding"](rng)
        self.faces = faces if design.fonts["per_glyph"](rng) else [rng.choice(faces)]
        self.opacity, self.gain = self.value("opacity"), self.value("opacity_by_luminance")

    def value(self, name: str) -> Any:
        """Draw the value of a field of [text]."""
        return self.text[name](self.rng)

    def _choose_ink(self, character: str) -> tuple[_Ink, float]:
        """Return a character in a random font and size, for `raster`.

        Return the factor, too, by which it is still to be scaled.
        """
        face = self.faces[int(self.rng.random() * len(self.faces))]
        size = self.value("size")
        if isinstance(size, int):
            return (face, size, character, 0), 1.0
        step = next(step for step in LADDER if step >= size)
        return (face, step, character, 1), size / step

    def make_glyph(self, character: str, color: RGB) -> Glyph:
        """Draw one glyph and put it through the operators for single glyphs.

        If its opacity is that of its luminance, it gets its strokes before it is turned and warped.
        """
        rng = self.rng
        ink, factor = self._choose_ink(character)
        inked = raster(*ink)
        image = inked.image
        cell = round(inked.cell[0] * factor), round(inked.cell[1] * factor)
        if not image.width:
            return Glyph(Image.new("L", (cell[0], 0)), 0.0)
        if self.gain:
            image = self._stroke(image)
        if self.steps["shape"] or factor != 1:
            matrix = factor, 0.0, 0.0, factor
            for step in self._choose("shape"):
                matrix = _multiply(step.operator.function(rng, **step.values(rng)), matrix)
            is_kept = factor == 1 and image is inked.image
            image = _keep_shape(ink, matrix) if is_kept else transform(image, *matrix)
        for step in self._choose("corners"):
            image = step.operator.function(image, cell, rng, **step.values(rng))
        image = paint(image, color, self.opacity, self.gain) if self.gain else self._stroke(image)
        pen = inked.middle[0] * factor, inked.advance * factor
        return Glyph(image, inked.middle[1] * factor, pen)

    def _stroke(self, image: Image.Image) -> Image.Image:
        for step in self._choose("stroke"):
            mask = step.operator.function(mask_of(image), self.rng, **step.values(self.rng))
            image = Image.fromarray(mask)
        return image

    def _choose(self, stage: str) -> Iterator[Step]:
        """Yield, at random, the operators of a stage that the next glyph has."""
        for step in self.steps[stage]:
            if step.glyph_probability >= 1 or self.rng.random() < step.glyph_probability:
                yield step

    def set_text(
        self, text: Sequence[str], colors: Sequence[RGB], width: int, height: int
    ) -> tuple[list[Glyph], int, int]:
        """Place the glyphs of a text.

        Return them, and the width and height of the canvas that they need.

        colors: of the glyphs. width, height: of the canvas in pixels; 0 makes it as wide or high as
        the text.
        """
        glyphs = list(map(self.make_glyph, text, colors))
        line, extent, total = self._place_in_line(glyphs)
        wide = max(width, total) if width else max(MIN_SIDE, extent + 2 * self.padding)
        if self.value("spread"):
            wide = width or wide
            line = self._spread(glyphs, wide)
        else:
            left = round(self.value("x") * (wide - extent))
            line = [left + x for x in line]
        heights = [glyph.image.height for glyph in glyphs]
        pairs = zip(self._find_middles(glyphs), heights, strict=True)
        tops = [middle - height / 2 for middle, height in pairs]
        bottom, top = max(map(add, tops, heights)), min(tops)
        high = height or max(MIN_SIDE, math.ceil(bottom - top) + 2 * self.padding)
        base = self.value("y") * (high - (bottom - top)) - top
        places = zip(glyphs, line, tops, strict=True)
        placed = [glyph._replace(left=x, top=int(base + y)) for glyph, x, y in places]
        return placed, wide, high

    def _find_middles(self, glyphs: Sequence[Glyph]) -> list[float]:
        """Return the middle of each glyph, in pixels below the baseline."""
        middles = [glyph.middle * (self.value("align") == "baseline") for glyph in glyphs]
        for step in self.steps["layout"]:
            shifts = step.operator.function(len(glyphs), self.rng, **step.values(self.rng))
            shifts = (shifts * self.value("size")).tolist()
            middles = list(map(add, middles, shifts))
        return middles

    def _place_in_line(self, glyphs: Sequence[Glyph]) -> tuple[list[int], int, int]:
        """Return where glyphs begin, the reach of the line, and its width without overlaps."""
        blanks = [0] * len(glyphs)
        for index in range(len(glyphs)):
            if self.rng.random() < self.value("blanks"):
                ink, factor = self._choose_ink(" ")
                blanks[index] = round(raster(*ink).cell[0] * factor)
        total = sum(blanks) + sum(glyph.image.width for glyph in glyphs)
        average = total / len(glyphs)
        x, line, gap, is_of_font = int(self.value("indent") * average), [], 0, self.value("advance")
        for glyph, width in zip(glyphs, blanks, strict=True):
            if width:
                x += width + round(self.value("spacing") * average)
            to_middle, advance = glyph.pen
            line.append(x + round(to_middle - glyph.image.width / 2) * is_of_font)
            gap = round(self.value("spacing") * average)
            x += (round(advance) if is_of_font else glyph.image.width) + gap
        return line, x - gap, max(x - gap, total)

    def _spread(self, glyphs: Sequence[Glyph], width: int) -> list[int]:
        """Return where each glyph begins if each is somewhere in its part of the canvas.

        At the font's own distances the pen starts where the part does. All are moved by the indent,
        in parts.
        """
        part, indent, is_of_font = width / len(glyphs), self.value("indent"), self.value("advance")
        reaches = [self.value("spacing") * part / 2 for _ in glyphs]
        parts = enumerate(zip(glyphs, reaches, strict=True))
        return [
            round(
                (number + indent) * part
                + (glyph.pen[0] if is_of_font else part / 2)
                + self.rng.uniform(-reach, reach)
                - glyph.image.width / 2
            )
            for number, (glyph, reach) in parts
        ]


def paint(image: Image.Image, color: RGB, opacity: float, gain: float) -> Image.Image:
    """Return the colours and opacities (mode RGBA) of a glyph with a coverage (mode L)."""
    shades = _list_shades(color, min(255, int(opacity * 256)), gain)
    pixels = shades.take(np.frombuffer(image.tobytes(), np.uint8))
    return Image.frombuffer("RGBA", image.size, pixels, "raw", "RGBA", 0, 1)


@lru_cache(maxsize=16)
def _list_shades(color: RGB, opacity: int, gain: float) -> NDArray[np.uint32]:
    """Return the pixels RGBA (256,) that a colour becomes at the coverages 0 to 255.

    opacity: 0 to 255. The opacity of a pixel is the luminance of its colour times `gain`.
    """
    channels = _tabulate_shades(opacity).take(color, 0)
    pixels = np.empty((256, 4), np.uint8)
    pixels[:, :3] = channels.T
    pixels[:, 3] = np.minimum(_LUMINANCE @ channels // 65536 * gain, 255)
    return pixels.view(np.uint32)[:, 0]


@lru_cache(maxsize=64)
def _tabulate_shades(opacity: int) -> Mask:
    """Return what each value of a channel becomes at the coverages 0 to 255: (values, coverages).

    The captcha package keeps colours times coverage in 8 bits while it turns and warps a glyph, and
    divides them by the coverage afterwards, so that faint pixels get other colours.
    """
    values = np.arange(256)
    coverage = (values * opacity + 127) // 255
    times_coverage = (2 * coverage + 1) * values[:, None] // 510  # the coverage was rounded down
    shades: Mask = np.minimum(255, 255 * times_coverage // np.maximum(coverage, 1)).astype(np.uint8)
    return shades


def _multiply(second: Matrix, first: Matrix) -> Matrix:
    (a, b, c, d), (e, f, g, h) = second, first
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@lru_cache(maxsize=_KEPT_SHAPES)
def _keep_shape(ink: _Ink, matrix: Matrix) -> Image.Image:
    return transform(raster(*ink).image, *matrix)


def transform(image: Image.Image, a: float, b: float, c: float, d: float) -> Image.Image:
    """Map an image's points (x, y) to (ax + by, cx + dy), about its middle.

    The result is as large as it has to be.
    """
    size = abs(a * d - b * c) ** 0.5
    largest = max(image.size) * max(abs(a), abs(b), abs(c), abs(d))
    check(
        size > _MIN_FACTOR and largest < _MAX_GLYPH,
        "the operators of the design scale, stretch and shear a glyph too far; give them"
        " factors closer to 1",
    )
    shrink = int(1 / size)
    if shrink > 1:  # bilinear sampling alone would skip pixels
        image = image.reduce(shrink)
        a, b, c, d = a * shrink, b * shrink, c * shrink, d * shrink
    width, height = image.size
    reach_x, reach_y = abs(a) * width + abs(b) * height, abs(c) * width + abs(d) * height
    wide = math.ceil((width + reach_x) / 2) - math.floor((width - reach_x) / 2)
    high = math.ceil((height + reach_y) / 2) - math.floor((height - reach_y) / 2)
    determinant = a * d - b * c
    # From the result to the glyph.
    a, b, c, d = d / determinant, -b / determinant, -c / determinant, a / determinant
    left, top = width / 2 - a * wide / 2 - b * high / 2, height / 2 - c * wide / 2 - d * high / 2
    return image.transform(
        (wide, high),
        Image.Transform.AFFINE,
        (a, b, left, c, d, top),
        Image.Resampling.BILINEAR,
    )


def knock_out(placed: Sequence[Glyph], height: int, width: int) -> list[Glyph]:
    """Remove the ink where glyphs overlap."""
    total, kept = np.zeros((height, width), np.int32), []
    windows = [glyph.window(height, width) for glyph in placed]
    for glyph, (where, part) in zip(placed, windows, strict=True):
        total[where] += glyph.mask[part]
    for glyph, (where, part) in zip(placed, windows, strict=True):
        mask = np.zeros_like(glyph.mask)
        mask[part] = np.clip(2 * glyph.mask[part].astype(np.int32) - total[where], 0, 255)
        image = Image.fromarray(mask)
        if glyph.is_colored:
            image = glyph.image.copy()
            image.putalpha(Image.fromarray(mask))
        kept.append(glyph._replace(image=image))
    return kept
