"""Operators that move the glyphs of a text up and down. All shifts are shares of the font size."""

import math
import random

import numpy as np
from numpy.typing import NDArray

from captcha_ocr.generation.operators.registry import operator
from captcha_ocr.generation.operators.values import Number

_Shifts = NDArray[np.float64]  # of y, for each glyph; positive is down


@operator("layout", reach=Number(0, 1, (0, 0.2)))
def jitter(length: int, rng: random.Random, reach: float) -> _Shifts:
    """Move each glyph up or down at random, by up to this share of the font size."""
    return np.array([rng.uniform(-reach, reach) for _ in range(length)])


@operator("layout", rise=Number(-1, 1, (-0.25, 0.25)))
def slope(length: int, rng: random.Random, rise: float) -> _Shifts:
    """Let the line of text rise from its first glyph to its last."""
    return rise * (0.5 - positions(length))


@operator("layout", height=Number(-1, 1, (-0.25, 0.25)))
def arch(length: int, rng: random.Random, height: float) -> _Shifts:
    """Bend the line of text to an arch; a negative height makes it hang."""
    return height * (0.5 - np.sin(math.pi * positions(length)))


@operator("layout", height=Number(0, 1, (0.1, 0.3)), period=Number(2, 16, (2, 6), "characters"))
def wave(length: int, rng: random.Random, height: float, period: float) -> _Shifts:
    """Lay the line of text on a wave."""
    return height / 2 * np.sin(2 * math.pi * (np.arange(length) / period + rng.random()))


def positions(length: int) -> NDArray[np.float64]:
    """Return where the glyphs of a text stand along it: 0 is the first and 1 the last."""
    return np.linspace(0, 1, length) if length > 1 else np.array([0.5])
