"""The table of operators.

What each one is called, what it takes, and at which step of a drawing it works.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from captcha_ocr.generation.operators.values import Color, Flag, Kind, Number

Stage = Literal[
    "shape", "corners", "stroke", "layout", "mark", "under", "inversion", "warp", "pixels"
]
Mask = NDArray[np.uint8]  # coverage: 0 is nothing, 255 is covered
Pixels = NDArray[np.uint8]  # (height, width, 3)
Function = TypeVar("Function", bound=Callable[..., Any])


class Area(NamedTuple):
    """The canvas of an operator, in pixels, the characters of its text, and a font's path."""

    height: int
    width: int
    length: int
    font: str


@dataclass(frozen=True)
class Operator:
    """An operator. fields: the fields that a design may give it, with what each takes.

    The function gets what its stage works on, a random generator, and a value for each of its
    parameters:

    - shape: a rng alone; returns (a, b, c, d), which map a glyph's points (x, y) to (ax + by, cx +
    dy). - corners: the image of a glyph, its coverage (mode L), and the size (width, height) of its
    cell in the font; returns an image. - stroke: the mask of a glyph; returns a mask, which may be
    larger by the same margin on both sides. - layout: the number of characters; returns (n,) shifts
    of the glyphs downwards, in shares of the font size. - mark: an Area; returns a mask, or a list
    of masks that may get different colours. - under: the mask of the text on its canvas; returns a
    mask that is drawn under the text. - inversion: an Area; returns a mask of the pixels whose
    colours are inverted. - warp: an Area; returns where each pixel comes from: shifts (2, height,
    width), of y and of x. - pixels: the pixels; returns the pixels.
    """

    name: str
    stage: Stage
    function: Callable[..., Any]
    fields: dict[str, Kind]

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").splitlines()[0]


OPERATORS: dict[str, Operator] = {}
COLORED = {"color": Color("text"), "opacity": Number(0, 1, 1)}
COMMON: dict[Stage, dict[str, Kind]] = {
    "mark": {**COLORED, "behind": Flag(False)},
    "under": {**COLORED, "per_glyph": Flag(False)},
}


def operator(stage: Stage, **fields: Kind) -> Callable[[Function], Function]:
    """Enter a function into the table of operators under its own name."""

    def enter(function: Function) -> Function:
        name = function.__name__
        common = COMMON.get(stage, {})
        if stage == "mark" and {"count", "share"} & fields.keys():
            common = {**common, "color_per_item": Flag(False)}
        OPERATORS[name] = Operator(name, stage, function, {**common, **fields})
        return function

    return enter
