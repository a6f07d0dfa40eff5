"""Operators that draw under the text, each from the mask of the text, or of one glyph."""

import random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from captcha_ocr.generation.operators.glyphs import dilated
from captcha_ocr.generation.operators.registry import Mask, operator
from captcha_ocr.generation.operators.values import Number, Word

_SHIFT = Number(-20, 20, (-3, 3), "pixels", whole=True)


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
    return np.asarray(image)


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
    return np.asarray(image)


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
    moved = np.zeros_like(mask)
    moved[max(0, y) : height + min(0, y), max(0, x) : width + min(0, x)] = mask[
        max(0, -y) : height + min(0, -y), max(0, -x) : width + min(0, -x)
    ]
    return moved


def blurred(mask: Mask, sigma: float) -> Mask:
    """Return a mask blurred by a Gaussian."""
    return np.asarray(Image.fromarray(mask).filter(ImageFilter.GaussianBlur(sigma)))
