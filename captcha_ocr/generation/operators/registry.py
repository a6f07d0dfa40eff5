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
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Area(NamedTuple):
    """The canvas of an operator, in pixels, the characters of its text, and a font's path."""

    height: int
    width: int
    length: int
    font: str


@dataclass(frozen=True)
class Operator:
    """An operator. fields: the fields that a design may give it, with what each takes.

    The function gets what its stage works on, a random generator, and a value for each field of its
    own. Three operators have seven parameters for this reason: a group of fields would be a second
    name for what a design names already.

    What each stage works on, and what it returns:

    - shape: nothing; (a, b, c, d), which map a glyph's points (x, y) to (ax + by, cx + dy).
    - corners: the image of a glyph, its coverage (mode L), and the size (width, height) of its cell
      in the font; an image.
    - stroke: the mask of a glyph; a mask, which may be larger by the same margin on all sides.
    - layout: the number of characters; (n,) shifts of the glyphs downwards, in shares of the font
      size.
    - mark: an Area; a mask, or a list of masks that may get different colours.
    - under: the mask of the text on its canvas; a mask that is drawn under the text.
    - inversion: an Area; a mask of the pixels whose colours are inverted.
    - warp: an Area; where each pixel comes from: shifts (2, height, width), of y and of x.
    - pixels: the pixels; the pixels.
    """

    name: str
    stage: Stage
    function: Callable[..., Any]
    fields: dict[str, Kind]


OPERATORS: dict[str, Operator] = {}
_COLORED = {"color": Color("text"), "opacity": Number(0, 1, 1)}
COMMON: dict[Stage, dict[str, Kind]] = {
    "mark": {**_COLORED, "behind": Flag(False)},
    "under": {**_COLORED, "per_glyph": Flag(False)},
}


def operator(stage: Stage, **fields: Kind) -> Callable[[_Function], _Function]:
    """Enter a function into the table of operators under its own name.

    fields: its own ones. To them come those that all operators of its stage have, and
    `color_per_item` for marks of several items.
    """

    def enter(function: _Function) -> _Function:
        common = COMMON.get(stage, {})
        if stage == "mark" and {"count", "share"} & fields.keys():
            common = {**common, "color_per_item": Flag(False)}
        name = function.__name__
        OPERATORS[name] = Operator(name, stage, function, {**common, **fields})
        return function

    return enter
