"""Operators that draw lines, patterns and shapes: masks that the renderer colours."""

import math
import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from captcha_ocr.generation.operators.registry import Area, Mask, operator
from captcha_ocr.generation.operators.values import Color, Flag, Number, Word

_Point = tuple[float, float]
PATHS = ("straight", "across", "upright", "bent", "bezier", "sine", "arc")
_STEPS = 24  # segments of a curve
_SPECK_REACH = 4  # pixels about its middle


class _Canvas:
    """A mask to draw on; smooth: drawn twice as large and halved, for anti-aliased edges."""

    def __init__(self, area: Area, smooth: bool) -> None:
        self.scale = 2 if smooth else 1
        self.image = Image.new("L", (area.width * self.scale, area.height * self.scale))
        self.draw = ImageDraw.Draw(self.image)

    def line(self, points: Sequence[_Point], width: float) -> None:
        """Draw a line through points (x, y); width in pixels."""
        scale = self.scale
        xy = [(x * scale, y * scale) for x, y in points]
        self.draw.line(
            xy, fill=255, width=max(1, round(width * scale)), joint="curve" if width >= 3 else None
        )

    def beads(self, points: Sequence[_Point], width: float, distance: float) -> None:
        """Draw discs along a line through points (x, y), so many pixels from one to the next."""
        x, y = np.array(points, float).T
        way = np.concatenate([[0], np.hypot(np.diff(x), np.diff(y)).cumsum()])
        places = np.arange(0, way[-1], distance)
        for each in zip(
            np.interp(places, way, x).tolist(), np.interp(places, way, y).tolist(), strict=True
        ):
            self.ellipse(*each, (width / 2, width / 2))

    def ellipse(self, x: float, y: float, radius: _Point, width: float = 0) -> None:
        """Draw an ellipse about (x, y): filled, or a ring of so many pixels."""
        scale, (across, down) = self.scale, radius
        box = [(x - across) * scale, (y - down) * scale, (x + across) * scale, (y + down) * scale]
        if width:
            self.draw.ellipse(box, outline=255, width=max(1, round(width * scale)))
        else:
            self.draw.ellipse(box, fill=255)

    @property
    def mask(self) -> Mask:
        """What was drawn."""
        return np.asarray(self.image if self.scale == 1 else self.image.reduce(self.scale))


@operator(
    "mark",
    count=Number(1, 50, (1, 3), whole=True),
    path=Word(PATHS, {"one_of": ["straight", "across", "bezier", "sine"]}),
    width=Number(0.5, 20, (1, 2), "pixels"),
    beads=Number(0, 60, 0, "pixels"),
    smooth=Flag(True),
)
def lines(
    area: Area, rng: random.Random, count: int, path: str, width: float, beads: float, smooth: bool
) -> Mask:
    """Draw lines.

    Straight anywhere, from side to side or from top to bottom, with a bend, or curved.

    beads: above 0 a line is a row of discs, so many pixels from one to the next.
    """
    canvas = _Canvas(area, smooth)
    for _ in range(count):
        points = path_points(area, rng, path)
        if beads:
            canvas.beads(points, width, max(1, beads))
        else:
            canvas.line(points, width)
    return canvas.mask


def path_points(area: Area, rng: random.Random, path: str) -> list[_Point]:
    """Return the points (x, y) of a random line."""
    width, height = area.width, area.height
    if path == "straight":
        return [(rng.uniform(0, width), rng.uniform(0, height)) for _ in range(2)]
    if path == "upright":
        return [(rng.uniform(0, width), 0), (rng.uniform(0, width), height)]
    left, right = rng.uniform(-0.05, 0.2) * width, rng.uniform(0.8, 1.05) * width
    if path == "bent":
        bend = rng.uniform(0.2, 0.8) * width
        return [(place, rng.uniform(0.1, 0.9) * height) for place in (left, bend, right)]
    if path == "across":
        return [(left, rng.uniform(0.1, 0.9) * height), (right, rng.uniform(0.1, 0.9) * height)]
    steps = np.linspace(0, 1, _STEPS + 1)
    if path == "bezier":
        y = np.array([rng.uniform(-0.1, 1.1) * height for _ in range(4)])
        x = np.array([left, rng.uniform(0.1, 0.6) * width, rng.uniform(0.4, 0.9) * width, right])
        basis = np.stack(
            [(1 - steps) ** 3, 3 * steps * (1 - steps) ** 2, 3 * steps**2 * (1 - steps), steps**3]
        )
        return list(zip((x @ basis).tolist(), (y @ basis).tolist(), strict=True))
    x = left + (right - left) * steps
    middle = rng.uniform(0.3, 0.7) * height
    if path == "sine":
        phase, turns = rng.uniform(0, 2 * math.pi), rng.uniform(0.5, 2.5)
        y = middle + rng.uniform(0.1, 0.35) * height * np.sin(phase + 2 * math.pi * turns * steps)
    else:
        y = middle + rng.uniform(-0.8, 0.8) * height * (0.5 - np.sin(math.pi * steps))
    return list(zip(x.tolist(), y.tolist(), strict=True))


@operator(
    "mark",
    count=Number(1, 5, 1, whole=True),
    width=Number(0.5, 10, 1, "pixels"),
    end=Number(0.2, 1, 0.2),
)
def arc(area: Area, rng: random.Random, count: int, width: float, end: float) -> Mask:
    """Draw arcs that begin in the left fifth of the image, like those of the captcha package.

    end: the least that they reach to the right, in shares of the width.
    """
    width_px, height = area.width, area.height

    def within(low: int, high: int) -> int:  # like rng.randint, in a third of the time
        return low + int(rng.random() * (high - low + 1))

    image = Image.new("L", (width_px, height))
    draw = ImageDraw.Draw(image)
    for _ in range(count):
        left, right = within(0, width_px // 5), within(int(end * width_px), width_px)
        top = within(height // 5, height - height // 5)
        bottom = within(top, height - height // 5)
        angles = within(0, 20), within(160, 200)
        draw.arc([left, top, right, bottom], *angles, fill=255, width=max(1, round(width)))
    return np.asarray(image)


@operator(
    "mark",
    count=Number(1, 100, (4, 20), whole=True),
    radius=Number(0.5, 60, (1, 5), "pixels"),
    ring=Number(0, 20, 0, "pixels"),
    smooth=Flag(True),
)
def discs(
    area: Area, rng: random.Random, count: int, radius: float, ring: float, smooth: bool
) -> Mask:
    """Draw discs anywhere; with a ring above 0 their contours alone, so many pixels wide."""
    canvas = _Canvas(area, smooth)
    for _ in range(count):
        size = radius * rng.uniform(0.6, 1)
        canvas.ellipse(rng.uniform(0, area.width), rng.uniform(0, area.height), (size, size), ring)
    return canvas.mask


@operator(
    "mark", share=Number(0, 0.3, (0.003, 0.06)), size=Number(1, 6, (1, 2), "pixels", whole=True)
)
def dots(area: Area, rng: random.Random, share: float, size: int) -> Mask:
    """Draw square dots, which cover a share of the image."""
    count = round(area.height * area.width * share / size**2)
    source = np.random.default_rng(rng.getrandbits(64))
    y, x = source.integers(0, area.height, count), source.integers(0, area.width, count)
    mask = np.zeros((area.height + size - 1, area.width + size - 1), np.uint8)
    for down in range(size):
        for across in range(size):
            mask[y + down, x + across] = 255
    return mask[: area.height, : area.width]


@operator("mark", count=Number(1, 500, (20, 40), whole=True))
def specks(area: Area, rng: random.Random, count: int) -> Mask:
    """Draw specks of three pixels by two or three, like those of the captcha package."""
    wide, draw = area.width + 2 * _SPECK_REACH, rng.random
    rows, columns = area.height + 1, area.width + 1
    places = [int(draw() * rows) * wide + int(draw() * columns) for _ in range(count)]
    down, across = speck()
    mask = np.zeros((area.height + 2 * _SPECK_REACH, wide), np.uint8)
    mask.ravel()[
        np.array(places)[:, None] + (down + _SPECK_REACH) * wide + across + _SPECK_REACH
    ] = 255
    return mask[_SPECK_REACH:-_SPECK_REACH, _SPECK_REACH:-_SPECK_REACH]


@cache
def speck() -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the pixels of a speck, which Pillow draws as a line two pixels long and three wide.

    Shifts of y and x.
    """
    image = Image.new("L", (4 * _SPECK_REACH, 4 * _SPECK_REACH))
    middle = 2 * _SPECK_REACH
    ImageDraw.Draw(image).line(((middle, middle), (middle - 1, middle - 1)), fill=255, width=3)
    rows, columns = np.nonzero(np.asarray(image))
    return rows - middle, columns - middle


@operator(
    "mark",
    pitch=Number(3, 60, (6, 18), "pixels"),
    width=Number(1, 10, 1, "pixels", whole=True),
    angle=Number(-90, 90, {"one_of": [0, (-30, 30)]}, "degrees"),
    rows=Flag(True),
    columns=Flag(True),
)
def grid(
    area: Area,
    rng: random.Random,
    pitch: float,
    width: int,
    angle: float,
    rows: bool,
    columns: bool,
) -> Mask:
    """Draw a grid, or parallel lines, through the whole image."""
    y, x = np.ogrid[: area.height, : area.width]
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    down, across = (
        y * cosine - x * sine + rng.uniform(0, pitch),
        x * cosine + y * sine + rng.uniform(0, pitch),
    )
    mask = np.zeros((area.height, area.width), bool)
    if rows:
        mask |= down % pitch < width
    if columns:
        mask |= across % pitch < width
    return mask.astype(np.uint8) * 255


@operator(
    "mark",
    shape=Word(("circle", "ellipse", "box"), {"one_of": ["circle", "ellipse", "box"]}),
    pitch=Number(3, 60, (5, 12), "pixels"),
    width=Number(1, 10, 1, "pixels"),
)
def rings(area: Area, rng: random.Random, shape: str, pitch: float, width: float) -> Mask:
    """Draw circles, ellipses or boxes within each other, about the middle of the image."""
    canvas = _Canvas(area, False)
    x, y = area.width / 2, area.height / 2
    for number in range(1, int(max(x, y) * 1.4 / pitch) + 1):
        across = down = number * pitch
        if shape != "circle":
            down *= area.height / area.width
        if shape != "box":
            canvas.ellipse(x, y, (across, down), width)
        else:
            box = [(x - across, y - down), (x + across, y + down)]
            canvas.draw.rectangle(box, outline=255, width=max(1, round(width)))
    return canvas.mask


@operator(
    "mark",
    count=Number(1, 100, (5, 30), whole=True),
    width=Number(0.5, 6, 1, "pixels"),
    smooth=Flag(True),
)
def hatching(area: Area, rng: random.Random, count: int, width: float, smooth: bool) -> Mask:
    """Draw many thin strokes of about one direction."""
    canvas, angle = _Canvas(area, smooth), rng.uniform(0, math.pi)
    for _ in range(count):
        turn, reach = angle + rng.uniform(-0.2, 0.2), rng.uniform(0.2, 1) * area.height
        x, y = rng.uniform(0, area.width), rng.uniform(0, area.height)
        across, down = reach * math.cos(turn), reach * math.sin(turn)
        canvas.line([(x - across, y - down), (x + across, y + down)], width)
    return canvas.mask


@operator(
    "mark",
    pattern=Word(("dots", "chevrons", "checks"), {"one_of": ["dots", "chevrons", "checks"]}),
    pitch=Number(2, 40, (4, 10), "pixels", whole=True),
)
def texture(area: Area, rng: random.Random, pattern: str, pitch: int) -> Mask:
    """Cover the image with a regular pattern: dots, chevrons or checks."""
    y, x = np.ogrid[: area.height, : area.width]
    if pattern == "dots":
        mask = (y % pitch < max(1, pitch // 4)) & (x % pitch < max(1, pitch // 4))
    elif pattern == "chevrons":
        mask = (y + abs(x % (2 * pitch) - pitch)) % pitch < max(1, pitch // 4)
    else:
        mask = (y // pitch + x // pitch) % 2 == 0
    return mask.astype(np.uint8) * 255


@operator("mark", cells=Number(1, 16, (3, 8), whole=True), contrast=Number(0.2, 4, (1, 2)))
def blobs(area: Area, rng: random.Random, cells: int, contrast: float) -> Mask:
    """Cover the image with soft clouds, about so many of them along its height."""
    across = max(2, round(cells * area.width / area.height))
    noise = np.random.default_rng(rng.getrandbits(64)).random((cells + 1, across + 1), np.float32)
    coverage = np.clip((noise - 0.5) * np.float32(contrast) + 0.5, 0, 1) * 255
    small = Image.fromarray(coverage.astype(np.uint8))
    return np.asarray(small.resize((area.width, area.height), Image.Resampling.BICUBIC))


@operator("mark", angle=Number(-180, 180, (-180, 180), "degrees"))
def gradient(area: Area, rng: random.Random, angle: float) -> Mask:
    """Fade into a colour across the image.

    An angle of 0 fades to the right, one of 90 downwards.
    """
    y, x = np.ogrid[-1 : 1 : area.height * 1j, -1 : 1 : area.width * 1j]
    across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return ((x * across + y * down) / (abs(across) + abs(down)) * 127.5 + 127.5).astype(np.uint8)


@operator(
    "mark",
    count=Number(0, 16, 0, whole=True),
    color=Color({"luminance": (60, 220)}),
    color_per_item=Flag(True),
)
def tiles(area: Area, rng: random.Random, count: int) -> list[Mask]:
    """Part the image into tiles of different colours, side by side.

    A count of 0 makes one for each character.
    """
    borders = np.linspace(0, area.width, (count or area.length) + 1).astype(int)
    masks = []
    for left, right in pairwise(borders):
        mask = np.zeros((area.height, area.width), np.uint8)
        mask[:, left:right] = 255
        masks.append(mask)
    return masks


@operator("mark", width=Number(1, 20, (1, 4), "pixels", whole=True))
def border(area: Area, rng: random.Random, width: int) -> Mask:
    """Draw a frame along the border of the image."""
    mask = np.full((area.height, area.width), 255, np.uint8)
    mask[width:-width, width:-width] = 0
    return mask
