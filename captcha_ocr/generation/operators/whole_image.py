"""Operators on the whole image: warps, inversion of its parts, noise, blur, resolution, coding."""

import io
import math
import random
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from captcha_ocr.generation.operators.registry import (
    Area,
    Flag,
    Mask,
    Number,
    Pixels,
    Word,
    operator,
)

_Shifts = NDArray[np.float32]  # (2, height, width): of y and of x
_AMPLITUDE = Number(0, 30, (1, 4), "pixels")
_RESAMPLING = {
    "area": Image.Resampling.BOX,
    "smooth": Image.Resampling.BILINEAR,
    "nearest": Image.Resampling.NEAREST,
}
_EDGES = ImageFilter.Kernel((3, 3), [-1, 0, -1, 0, 4, 0, -1, 0, -1], scale=1, offset=127)
_MAX_BOX_SIGMA = 1.5  # pixels
# A normal distribution in 256 numbers, each as likely as the others: to choose some is quicker than
# to draw new ones.
_NORMAL = np.array([NormalDist().inv_cdf((number + 0.5) / 256) for number in range(256)])


@operator(
    "inversion",
    region=Word(("band", "curve", "chequer"), {"one_of": ["band", "curve", "chequer"]}),
    size=Number(4, 200, (12, 40), "pixels"),
)
def inversion(area: Area, rng: random.Random, region: str, size: float) -> Mask:
    """Invert the colours in a band, below a curve, or in the fields of a chequer."""
    y, x = np.ogrid[: area.height, : area.width]
    if region == "band":
        top = rng.uniform(0.1, 0.9) * area.height - size / 2
        mask = (y >= top) & (y < top + size) & (x >= 0)
    elif region == "curve":
        phase = rng.uniform(0, 2 * math.pi)
        mask = y > area.height / 2 + area.height / 4 * np.sin(phase + x * math.pi / (2 * size))
    else:
        mask = (y // size + x // size).astype(int) % 2 == 0
    return mask.astype(np.uint8) * 255


@operator("warp", x=_AMPLITUDE, y=_AMPLITUDE, wavelength=Number(4, 1000, (18, 300), "pixels"))
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


@operator("warp", strength=Number(-1, 1, (-0.35, 0.35)), width=Number(0.05, 1, 1))
def lens(area: Area, rng: random.Random, strength: float, width: float) -> _Shifts:
    """Magnify the middle of the image like a lens; a negative strength shrinks it.

    width: of the lens, in shares of that of the image.
    """
    y, x, falloff = _around_middle(area, width)
    return np.stack([-strength * falloff * y, -strength * falloff * x]).astype(np.float32)


@operator("warp", angle=Number(-180, 180, (-30, 30), "degrees"))
def swirl(area: Area, rng: random.Random, angle: float) -> _Shifts:
    """Turn the middle of the image clockwise, and the rest ever less towards its border."""
    y, x, falloff = _around_middle(area)
    turn = math.radians(angle) * falloff
    cosine, sine_ = np.cos(turn), np.sin(turn)
    return np.stack([y * cosine - x * sine_ - y, y * sine_ + x * cosine - x]).astype(np.float32)


@operator("warp", angle=Number(-180, 180, (-10, 10), "degrees"))
def turn(area: Area, rng: random.Random, angle: float) -> _Shifts:
    """Turn the whole image about its middle, counterclockwise."""
    y, x, _ = _around_middle(area)
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


def _around_middle(
    area: Area, reach: float = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return y and x from the middle in pixels, and a weight: 1 there, 0 at the border.

    reach: the share of the width beyond which the weight is 0.
    """
    middle = area.height / 2 - 0.5, area.width / 2 - 0.5
    y = (np.arange(area.height, dtype=np.float32) - middle[0])[:, None]
    x = (np.arange(area.width, dtype=np.float32) - middle[1])[None, :]
    radius = np.hypot(y / (area.height / 2), x / (area.width / 2 * reach))
    return y, x, np.clip(1 - radius, 0, 1) ** 2 * (1 + 2 * np.clip(radius, 0, 1))


@operator("pixels", sigma=Number(0, 100, (2, 28), "of 255"), colored=Flag(False))
def grain(pixels: Pixels, rng: random.Random, sigma: float, colored: bool) -> Pixels:
    """Add Gaussian noise, the same to all channels unless colored."""
    channels = 1 if colored else 3  # that have the same noise
    draws = np.frombuffer(rng.randbytes(pixels.size // channels), np.uint8)
    noise = np.rint(_NORMAL * sigma).astype(np.int16).take(draws).repeat(channels)
    noisy: Pixels = np.clip(pixels + noise.reshape(pixels.shape), 0, 255).astype(np.uint8)
    return noisy


@operator("pixels", share=Number(0, 0.5, (0.005, 0.05)))
def salt_and_pepper(pixels: Pixels, rng: random.Random, share: float) -> Pixels:
    """Make a share of the pixels black or white."""
    source = np.random.default_rng(rng.getrandbits(64))
    noise = source.random(pixels.shape[:2], np.float32)[..., None]
    salted = np.where(noise > 1 - share / 2, np.uint8(255), pixels)
    return np.where(noise < share / 2, np.uint8(0), salted)


@operator("pixels", sigma=Number(0, 20, (0.4, 1.2), "pixels"))
def blur(pixels: Pixels, rng: random.Random, sigma: float) -> Pixels:
    """Blur the image by a Gaussian."""
    kernel: ImageFilter.Filter = ImageFilter.GaussianBlur(sigma)
    # One box of the same variance hardly differs, and takes a third of the time.
    if sigma < _MAX_BOX_SIGMA:
        kernel = ImageFilter.BoxBlur((math.sqrt(12 * sigma**2 + 1) - 1) / 2)
    return np.asarray(Image.fromarray(pixels).filter(kernel))


@operator("pixels")
def smooth(pixels: Pixels, rng: random.Random) -> Pixels:
    """Smooth the image a little: each pixel counts five times, its eight neighbours once.

    This is Pillow's filter SMOOTH, which the captcha package uses, in a quarter of the time.
    """
    height, width, _ = pixels.shape
    lines = pixels.reshape(height, -1).astype(np.uint16)
    rows = (lines[1:-1] + lines[:-2] + lines[2:]).ravel()
    sums = lines[1:-1] * 4 + 6  # 6 to round
    inner = sums.ravel()[3:-3]  # wrong at the left and right border, which stay as they are
    for part in (rows[:-6], rows[3:-3], rows[6:]):
        inner += part
    sums //= 13
    smoothed = pixels.copy()
    smoothed[1:-1, 1:-1] = sums.reshape(-1, width, 3)[:, 1:-1]
    return smoothed


@operator("pixels", amount=Number(0, 5, (0.5, 1.5)))
def sharpen(pixels: Pixels, rng: random.Random, amount: float) -> Pixels:
    """Sharpen the image: add the difference from a blurred copy, times the amount."""
    softer = np.asarray(Image.fromarray(pixels).filter(ImageFilter.BoxBlur(1))).astype(np.float32)
    return np.clip(pixels + (pixels - softer) * np.float32(amount), 0, 255).astype(np.uint8)


@operator("pixels", amount=Number(0, 1, (0.3, 0.8)))
def edges(pixels: Pixels, rng: random.Random, amount: float) -> Pixels:
    """Mix the image with its edges, drawn on grey."""
    # A filter leaves the border as it is.
    wider = Image.fromarray(np.pad(pixels, ((1, 1), (1, 1), (0, 0)), "edge"))
    only = wider.filter(_EDGES).crop((1, 1, wider.width - 1, wider.height - 1))
    return np.asarray(Image.blend(Image.fromarray(pixels), only, amount))


@operator(
    "pixels",
    factor=Number(0.1, 1, (0.33, 0.8)),
    down=Word(("area", "nearest"), {"one_of": ["area", "nearest"]}),
    up=Word(("smooth", "nearest"), "smooth"),
)
def downscale(pixels: Pixels, rng: random.Random, factor: float, down: str, up: str) -> Pixels:
    """Lose resolution: shrink the image by a factor and enlarge it again."""
    height, width, _ = pixels.shape
    small = max(1, round(width * factor)), max(1, round(height * factor))
    shrunk = Image.fromarray(pixels).resize(small, _RESAMPLING[down])
    return np.asarray(shrunk.resize((width, height), _RESAMPLING[up]))


@operator("pixels", quality=Number(1, 100, (25, 95), whole=True))
def jpeg(pixels: Pixels, rng: random.Random, quality: int) -> Pixels:
    """Lose what JPEG loses at a quality of 1 to 100."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=quality)
    with Image.open(stream, formats=["JPEG"]) as image:
        return np.asarray(image.convert("RGB"))


@operator("pixels", colors=Number(2, 256, (8, 64), whole=True), dither=Flag(False))
def palette(pixels: Pixels, rng: random.Random, colors: int, dither: bool) -> Pixels:
    """Reduce the image to so many colours, as a GIF has."""
    image = Image.fromarray(pixels)
    reduced = image.quantize(colors, Image.Quantize.FASTOCTREE)
    if dither:
        reduced = image.quantize(palette=reduced, dither=Image.Dither.FLOYDSTEINBERG)
    return np.asarray(reduced.convert("RGB"))


@operator("pixels", gamma=Number(0.2, 5, (0.7, 1.4)), contrast=Number(0.1, 3, (0.7, 1.1)))
def tone(pixels: Pixels, rng: random.Random, gamma: float, contrast: float) -> Pixels:
    """Change the brightness by a gamma, and the contrast about the middle."""
    levels = (np.arange(256) / 255) ** gamma
    return (np.clip((levels - 0.5) * contrast + 0.5, 0, 1) * 255).astype(np.uint8)[pixels]


@operator("pixels", hue=Number(-360, 360, (0, 360), "degrees"), amount=Number(0, 1, (0.05, 0.3)))
def tint(pixels: Pixels, rng: random.Random, hue: float, amount: float) -> Pixels:
    """Mix the image with a hue, by an amount of 0 to 1."""
    angles = np.radians(hue - np.array([0.0, 120.0, 240.0]))
    color = ((np.cos(angles) + 1) * 127.5 * amount).astype(np.float32)
    return (pixels * np.float32(1 - amount) + color).astype(np.uint8)
