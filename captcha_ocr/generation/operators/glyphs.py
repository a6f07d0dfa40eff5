"""Operators on glyphs: their geometry (shape, corners), their strokes, and heights (layout).

Also those that draw under the text, each from the mask of the text, or of one glyph.
"""

import math
import random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from captcha_ocr.generation.operators.registry import Flag, Mask, Number, Word, operator

Matrix = tuple[float, float, float, float]
_SHIFT = Number(-20, 20, (-3, 3), "pixels", whole=True)
_Heights = NDArray[np.float64]  # shifts of y in shares of the font size; positive is down


@operator("shape", angle=Number(-180, 180, (-15, 15), "degrees"))
def rotation(rng: random.Random, angle: float) -> Matrix:
    """Turn each glyph, counterclockwise, by whole degrees."""
    # So there are few turned glyphs, which are kept.
    turn = math.radians(round(angle))
    cosine, sine = math.cos(turn), math.sin(turn)
    return cosine, sine, -sine, cosine  # y points down


@operator("shape", factor=Number(0.1, 4, (0.8, 1.2)))
def scale(rng: random.Random, factor: float) -> Matrix:
    """Enlarge or shrink each glyph."""
    return factor, 0.0, 0.0, factor


@operator("shape", factor=Number(0.25, 4, (0.7, 1.4)))
def stretch(rng: random.Random, factor: float) -> Matrix:
    """Stretch each glyph sideways, or squeeze it."""
    return factor, 0.0, 0.0, 1.0


@operator("shape", factor=Number(-1, 1, (-0.35, 0.35)), rise=Number(-0.9, 0.9, 0))
def shear(rng: random.Random, factor: float, rise: float) -> Matrix:
    """Slant each glyph: its top moves to the right by this share of its height.

    rise: its right side moves up by this share of its width.
    """
    return 1.0, -factor, -rise, 1.0


@operator(
    "corners",
    x=Number(0, 0.5, (0, 0.2)),
    y=Number(0, 0.5, (0, 0.2)),
    fill=Flag(False),
    sampling=Word(("smooth", "nearest"), "smooth"),
)
def corners(
    image: Image.Image,
    cell: tuple[int, int],
    rng: random.Random,
    x: float,
    y: float,
    fill: bool,
    sampling: str,
) -> Image.Image:
    """Move the corners of each glyph's box by up to so much of its width and height.

    fill: first stretch the glyph to its cell in the font, (width, height). The captcha package does
    both.
    """
    width, height = cell if fill else image.size
    x1, x2 = int(rng.uniform(-x, x) * width), int(rng.uniform(-x, x) * width)
    y1, y2 = int(rng.uniform(-y, y) * height), int(rng.uniform(-y, y) * height)
    wide, high = width + abs(x1) + abs(x2), height + abs(y1) + abs(y2)
    # From the top left, counterclockwise.
    quad = (x1, y1, -x1, high - y2, wide + x2, high + y2, wide - x2, -y1)
    method = Image.Resampling.NEAREST if sampling == "nearest" else Image.Resampling.BILINEAR
    return image.resize((wide, high)).transform((width, height), Image.Transform.QUAD, quad, method)


@operator("stroke", width=Number(0.5, 10, (1, 2), "pixels"))
def thicken(mask: Mask, rng: random.Random, width: float) -> Mask:
    """Make the strokes of each glyph wider, on each side by half of so many pixels."""
    return dilated(mask, width / 2)


@operator("stroke", width=Number(0.5, 10, (0.5, 1.5), "pixels"))
def thin(mask: Mask, rng: random.Random, width: float) -> Mask:
    """Make the strokes of each glyph narrower, on each side by half of so many pixels."""
    return eroded(mask, width / 2)


@operator("stroke", width=Number(0.5, 10, (1, 2), "pixels"))
def outline(mask: Mask, rng: random.Random, width: float) -> Mask:
    """Draw the contour of each glyph alone, as a line of so many pixels."""
    outer = dilated(mask, width / 2)
    inner = _pad(eroded(mask, width / 2), math.ceil(width / 2) - 1)  # which has a margin of 1
    return outer - np.minimum(outer, inner)


@operator(
    "stroke", share=Number(0, 0.6, (0.1, 0.3)), size=Number(1, 8, (1, 2), "pixels", whole=True)
)
def pits(mask: Mask, rng: random.Random, share: float, size: int) -> Mask:
    """Make holes in the fill of each glyph.

    Squares of so many pixels, which cover a share of it.
    """
    noise = np.random.default_rng(rng.getrandbits(64))
    height, width = mask.shape
    kept = noise.random((height // size + 1, width // size + 1), np.float32) >= share
    return mask * kept.repeat(size, 0).repeat(size, 1)[:height, :width]


@operator(
    "stroke",
    pitch=Number(2, 20, (3, 4), "pixels", whole=True),
    gap=Number(1, 10, 1, "pixels", whole=True),
    angle=Number(0, 90, 0, "degrees"),
)
def stripes(mask: Mask, rng: random.Random, pitch: int, gap: int, angle: float) -> Mask:
    """Cut stripes out of each glyph: a gap every so many pixels; across at an angle of 0."""
    y, x = np.ogrid[: mask.shape[0], : mask.shape[1]]
    along = y * math.cos(math.radians(angle)) + x * math.sin(math.radians(angle))
    return mask * (along % pitch >= min(gap, pitch - 1))


@operator("stroke", pitch=Number(2, 12, (3, 5), "pixels", whole=True))
def dotted(mask: Mask, rng: random.Random, pitch: int) -> Mask:
    """Draw each glyph as a pattern of round dots, one every so many pixels."""
    y, x = np.ogrid[: mask.shape[0], : mask.shape[1]]
    distance = np.hypot(y % pitch - (pitch - 1) / 2, x % pitch - (pitch - 1) / 2)
    return (mask * np.clip(pitch * 0.45 + 0.5 - distance, 0, 1)).astype(np.uint8)


@operator(
    "stroke",
    pitch=Number(3, 20, (3, 4), "pixels"),
    width=Number(0.5, 5, 0.7, "pixels"),
    angle=Number(-90, 90, 0, "degrees"),
)
def squares(mask: Mask, rng: random.Random, pitch: float, width: float, angle: float) -> Mask:
    """Build each glyph of hollow squares: of those of which it covers a third."""
    y, x = np.ogrid[: mask.shape[0], : mask.shape[1]]
    turn = math.radians(angle)
    across = (x * math.cos(turn) + y * math.sin(turn)) / pitch
    down = (y * math.cos(turn) - x * math.sin(turn)) / pitch
    across, down = across - across.min(), down - down.min()
    index = (down.astype(int) * (int(across.max()) + 1) + across.astype(int)).ravel()
    covered = np.bincount(index, mask.ravel()) >= 255 / 3 * np.bincount(index).clip(1)
    to_side = np.minimum(np.abs(across - np.rint(across)), np.abs(down - np.rint(down))) * pitch
    lines = 255 * np.clip((width + 1) / 2 - to_side, 0, 1)
    built: Mask = (lines * covered[index].reshape(mask.shape)).astype(np.uint8)
    return built


@operator("stroke", level=Number(1, 255, 128, whole=True))
def threshold(mask: Mask, rng: random.Random, level: int) -> Mask:
    """Draw each glyph without anti-aliasing.

    A pixel is covered if its coverage reaches the level.
    """
    return (mask >= level) * np.uint8(255)


@operator("layout", reach=Number(0, 1, (0, 0.2)))
def jitter(length: int, rng: random.Random, reach: float) -> _Heights:
    """Move each glyph up or down at random, by up to this share of the font size."""
    return np.array([rng.uniform(-reach, reach) for _ in range(length)])


@operator("layout", rise=Number(-1, 1, (-0.25, 0.25)))
def slope(length: int, rng: random.Random, rise: float) -> _Heights:
    """Let the line of text rise from its first glyph to its last."""
    return rise * (0.5 - positions(length))


@operator("layout", height=Number(-1, 1, (-0.25, 0.25)))
def arch(length: int, rng: random.Random, height: float) -> _Heights:
    """Bend the line of text to an arch; a negative height makes it hang."""
    return height * (0.5 - np.sin(math.pi * positions(length)))


@operator("layout", height=Number(0, 1, (0.1, 0.3)), period=Number(2, 16, (2, 6), "characters"))
def wave(length: int, rng: random.Random, height: float, period: float) -> _Heights:
    """Lay the line of text on a wave."""
    return height / 2 * np.sin(2 * math.pi * (np.arange(length) / period + rng.random()))


@operator("under", x=_SHIFT, y=_SHIFT, blur=Number(0, 10, 0, "pixels"))
def shadow(text: Mask, rng: random.Random, x: int, y: int, blur: float) -> Mask:
    """Drop a shadow of the text, shifted by so many pixels to the right and down."""
    mask = shifted(text, x, y)
    return blurred(mask, blur) if blur else mask


@operator("under", x=_SHIFT, y=_SHIFT)
def extrusion(text: Mask, rng: random.Random, x: int, y: int) -> Mask:
    """Extrude the text: its sides reach so many pixels to the right and down."""
    mask, steps = text, max(abs(x), abs(y), 1)
    for step in range(1, steps + 1):
        mask = np.maximum(mask, shifted(text, round(x * step / steps), round(y * step / steps)))
    return mask


@operator("under", sigma=Number(0.5, 20, (1.5, 3), "pixels"))
def glow(text: Mask, rng: random.Random, sigma: float) -> Mask:
    """Let the text glow: a blurred copy of it, brightened."""
    return np.minimum(blurred(text, sigma).astype(np.uint16) * 2, 255).astype(np.uint8)


@operator("under", width=Number(1, 10, (1, 2), "pixels"))
def halo(text: Mask, rng: random.Random, width: float) -> Mask:
    """Draw a contour of so many pixels around the text."""
    margin = dilated(text, width)
    extra = (margin.shape[0] - text.shape[0]) // 2
    return margin[extra : extra + text.shape[0], extra : extra + text.shape[1]]


@operator(
    "under",
    margin=Number(0, 40, (2, 5), "pixels", whole=True),
    shape=Word(("box", "ellipse"), "box"),
)
def plate(text: Mask, rng: random.Random, margin: int, shape: str) -> Mask:
    """Draw a plate behind the text: a box or an ellipse about it."""
    image = Image.fromarray(np.zeros_like(text))
    left, top, right, bottom = box_of(text)
    if right:
        box = [left - margin, top - margin, right + margin - 1, bottom + margin - 1]
        draw = ImageDraw.Draw(image)
        (draw.rectangle if shape == "box" else draw.ellipse)(box, fill=255)
    return mask_of(image)


@operator(
    "under",
    count=Number(1, 20, (1, 4), whole=True),
    width=Number(1, 10, (1, 2), "pixels", whole=True),
)
def strokes(text: Mask, rng: random.Random, count: int, width: int) -> Mask:
    """Draw strokes across the text, from one side of it to the other."""
    image = Image.fromarray(np.zeros_like(text))
    left, top, right, bottom = box_of(text)
    for _ in range(count):
        x, y = (left, right), (rng.uniform(top, bottom), rng.uniform(top, bottom))
        if rng.random() < 0.5:
            x, y = (rng.uniform(left, right), rng.uniform(left, right)), (top, bottom)
        ImageDraw.Draw(image).line([*zip(x, y, strict=True)], fill=255, width=width)
    return mask_of(image)


def mask_of(image: Image.Image) -> Mask:
    """Return the mask (height, width) of an image in mode L, quicker than numpy.asarray."""
    return np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width)


@operator("under", sigma=Number(0.5, 20, (1.5, 4), "pixels"), share=Number(0, 1, (0.1, 0.4)))
def spray(text: Mask, rng: random.Random, sigma: float, share: float) -> Mask:
    """Spray specks of a pixel around the text, ever fewer away from it.

    share: of the pixels that have specks where the text is.
    """
    noise = np.random.default_rng(rng.getrandbits(64)).random(text.shape, np.float32)
    return (noise * 255 < blurred(text, sigma) * np.float32(share)) * np.uint8(255)


def positions(length: int) -> NDArray[np.float64]:
    """Return where the glyphs of a text stand along it: 0 is the first and 1 the last."""
    return np.linspace(0, 1, length) if length > 1 else np.array([0.5])


def dilated(mask: Mask, radius: float) -> Mask:
    """Return a mask that is wider by a radius in pixels, with the margin that it needs."""
    padded = _pad(mask, math.ceil(radius))
    for _ in range(int(radius)):
        padded = _widened(padded)
    if part := radius % 1:
        padded = (padded * np.float32(1 - part) + _widened(padded) * np.float32(part)).astype(
            np.uint8
        )
    return padded


def eroded(mask: Mask, radius: float) -> Mask:
    """Return a mask that is narrower by a radius in pixels on all sides, in a margin of a pixel."""
    margin = math.ceil(radius)  # without it, since it would become a frame
    return 255 - dilated(255 - _pad(mask, 1), radius)[margin:-margin, margin:-margin]


def _widened(mask: Mask) -> Mask:
    """Return a mask of the same size whose shapes are wider by about a pixel on every side."""
    padded = _pad(mask, 1)
    rows = np.maximum(np.maximum(padded[:-2], padded[2:]), padded[1:-1])
    columns = np.maximum(padded[1:-1, :-2], padded[1:-1, 2:])
    return np.maximum(rows[:, 1:-1], columns)


def _pad(mask: Mask, margin: int) -> Mask:
    """Return a mask with an empty margin of pixels, in a tenth of the time of numpy.pad."""
    height, width = mask.shape
    padded = np.zeros((height + 2 * margin, width + 2 * margin), np.uint8)
    padded[margin : margin + height, margin : margin + width] = mask
    return padded


def box_of(mask: Mask) -> tuple[float, float, float, float]:
    """Return the left, top, right and bottom of what is covered, in pixels.

    All are 0 if nothing is.
    """
    return Image.fromarray(mask).getbbox() or (0, 0, 0, 0)


def shifted(mask: Mask, x: int, y: int) -> Mask:
    """Return a mask moved by so many pixels to the right and down.

    What leaves the canvas is lost.
    """
    height, width = mask.shape
    x, y = min(max(x, -width), width), min(max(y, -height), height)
    moved = np.zeros_like(mask)
    moved[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)] = mask[
        max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)
    ]
    return moved


def blurred(mask: Mask, sigma: float) -> Mask:
    """Return a mask blurred by a Gaussian."""
    return mask_of(Image.fromarray(mask).filter(ImageFilter.GaussianBlur(sigma)))
