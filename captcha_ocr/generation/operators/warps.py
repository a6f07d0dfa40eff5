"""Operators that bend the whole image.

Where each pixel comes from, as shifts of y and x in pixels.
"""

import math
import random

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captcha_ocr.generation.operators.registry import Area, operator
from captcha_ocr.generation.operators.values import Number

_Shifts = NDArray[np.float32]  # (2, height, width): of y and of x

_AMPLITUDE = Number(0, 30, (1, 4), "pixels")
_WAVELENGTH = Number(4, 1000, (18, 300), "pixels")


@operator("warp", x=_AMPLITUDE, y=_AMPLITUDE, wavelength=_WAVELENGTH)
def sine(area: Area, rng: random.Random, x: float, y: float, wavelength: float) -> _Shifts:
    """Bend the image along sines: rows move sideways by up to x, columns up and down by up to y."""
    shifts = np.empty((2, area.height, area.width), np.float32)
    turn = 2 * math.pi / wavelength
    phases = rng.uniform(0, 2 * math.pi), rng.uniform(0, 2 * math.pi)
    shifts[0] = y * np.sin(np.arange(area.width) * turn + phases[0])
    shifts[1] = (x * np.sin(np.arange(area.height) * turn * 2 + phases[1]))[:, None]
    return shifts


@operator("warp", sigma=Number(0, 10, (0.8, 2.6), "pixels"), rows=Number(1, 16, 3, whole=True))
def elastic(area: Area, rng: random.Random, sigma: float, rows: int) -> _Shifts:
    """Move the knots of a grid of some rows at random, and the pixels between them smoothly."""
    columns = max(2, round(rows * area.width / area.height))
    noise, size = np.random.default_rng(rng.getrandbits(64)), (area.width, area.height)
    knots = noise.standard_normal((2, rows + 1, columns + 1), np.float32) * sigma
    planes = [Image.fromarray(plane).resize(size, Image.Resampling.BICUBIC) for plane in knots]
    return np.stack([*map(np.asarray, planes)])


@operator("warp", strength=Number(-1, 1, (-0.35, 0.35)))
def lens(area: Area, rng: random.Random, strength: float) -> _Shifts:
    """Magnify the middle of the image like a lens; a negative strength shrinks it."""
    y, x, falloff = around_middle(area)
    return np.stack([-strength * falloff * y, -strength * falloff * x]).astype(np.float32)


@operator("warp", angle=Number(-180, 180, (-30, 30), "degrees"))
def swirl(area: Area, rng: random.Random, angle: float) -> _Shifts:
    """Turn the middle of the image clockwise, and the rest ever less towards its border."""
    y, x, falloff = around_middle(area)
    turn = math.radians(angle) * falloff
    cosine, sine_ = np.cos(turn), np.sin(turn)
    return np.stack([y * cosine - x * sine_ - y, y * sine_ + x * cosine - x]).astype(np.float32)


@operator("warp", angle=Number(-180, 180, (-10, 10), "degrees"))
def turn(area: Area, rng: random.Random, angle: float) -> _Shifts:
    """Turn the whole image about its middle, counterclockwise."""
    y, x, _ = around_middle(area)
    cosine, sine_ = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return np.stack([x * sine_ + y * cosine - y, x * cosine - y * sine_ - x]).astype(np.float32)


@operator(
    "warp", x=Number(0, 20, (1, 3), "pixels"), rows=Number(1, 20, (1, 3), "pixels", whole=True)
)
def ripple(area: Area, rng: random.Random, x: float, rows: int) -> _Shifts:
    """Move bands of so many rows sideways, each at random by up to x pixels."""
    bands = [rng.uniform(-x, x) for _ in range(area.height // rows + 1)]
    shifts = np.zeros((2, area.height, area.width), np.float32)
    shifts[1] = np.repeat(bands, rows)[: area.height, None]
    return shifts


def around_middle(
    area: Area,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return y and x from the middle in pixels, and a weight: 1 there, 0 at the border."""
    middle = area.height / 2 - 0.5, area.width / 2 - 0.5
    y = (np.arange(area.height, dtype=np.float32) - middle[0])[:, None]
    x = (np.arange(area.width, dtype=np.float32) - middle[1])[None, :]
    radius = np.hypot(y / (area.height / 2), x / (area.width / 2))
    return y, x, np.clip(1 - radius, 0, 1) ** 2 * (1 + 2 * np.clip(radius, 0, 1))
