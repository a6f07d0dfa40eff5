"""The table of operators, and the values that a design may give to their fields.

A value is fixed, or drawn for each image or glyph. Random designs are many, and to make a message
takes longer than to check a value. So messages are made when needed.
"""

import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from captcha_ocr.data.images import LUMINANCE
from captcha_ocr.errors import UsageError

Stage = Literal[
    "shape", "corners", "stroke", "layout", "mark", "under", "inversion", "warp", "pixels"
]
Mask = NDArray[np.uint8]  # coverage: 0 is nothing, 255 is covered
Pixels = NDArray[np.uint8]  # (height, width, 3)
_Function = TypeVar("_Function", bound=Callable[..., Any])
Draw = Callable[[random.Random], Any]
RGB = tuple[int, int, int]

_EXAMPLE_COLORS = "{red = [0, 90]} or {hue = 210, saturation = 0.5, luminance = [40, 90]}"


class Once(partial[Any]):
    """What draws a value that is the same for all glyphs of an image: see `settle`."""


class Always(partial[Any]):
    """What draws always the same value, its first argument."""


def _always(value: Any) -> Draw:
    return Always(_first, value)


def _first(value: Any, rng: random.Random) -> Any:
    return value


def settle(draws: Mapping[str, Draw], rng: random.Random) -> dict[str, Draw]:
    """Return what draws the values of one image: of {once = ...} always the same one."""
    once = {name: draw for name, draw in draws.items() if isinstance(draw, Once)}
    return {**draws, **{name: _always(draw(rng)) for name, draw in once.items()}}


class Kind(ABC):
    """What a field of a design takes. default: the value of a field that a design leaves out."""

    default: Any

    @cached_property
    def draw_default(self) -> Draw:
        """What draws the default; it is parsed once, since most fields of most designs have it."""
        return self.parse(self.default, "default")

    @abstractmethod
    def parse_one(self, value: Any, field: str) -> Draw:
        """Return a function that draws the value.

        UsageError that names the field if it is malformed.
        """

    def parse(self, value: Any, field: str) -> Draw:
        """Like `parse_choice`, but also take {once = ...}, which is drawn once for an image."""
        if not isinstance(value, dict):
            return self.parse_one(value, field)
        if "once" not in value:
            return self.parse_choice(value, field)
        if len(value) > 1:
            raise UsageError(f"{field}: once must be alone, not {show(value)}")
        return Once(self.parse_choice(value["once"], field))

    def parse_choice(self, value: Any, field: str) -> Draw:
        """Like `parse_one`, but also take {one_of = [...]}, each with the same probability."""
        if not (isinstance(value, dict) and "one_of" in value):
            return self.parse_one(value, field)
        options = value["one_of"]
        if not (len(value) == 1 and isinstance(options, (list, tuple)) and options):
            raise UsageError(
                f"{field}: one_of must be alone and list one value or more, not {show(value)}"
            )
        draws = [self.parse_one(option, field) for option in options]
        return lambda rng: draws[int(rng.random() * len(draws))](rng)


@dataclass(frozen=True)
class Number(Kind):
    """A number, or a range [low, high] in which every number is as likely.

    `whole` admits whole numbers alone, and draws ints.
    """

    low: float
    high: float
    default: Any
    unit: str = ""
    whole: bool = False

    def parse_one(self, value: Any, field: str) -> Draw:
        number = "whole number" if self.whole else "number"
        if not isinstance(value, (list, tuple)):
            if self.holds(value):
                return _always(value)
            forms = "[low, high]"
            if isinstance(value, dict):
                forms += ", {one_of = [...]}, or {once = ...} around it"
            raise UsageError(
                f"{field} must be a {number} of {self.limits} or a range {forms}, not {show(value)}"
            )
        if not (len(value) == 2 and all(map(self.holds, value)) and value[0] <= value[1]):
            raise UsageError(
                f"{field}: a range is [low, high], the lower number first, with {number}s of"
                f" {self.limits}, not {show(value)}"
            )
        low, high = value
        if self.whole:
            return lambda rng: low + int(rng.random() * (high - low + 1))
        return lambda rng: low + rng.random() * (high - low)

    def holds(self, value: Any) -> bool:
        """Tell whether a value is a number within the limits."""
        is_number = type(value) is int or (type(value) is float and not self.whole)
        return is_number and self.low <= value <= self.high

    @property
    def limits(self) -> str:
        """The limits in words."""
        return f"{self.low:,g} to {self.high:,g}{self.unit and ' '}{self.unit}"


@dataclass(frozen=True)
class Word(Kind):
    """One of some words."""

    words: Sequence[str]
    default: Any

    def parse_one(self, value: Any, field: str) -> Draw:
        if value not in self.words:
            is_list = isinstance(value, (list, tuple))
            hint = "; for several write {one_of = [...]}" if is_list else ""
            raise UsageError(f"{field} must be {in_words(self.words)}, not {show(value)}{hint}")
        return _always(value)


@dataclass(frozen=True)
class Letters(Kind):
    """Characters that an operator draws."""

    default: str

    def parse_one(self, value: Any, field: str) -> Draw:
        if not (isinstance(value, str) and value):
            raise UsageError(f"{field} must be characters such as {show(self.default)}")
        return _always(value)


@dataclass(frozen=True)
class Flag(Kind):
    """true or false."""

    default: bool = False

    def parse_one(self, value: Any, field: str) -> Draw:
        if not isinstance(value, bool):
            raise UsageError(f"{field} must be true or false, not {show(value)}")
        return _always(value)


@dataclass(frozen=True)
class Color(Kind):
    """A colour.

    It is #rrggbb, that of text or canvas, or drawn by its channels or by its luminance. What draws
    it returns (red, green, blue), or one of the words.
    """

    default: Any
    words: Sequence[str] = ("text", "canvas")

    def parse_one(self, value: Any, field: str) -> Draw:
        if value in self.words:
            return _always(value)
        if isinstance(value, str) and re.fullmatch("#[0-9a-fA-F]{6}", value):
            return _always(tuple(bytes.fromhex(value[1:])))
        if isinstance(value, dict) and value:
            for kinds, mix in ((_CHANNELS, lambda *rgb: rgb), (_HUE_FIELDS, color_of_luminance)):
                if value.keys() <= kinds.keys():
                    draws = [
                        kind.parse_choice(value.get(name, kind.default), f"{field}.{name}")
                        for name, kind in kinds.items()
                    ]
                    return lambda rng: mix(*(draw(rng) for draw in draws))
        examples = ", ".join(
            ['"#2f4f4f"', *(f'"{word}"' for word in self.words[:1]), _EXAMPLE_COLORS]
        )
        raise UsageError(f"{field} must be a colour such as {examples}, not {show(value)}")


_CHANNELS = dict.fromkeys(("red", "green", "blue"), Number(0, 255, (0, 255), whole=True))
_HUE_FIELDS = {
    "hue": Number(-360, 360, (0, 360), "degrees"),
    "saturation": Number(0, 1, (0, 1)),
    "luminance": Number(0, 255, (0, 255)),
}


def color_of_luminance(hue: float, saturation: float, luminance: float) -> RGB:
    """Return the colour of a hue in degrees, a saturation of 0 to 1 and a luminance of 0 to 255.

    A pure hue that is too dark is mixed with white, one that is too light is darkened.
    """
    sector = hue / 60 % 6
    pure = [min(1.0, max(0.0, abs((sector - shift) % 6 - 3) - 1)) for shift in (0.0, 2.0, 4.0)]
    mixed = [1 - saturation + saturation * channel for channel in pure]
    light = sum(weight * channel for weight, channel in zip(LUMINANCE, mixed, strict=True))
    target = luminance / 255
    if target <= light:
        channels = [channel * target / light for channel in mixed]
    else:
        white = (target - light) / (1 - light)
        channels = [channel + (1 - channel) * white for channel in mixed]
    red, green, blue = (round(255 * channel) for channel in channels)
    return red, green, blue


def in_words(words: Sequence[str]) -> str:
    """Join words as `a, b or c`."""
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]


def show(value: Any) -> str:
    """Show a value of a design in a message as TOML does, or nearly, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except ValueError:
        text = "an integer of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


class Area(NamedTuple):
    """The canvas of an operator, in pixels, the number of its glyphs, and a font's path.

    middles: of the glyphs, (x, y) in pixels, from left to right.
    """

    height: int
    width: int
    length: int
    font: str
    middles: Sequence[tuple[float, float]] = ()


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
        OPERATORS[function.__name__] = Operator(stage, function, {**common, **fields})
        return function

    return enter
