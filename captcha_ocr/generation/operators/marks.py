"""Operators that draw lines, shapes, patterns and letters: masks that the renderer colours."""

import math
import random
import string
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from captcha_ocr.generation.operators.glyphs import blurred, mask_of
from captcha_ocr.generation.operators.registry import (
    Area,
    Color,
    Flag,
    Letters,
    Mask,
    Number,
    Word,
    operator,
)
from captcha_ocr.generation.rendering.rasters import LADDER, raster

_Point = tuple[float, float]
PATHS = ("straight", "across", "upright", "bent", "zigzag", "bezier", "sine", "arc", "text")
_BENDS = {"across": 0, "bent": 1, "zigzag": 3}
_STEPS = 24  # segments of a curve
# The pixels (y, x) of a speck: Pillow draws them as a line two pixels long and three wide.
_SPECK = np.array([(-2, 0), (-1, -1), (-1, 0), (-1, 1), (0, -2), (0, -1), (0, 0), (1, -1)])
_SPECK_REACH = 2  # pixels about its middle
_LETTERS = string.ascii_letters + string.digits
_DRAWN_AT = LADDER[1]  # pixels: these glyphs are kept already


class _Canvas:
    """A mask to draw on; smooth: drawn twice as large and halved, for anti-aliased edges."""

    def __init__(self, area: Area, smooth: bool) -> None:
        self.scale = 2 if smooth else 1
        self.image = Image.new("L", (area.width * self.scale, area.height * self.scale))
        self.draw = ImageDraw.Draw(self.image)

    def line(self, points: Sequence[_Point], width: float) -> None:
        """Draw a line through points (x, y); width in pixels."""
        xy = [(x * self.scale, y * self.scale) for x, y in points]
        joint = "curve" if width >= 3 else None
        self.draw.line(xy, fill=255, width=max(1, round(width * self.scale)), joint=joint)

    def beads(self, points: Sequence[_Point], width: float, distance: float) -> None:
        """Draw discs along a line through points (x, y), so many pixels from one to the next."""
        x, y = np.array(points, float).T
        way = np.concatenate([[0], np.hypot(np.diff(x), np.diff(y)).cumsum()])
        places = np.arange(0, way[-1], distance)
        middles = np.stack([np.interp(places, way, x), np.interp(places, way, y)], axis=1)
        for across, down in middles.tolist():
            self.ellipse(across, down, (width / 2, width / 2))

    def ellipse(
        self, x: float, y: float, radius: _Point, width: float = 0, shape: str = "ellipse"
    ) -> None:
        """Draw an ellipse or a box about (x, y): filled, or a contour of so many pixels."""
        scale, (across, down) = self.scale, radius
        box = [(x - across) * scale, (y - down) * scale, (x + across) * scale, (y + down) * scale]
        fill = None if width else 255
        draw = self.draw.rectangle if shape == "box" else self.draw.ellipse
        draw(box, fill, outline=255, width=max(1, round(width * scale)))

    @property
    def mask(self) -> Mask:
        """What was drawn."""
        image = self.image if self.scale == 1 else self.image.reduce(self.scale)
        return mask_of(image)


@operator(
    "mark",
    count=Number(1, 50, (1, 3), whole=True),
    path=Word(PATHS, {"one_of": ["straight", "across", "bezier", "sine"]}),
    width=Number(0.5, 20, (1, 2), "pixels"),
    length=Number(0, 2000, 0, "pixels"),
    beads=Number(0, 60, 0, "pixels"),
    smooth=Flag(True),
)
def lines(
    area: Area,
    rng: random.Random,
    count: int,
    path: str,
    width: float,
    length: float,
    beads: float,
    smooth: bool,
) -> Mask:
    """Draw lines: straight anywhere, from side to side or from top to bottom, bent, or curved.

    length: above 0 a straight line is up to so many pixels long. beads: above 0 a line is a row of
    discs, so many pixels from one to the next.
    """
    canvas = _Canvas(area, smooth)
    for _ in range(count):
        points = path_points(area, rng, path)
        if length and path == "straight":
            x, y = points[0]
            points[1] = x + rng.uniform(-length, length), y + rng.uniform(-length, length)
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
    if path == "text":
        (_, first), (_, last) = area.middles[0], area.middles[-1]
        return [(0, first), *area.middles, (width, last)]
    left, right = rng.uniform(-0.05, 0.2) * width, rng.uniform(0.8, 1.05) * width
    if path in _BENDS:
        bends = sorted(rng.uniform(0.1, 0.9) * width for _ in range(_BENDS[path]))
        return [(place, rng.uniform(0.1, 0.9) * height) for place in (left, *bends, right)]
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

    canvas = _Canvas(area, smooth=False)
    for _ in range(count):
        left, right = within(0, width_px // 5), within(int(end * width_px), width_px)
        top = within(height // 5, height - height // 5)
        bottom = within(top, height - height // 5)
        angles = within(0, 20), within(160, 200)
        box = [left, top, right, bottom]
        canvas.draw.arc(box, *angles, fill=255, width=max(1, round(width)))
    return canvas.mask


@operator(
    "mark",
    count=Number(1, 100, (4, 20), whole=True),
    radius=Number(0.5, 60, (1, 5), "pixels"),
    ring=Number(0, 20, 0, "pixels"),
    flatness=Number(1, 10, 1),
    shape=Word(("ellipse", "box"), "ellipse"),
    smooth=Flag(True),
)
def discs(
    area: Area,
    rng: random.Random,
    count: int,
    radius: float,
    ring: float,
    flatness: float,
    shape: str,
    smooth: bool,
) -> Mask:
    """Draw discs or boxes anywhere; with a ring above 0 their contours alone, so many pixels wide.

    flatness: the most that one side is longer than the other.
    """
    canvas = _Canvas(area, smooth)
    for _ in range(count):
        size = radius * rng.uniform(0.6, 1)
        sides = [size, size / rng.uniform(1, flatness)]
        rng.shuffle(sides)
        place = rng.uniform(0, area.width), rng.uniform(0, area.height)
        canvas.ellipse(*place, (sides[0], sides[1]), ring, shape)
    return canvas.mask


@operator(
    "mark", share=Number(0, 0.3, (0.003, 0.06)), size=Number(1, 6, (1, 2), "pixels", whole=True)
)
def dots(area: Area, rng: random.Random, share: float, size: int) -> Mask:
    """Draw square dots, which cover a share of the image."""
    count = round(area.height * area.width * share / size**2)
    y, x = _draw_places(rng, count, area.height, area.width)
    mask = np.zeros((area.height + size - 1, area.width + size - 1), np.uint8)
    for down, across in product(range(size), repeat=2):
        mask[y + down, x + across] = 255
    return mask[: area.height, : area.width]


@operator("mark", count=Number(1, 500, (20, 40), whole=True))
def specks(area: Area, rng: random.Random, count: int) -> Mask:
    """Draw specks of eight pixels, like those of the captcha package."""
    wide = area.width + 2 * _SPECK_REACH
    y, x = _draw_places(rng, count, area.height + 1, area.width + 1)
    mask = np.zeros((area.height + 2 * _SPECK_REACH, wide), np.uint8)
    mask.ravel()[(y * wide + x)[:, None] + (_SPECK + _SPECK_REACH) @ (wide, 1)] = 255
    return mask[_SPECK_REACH:-_SPECK_REACH, _SPECK_REACH:-_SPECK_REACH]


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
    mask = np.zeros((area.height, area.width), bool)
    for is_drawn, down, across in ((rows, cosine, -sine), (columns, sine, cosine)):
        places = (y * down + x * across) / pitch + rng.random()
        if is_drawn:  # their fractions: numpy's % is slow
            mask |= places - np.floor(places) < width / pitch
    return mask.astype(np.uint8) * 255


@operator(
    "mark",
    shape=Word(("circle", "ellipse", "box"), {"one_of": ["circle", "ellipse", "box"]}),
    pitch=Number(3, 60, (5, 12), "pixels"),
    width=Number(1, 10, 1, "pixels"),
)
def rings(area: Area, rng: random.Random, shape: str, pitch: float, width: float) -> Mask:
    """Draw circles, ellipses or boxes within each other, about the middle of the image."""
    canvas = _Canvas(area, smooth=False)
    draw_ring = canvas.draw.rectangle if shape == "box" else canvas.draw.ellipse
    flatness = 1 if shape == "circle" else area.height / area.width
    x, y = area.width / 2, area.height / 2
    for number in range(1, int(max(x, y) * 1.4 / pitch) + 1):
        across, down = number * pitch, number * pitch * flatness
        box = [x - across, y - down, x + across, y + down]
        draw_ring(box, outline=255, width=max(1, round(width)))
    return canvas.mask


@operator(
    "mark",
    arms=Number(0, 100, (1, 12), whole=True),
    pitch=Number(3, 60, (6, 14), "pixels"),
    width=Number(1, 10, 1, "pixels", whole=True),
)
def spiral(area: Area, rng: random.Random, arms: int, pitch: float, width: int) -> Mask:
    """Draw a spiral of some arms about any place; pitch: the pixels from one arm to the next."""
    y, x = np.ogrid[: area.height, : area.width]
    y, x = y - rng.uniform(0, area.height), x - rng.uniform(0, area.width)
    along = np.hypot(y, x) / pitch + np.arctan2(y, x) / (2 * math.pi) * arms + rng.random()
    return (along % 1 * pitch < width).astype(np.uint8) * 255


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
    return mask_of(small.resize((area.width, area.height), Image.Resampling.BICUBIC))


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
    count = count or area.length
    masks = np.zeros((count, area.height, area.width), np.uint8)
    borders = np.linspace(0, area.width, count + 1).astype(int)
    for mask, (left, right) in zip(masks, pairwise(borders), strict=True):
        mask[:, left:right] = 255
    return list(masks)


@operator("mark", width=Number(1, 20, (1, 4), "pixels", whole=True))
def border(area: Area, rng: random.Random, width: int) -> Mask:
    """Draw a frame along the border of the image."""
    mask = np.full((area.height, area.width), 255, np.uint8)
    mask[width:-width, width:-width] = 0
    return mask


@operator(
    "mark",
    count=Number(1, 60, (4, 20), whole=True),
    size=Number(4, 100, (8, 20), "pixels", whole=True),
    letters=Letters(_LETTERS),
)
def decoys(area: Area, rng: random.Random, count: int, size: int, letters: str) -> Mask:
    """Scatter small letters that are not part of the text."""
    canvas = Image.new("L", (area.width, area.height))
    for _ in range(count):
        x, y = rng.randrange(area.width), rng.randrange(area.height)
        _place_letter(canvas, area.font, size, x, y, rng, letters)
    return mask_of(canvas)


@operator("mark", sigma=Number(0, 20, (2, 5), "pixels"))
def ghost(area: Area, rng: random.Random, sigma: float) -> Mask:
    """Draw one large blurred letter that is not part of the text."""
    canvas = Image.new("L", (area.width, area.height))
    size, x = round(area.height * 1.2), rng.randrange(area.width)
    _place_letter(canvas, area.font, size, x, area.height // 2, rng)
    return blurred(mask_of(canvas), sigma)


@operator("mark", size=Number(5, 40, (6, 9), "pixels", whole=True))
def small_print(area: Area, rng: random.Random, size: int) -> Mask:
    """Write a line of small letters along the lower border."""
    canvas, x = Image.new("L", (area.width, area.height)), size
    while x < area.width - size:
        if rng.random() < 0.85:  # the rest are blanks
            _place_letter(canvas, area.font, size, x, area.height - size // 2 - 1, rng)
        x += size * 2 // 3
    return mask_of(canvas)


def _draw_places(
    rng: random.Random, count: int, height: int, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the y and x of so many pixels, all at once, which is quicker."""
    bits = np.frombuffer(rng.randbytes(8 * count), "<u4").astype(np.int64)
    return bits[:count] * height >> 32, bits[count:] * width >> 32


def _place_letter(
    canvas: Image.Image,
    font: str,
    size: int,
    x: int,
    y: int,
    rng: random.Random,
    letters: str = _LETTERS,
) -> None:
    mask = raster(font, _DRAWN_AT, rng.choice(letters), margin=1).image
    width, height = (max(1, round(side * size / _DRAWN_AT)) for side in mask.size)
    canvas.paste(255, (x - width // 2, y - height // 2), mask.resize((width, height)))
