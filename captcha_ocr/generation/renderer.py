"""Draw a captcha of any design: canvas, text, what lies under and over it, and what the image goes through."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captcha_ocr.config import MAX_AREA
from captcha_ocr.errors import check
from captcha_ocr.generation.design import Design, Step
from captcha_ocr.generation.legibility import why_illegible
from captcha_ocr.generation.operators.registry import Area, Mask, Pixels
from captcha_ocr.generation.typesetting import Placed, Typesetter, knock_out
from captcha_ocr.generation.values import RGB

COLOR_GROUPS = 4  # at most, of the items of a mark that have colours of their own
INK = 128  # the coverage from which a pixel belongs to a glyph


class Drawing(NamedTuple):
    """An image (height, width, 3) uint8, and why it cannot be read: `clipped`, `contrast` or `hidden`, or None."""

    pixels: Pixels
    illegible: str | None


def draw(design: Design, faces: Sequence[str], text: Sequence[str], rng: random.Random) -> Drawing:
    """Draw the characters of a text, from left to right, in some of the fonts with the paths `faces`."""
    return Scene(design, faces, rng).draw(text)


class Scene:
    """One image while it is drawn: its colours, and the operators that it has, with their values."""

    def __init__(self, design: Design, faces: Sequence[str], rng: random.Random) -> None:
        self.design, self.rng = design, rng
        active = [step for step in design.steps if step.probability >= 1 or rng.random() < step.probability]
        self.steps: dict[str, list[Step]] = {stage: [] for stage in ("shape", "corners", "stroke", "layout", "under")}
        self.plan: list[tuple[Step, dict[str, Any]]] = []  # for the whole image
        for step in active:
            if step.operator.stage in self.steps:
                self.steps[step.operator.stage].append(step)
            else:
                self.plan.append((step, step.values(rng)))
        self.typesetter = Typesetter(design, faces, self.steps, rng)
        self.palette: dict[str, RGB] = {"canvas": design.canvas["color"](rng)}
        self.palette["text"] = self.rgb(design.text["color"](rng))

    def rgb(self, color: str | RGB) -> RGB:
        """Return the colour of the word `text` or `canvas`, or the colour itself."""
        return self.palette[color] if isinstance(color, str) else color

    def draw(self, text: Sequence[str]) -> Drawing:
        """Draw the image of the characters of a text."""
        canvas = self.design.canvas
        height, width = canvas["height"](self.rng), canvas["width"](self.rng)
        colors = self.text_colors(len(text))
        placed, wide = self.typesetter.set_text(text, colors, width, height)
        size, fields = f"{wide:,} by {height:,} pixels", "canvas.height, text.size or text.length"
        check(height * wide <= MAX_AREA, f"an image of the design has {size}, more than {MAX_AREA:,}; lower {fields}")
        area = Area(height, wide, len(text), self.typesetter.face)
        image = Image.new("RGB", (wide, height), self.palette["canvas"])
        for step, values in self.plan:
            if values.get("behind"):
                for mask, color, opacity in self.mark(step, values, area):
                    paint(image, color, mask, opacity)
        self.paint_under(image, placed)
        owners = self.paint_text(image, placed, colors)
        ink = [int(np.count_nonzero(glyph.mask >= INK)) for glyph in placed] if self.design.redraw_illegible else []
        if width and wide > width and self.design.text["overflow"](self.rng) == "clip":
            image, owners = image.crop((0, 0, width, height)), owners[:, :width]
            area = area._replace(width=width)
        elif width and wide > width:  # like the captcha package: a text that is too wide is squeezed
            image = image.resize((width, height))
            owners = owners[:, (np.arange(width) * 2 + 1) * wide // (2 * width)] if ink else owners[:, :width]
            ink = [int(count * width / wide) for count in ink]
            area = area._replace(width=width)
        return self.finish(np.array(image), owners, ink, area)

    def text_colors(self, length: int) -> list[RGB]:
        """Return the colours of the characters of a text."""
        text, first = self.design.text, self.palette["text"]
        if not text["color_per_glyph"](self.rng):
            return [first] * length
        return [first, *(self.rgb(text["color"](self.rng)) for _ in range(length - 1))]

    def mark(self, step: Step, values: dict[str, Any], area: Area) -> Iterator[tuple[Mask, RGB, float]]:
        """Yield the masks of a mark, each with its colour and opacity.

        Its items get up to COLOR_GROUPS colours if each may have its own.
        """
        color, opacity, per_item = values["color"], values["opacity"], values.get("color_per_item", False)
        own = {name: value for name, value in values.items() if name not in MARK_FIELDS}
        groups = min(own.get("count", COLOR_GROUPS), COLOR_GROUPS) if per_item else 1
        for group in range(max(1, groups)):
            if groups > 1 and "count" in own:
                own["count"] = (values["count"] + group) // groups
            elif groups > 1:
                own["share"] = values["share"] / groups
            masks = step.operator.function(area, self.rng, **own)
            for mask in masks if isinstance(masks, list) else [masks]:
                yield mask, self.rgb(color), opacity
                if per_item:
                    color = step.draws["color"](self.rng)

    def paint_under(self, image: Image.Image, placed: Sequence[Placed]) -> None:
        """Draw what lies under the text."""
        if not self.steps["under"]:
            return
        whole = np.zeros((image.height, image.width), np.uint8)
        for glyph in placed:
            rows, columns, part = glyph.on_canvas(*whole.shape)
            np.maximum(whole[rows, columns], part, out=whole[rows, columns])
        for step in self.steps["under"]:
            values = step.values(self.rng)
            color, opacity = self.rgb(values.pop("color")), values.pop("opacity")
            paint(image, color, step.operator.function(whole, self.rng, **values), opacity)

    def paint_text(self, image: Image.Image, placed: Sequence[Placed], colors: Sequence[RGB]) -> Mask:
        """Draw the glyphs; return which pixels belong to which of them, from 1."""
        width, height = image.size
        if self.typesetter.value("overlap") == "knock out":
            placed = knock_out(placed, height, width)
        owners = np.zeros((height, width), np.uint8)
        opacity = 1 if self.typesetter.gain else self.typesetter.opacity
        for number, (glyph, color) in enumerate(zip(placed, colors, strict=True), 1):
            paint(image, glyph.colors or color, glyph.mask, opacity, (glyph.left, glyph.top))
            if self.design.redraw_illegible:
                rows, columns, part = glyph.on_canvas(height, width)
                owners[rows, columns][part >= INK] = number
        return owners

    def finish(self, pixels: Pixels, owners: Mask, ink: list[int], area: Area) -> Drawing:
        """Put the image through the operators for whole images, and tell whether it can be read."""
        inverted = np.zeros_like(owners)
        for step, values in self.plan:
            function, stage = step.operator.function, step.operator.stage
            if stage == "pixels":
                pixels = function(pixels, self.rng, **values)
            elif stage == "mark" and not values["behind"]:
                pixels = pixels if pixels.flags.writeable else pixels.copy()
                for mask, color, opacity in self.mark(step, values, area):
                    blend(pixels, color, mask, opacity)
            elif stage == "inversion":
                mask = function(area, self.rng, **values)
                pixels, inverted = pixels ^ mask[..., None], inverted ^ mask
            elif stage == "warp":
                shifts = function(area, self.rng, **values)
                pixels, owners = warp(pixels, shifts), warp_nearest(owners, shifts)
                inverted = warp_nearest(inverted, shifts) if inverted.any() else inverted
        if not self.design.redraw_illegible:
            return Drawing(pixels, None)
        upright = pixels ^ inverted[..., None] if inverted.any() else pixels
        return Drawing(pixels, why_illegible(upright, owners, ink))


MARK_FIELDS = ("color", "opacity", "color_per_item", "behind")


def paint(
    image: Image.Image, color: RGB | Image.Image, mask: Mask, opacity: float, place: tuple[int, int] = (0, 0)
) -> None:
    """Cover an image, from a place (x, y) on, by a mask of a colour, or of an image's colours."""
    if opacity < 1:
        mask = (mask * np.float32(opacity)).astype(np.uint8)
    image.paste(color, place, Image.fromarray(mask))


def blend(pixels: Pixels, color: RGB, mask: Mask, opacity: float) -> None:
    """Cover pixels (height, width, 3) by a mask (height, width) of a colour, in place."""
    where = np.flatnonzero(mask != 0)
    flat = pixels.reshape(-1, 3)
    if len(where) < mask.size // 4:
        coverage = mask.ravel()[where]
        if opacity == 1 and (coverage == 255).all():
            flat[where] = color
            return
        below, share = flat[where], (coverage * np.float32(opacity / 255))[:, None]
        flat[where] = below + (np.array(color, np.float32) - below) * share + np.float32(0.5)
    else:
        share = (mask * np.float32(opacity / 255))[..., None]
        pixels[:] = pixels + (np.array(color, np.float32) - pixels) * share + np.float32(0.5)


def warp(pixels: Pixels, shifts: NDArray[np.float32]) -> Pixels:
    """Sample an image where shifts point to, with bilinear interpolation; the border's pixels continue outside."""
    height, width, _ = pixels.shape
    y = np.clip((np.arange(height, dtype=np.float32)[:, None] + shifts[0]) * 64, 0, 64 * (height - 1) - 1)
    x = np.clip((np.arange(width, dtype=np.float32) + shifts[1]) * 64, 0, 64 * (width - 1) - 1)
    rows, columns = y.astype(np.int64), x.astype(np.int64)  # in 64ths of a pixel
    down, across = (rows & 63).astype(np.int16)[..., None], (columns & 63).astype(np.int16)[..., None]
    packed = np.zeros((height, width, 4), np.uint8)  # a pixel is one number of 32 bits, which is quicker to gather
    packed[..., :3] = pixels
    flat, first = packed.view(np.uint32).ravel(), (rows >> 6) * width + (columns >> 6)

    def at(step: int) -> NDArray[np.int16]:
        near: NDArray[np.uint8] = flat.take(first + step).view(np.uint8).reshape(height, width, 4)
        return near.astype(np.int16)

    upper, lower = (near + ((far - near) * across >> 6) for near, far in ((at(0), at(1)), (at(width), at(width + 1))))
    mixed: Pixels = (upper + ((lower - upper) * down >> 6)).astype(np.uint8)[..., :3]
    return mixed


def warp_nearest(owners: Mask, shifts: NDArray[np.float32]) -> Mask:
    """Sample a map of numbers where shifts point to."""
    height, width = owners.shape
    y = np.clip(np.rint(np.arange(height, dtype=np.float32)[:, None] + shifts[0]).astype(np.int32), 0, height - 1)
    x = np.clip(np.rint(np.arange(width, dtype=np.float32) + shifts[1]).astype(np.int32), 0, width - 1)
    sampled: Mask = owners[y, x]
    return sampled
