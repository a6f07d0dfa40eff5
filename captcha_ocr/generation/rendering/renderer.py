"""Draw a captcha of any design, and tell whether a person could read it.

Canvas, text, what lies under and over it, and what the image goes through. To be read, each glyph
must stand out, and must not have lost its ink.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captcha_ocr.data.images import LUMINANCE
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import Design, Step
from captcha_ocr.generation.operators.registry import RGB, Area, Mask, Pixels
from captcha_ocr.generation.rendering.typesetting import Glyph, Typesetter, knock_out
from captcha_ocr.options.shared import MAX_AREA

_COLOR_GROUPS = 4  # at most, of the items of a mark that have colours of their own
_INK = 128  # the coverage from which a pixel belongs to a glyph
_MARK_FIELDS = ("color", "opacity", "color_per_item", "behind")  # all others are the operator's
_IMAGE_STAGES = ("mark", "inversion", "warp", "pixels")  # of operators on the whole image
# What a person can read
_MIN_INK_LEFT = 0.65  # of a glyph's own ink: the rest is clipped, or covered by other glyphs
_MAX_CONFUSED = 0.28  # of a glyph's pixels that look like what surrounds it, or the other way round
_MIN_GAP = 25.0  # between the luminance of a glyph and what surrounds it
_MIN_COLOR_GAP = 60.0  # between their colours, if the luminance is the same
_MIN_STROKE = 6  # pixels of ink that a glyph needs
_STEP = 2  # every other row and column is looked at
_MARGIN = 2  # of these around a glyph that count as what surrounds it
_LUMINANCE = np.array(LUMINANCE, np.float32)


def draw(
    design: Design, faces: Sequence[str], text: Sequence[str], rng: random.Random
) -> tuple[Pixels, str | None]:
    """Draw the characters of a text, from left to right.

    Return the image, and why it cannot be read: `clipped`, `contrast` or `hidden`, or None if it
    can. faces: the paths of the fonts to choose from.
    """
    return _Scene(design, faces, rng).draw(text)


class _Scene:
    """One image while it is drawn.

    Its colours, and the operators that it has, with their values.
    """

    def __init__(self, design: Design, faces: Sequence[str], rng: random.Random) -> None:
        design = design.for_image(rng)
        self.design, self.rng = design, rng
        self.steps: defaultdict[str, list[Step]] = defaultdict(list)
        self.plan: list[tuple[Step, dict[str, Any]]] = []
        for step in design.steps:
            if step.probability < 1 and rng.random() >= step.probability:
                continue
            stage = step.operator.stage
            self.steps[stage].append(step)
            if stage in _IMAGE_STAGES:
                self.plan.append((step, step.values(rng)))
        self.typesetter = Typesetter(design, faces, self.steps, rng)
        # The words for colours; any other colour stands for itself.
        self.palette: dict[Any, Any] = {"canvas": design.canvas["color"](rng)}
        color = design.text["color"](rng)
        self.palette["text"] = self.palette.get(color, color)

    def draw(self, text: Sequence[str]) -> tuple[Pixels, str | None]:
        canvas, fields = self.design.canvas, self.design.text
        height, width = canvas["height"](self.rng), canvas["width"](self.rng)
        colors = [self.palette["text"]] * len(text)
        if fields["color_per_glyph"](self.rng):
            others = [fields["color"](self.rng) for _ in text[1:]]
            colors[1:] = [self.palette.get(color, color) for color in others]
        placed, wide, height = self.typesetter.set_text(text, colors, width, height)
        if height * wide > MAX_AREA:
            raise UsageError(
                f"an image has {wide:,} by {height:,} pixels, more than {MAX_AREA:,}; lower"
                " canvas.width, canvas.height, canvas.padding, text.size or text.length"
            )
        middles = [glyph.center for glyph in placed]
        area = Area(height, wide, len(text), self.typesetter.faces[0], middles)
        image = Image.new("RGB", (wide, height), self.palette["canvas"])
        behind = [(step, values) for step, values in self.plan if values.get("behind")]
        if behind:
            pixels = np.array(image)
            for step, values in behind:
                self.draw_mark(pixels, step, values, area)
            image = Image.fromarray(pixels)
        self.paint_under(image, placed, colors)
        owners, ink = self.paint_text(image, placed, colors)
        if width and wide > width:
            if fields["overflow"](self.rng) == "clip":
                image, owners = image.crop((0, 0, width, height)), owners[:, :width]
            else:  # squeezed, as by the captcha package
                image = image.resize((width, height))
                middles = [(x * width / wide, y) for x, y in middles]
                if ink:
                    owners = owners[:, (np.arange(width) * 2 + 1) * wide // (2 * width)]
                ink = [int(count * width / wide) for count in ink]
        area = area._replace(width=image.width, middles=middles)
        return self.finish(np.array(image), owners, ink, area)

    def draw_mark(self, pixels: Pixels, step: Step, values: dict[str, Any], area: Area) -> None:
        """Draw a mark on pixels, in place.

        Its items get up to _COLOR_GROUPS colours if each may have its own.
        """
        color, per_item = values["color"], values.get("color_per_item", False)
        own = {name: value for name, value in values.items() if name not in _MARK_FIELDS}
        groups = min(own.get("count", _COLOR_GROUPS), _COLOR_GROUPS) if per_item else 1
        for group in range(max(1, groups)):
            if groups > 1 and "count" in own:
                own["count"] = (values["count"] + group) // groups
            elif groups > 1:
                own["share"] = values["share"] / groups
            masks = step.operator.function(area, self.rng, **own)
            for mask in masks if isinstance(masks, list) else [masks]:
                blend(pixels, self.palette.get(color, color), mask, values["opacity"])
                if per_item:
                    color = step.draws["color"](self.rng)

    def paint_under(
        self, image: Image.Image, placed: Sequence[Glyph], colors: Sequence[RGB]
    ) -> None:
        for step in self.steps["under"]:
            groups = [placed]
            if step.draws["per_glyph"](self.rng):
                groups = [[glyph] for glyph in placed]
            for glyphs, text_color in zip(groups, colors, strict=False):
                values = step.values(self.rng)
                color, opacity, _ = (values.pop(name) for name in ("color", "opacity", "per_glyph"))
                palette = {**self.palette, "text": text_color}
                whole = np.zeros((image.height, image.width), np.uint8)
                for glyph in glyphs:
                    where, part = glyph.window(*whole.shape)
                    np.maximum(whole[where], glyph.mask[part], out=whole[where])
                mask = step.operator.function(whole, self.rng, **values)
                _paint(image, palette.get(color, color), Image.fromarray(mask), opacity)

    def paint_text(
        self, image: Image.Image, placed: Sequence[Glyph], colors: Sequence[RGB]
    ) -> tuple[Mask, list[int]]:
        """Draw the glyphs.

        Return which pixels belong to which of them, from 1, and how many pixels each has. Both are
        empty if nobody asks whether the image can be read.
        """
        width, height = image.size
        is_knocked_out = self.typesetter.value("overlap") == "knock out"
        shown = knock_out(placed, height, width) if is_knocked_out else placed
        owners, ink = np.zeros((height, width), np.uint8), []
        opacity = 1 if self.typesetter.gain else self.typesetter.opacity
        for number, (whole, glyph, color) in enumerate(zip(placed, shown, colors, strict=True), 1):
            source = glyph.image if glyph.is_colored else color
            _paint(image, source, glyph.image, opacity, (glyph.left, glyph.top))
            if self.design.redraw_illegible:
                inked, (where, part) = glyph.mask >= _INK, glyph.window(height, width)
                owners[where][inked[part]] = number
                ink.append(int(np.count_nonzero(inked if glyph is whole else whole.mask >= _INK)))
        return owners, ink

    def finish(
        self, pixels: Pixels, owners: Mask, ink: list[int], area: Area
    ) -> tuple[Pixels, str | None]:
        """Put the image through the operators for whole images, and tell whether it can be read."""
        inverted: Mask | None = None
        for step, values in self.plan:
            function, stage = step.operator.function, step.operator.stage
            if stage == "pixels":
                pixels = function(pixels, self.rng, **values)
            elif stage == "mark" and not values["behind"]:
                pixels = pixels if pixels.flags.writeable else pixels.copy()
                self.draw_mark(pixels, step, values, area)
            elif stage == "inversion":
                mask = function(area, self.rng, **values)
                pixels = pixels ^ mask[..., None]
                inverted = mask if inverted is None else inverted ^ mask
            elif stage == "warp":
                places = find_sources(function(area, self.rng, **values))
                pixels, owners = warp(pixels, places), warp_nearest(owners, places)
                if inverted is not None:
                    inverted = warp_nearest(inverted, places)
        if not self.design.redraw_illegible:
            return pixels, None
        upright = pixels if inverted is None else pixels ^ inverted[..., None]
        return pixels, why_illegible(upright, owners, ink)


def _paint(
    image: Image.Image,
    color: RGB | Image.Image,
    stencil: Image.Image,
    opacity: float,
    place: tuple[int, int] = (0, 0),
) -> None:
    """Cover an image from (x, y) on by a colour, or colours, through a stencil in mode L."""
    if opacity < 1:
        stencil = Image.fromarray((np.asarray(stencil) * np.float32(opacity)).astype(np.uint8))
    image.paste(color, place, stencil)


def blend(pixels: Pixels, color: RGB, mask: Mask, opacity: float) -> None:
    """Cover pixels (height, width, 3) by a mask (height, width) of a colour, in place."""
    if np.count_nonzero(mask) < mask.size // 4:
        covered, flat = mask.ravel(), pixels.reshape(-1, 3)
        where = (covered != 0).nonzero()[0]
        coverage = covered[where]
        if opacity == 1 and coverage.min(initial=255) == 255:
            flat[where] = color
        else:
            share = (coverage * np.float32(opacity)).astype(np.uint8)
            flat[where] = _mix(flat.take(where, 0), np.array(color, np.uint16), share[:, None])
    else:  # whole rows, since numpy is slow where its innermost loop has three steps
        rows = pixels.reshape(len(pixels), -1)
        over = np.tile(np.array(color, np.uint16), mask.shape[1])
        share = np.repeat((mask * np.float32(opacity)).astype(np.uint8), 3, axis=1)
        rows[:] = _mix(rows, over, share)


def _mix(below: Pixels, over: NDArray[np.uint16], share: Mask) -> NDArray[np.uint16]:
    """Return colours with a share of 0 to 255 of others over them."""
    mixed: NDArray[np.uint16] = below * (np.uint16(255) - share) + over * share + np.uint16(127)
    return mixed // np.uint16(255)


def find_sources(shifts: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return where each pixel comes from, (2, height, width).

    Its y and x in sixteenths of a pixel, on the canvas.
    """
    sides = shifts.shape[1:]
    ends = 16 * np.array(sides, np.float32)[:, None, None] - 17
    sixteenths = (shifts + np.indices(sides, np.float32)) * 16
    return sixteenths.clip(0, ends).astype(np.int64)


def warp(pixels: Pixels, places: NDArray[np.int64]) -> Pixels:
    """Sample an image at places between its pixels, with bilinear interpolation.

    The channels of a pixel are parts of one number of 64 bits, so that one product serves all of
    them.
    """
    height, width, channels = pixels.shape
    parts = np.zeros((height, width, 4), np.uint16)
    for channel in range(channels):  # numpy is slow where its innermost loop has three steps
        parts[..., channel] = pixels[..., channel]
    numbers = parts.view(np.int64).ravel()
    (rows, columns), (down, across) = places >> 4, places & 15
    first, both = rows * width + columns, down * across
    mixed = numbers.take(first) * (256 - 16 * (down + across) + both)
    for step, weight in ((1, 16 * across - both), (width, 16 * down - both), (width + 1, both)):
        mixed += numbers[step:].take(first) * weight
    sampled = np.empty_like(pixels)
    high = mixed.astype("<i8", copy=False).view(np.uint8)[:, 1::2]  # the higher of two bytes
    for channel in range(channels):
        sampled[..., channel] = high[:, channel::4]
    return sampled


def warp_nearest(owners: Mask, places: NDArray[np.int64]) -> Mask:
    """Sample a map of numbers at the pixels next to places."""
    rows, columns = (places + 8) >> 4
    sampled: Mask = owners.take(rows * owners.shape[1] + columns)
    return sampled


def why_illegible(pixels: Pixels, owners: Mask, ink: Sequence[int]) -> str | None:
    """Return why an image cannot be read, in a word, or None: `clipped`, `contrast` or `hidden`.

    owners (height, width): the number of the glyph that a pixel belongs to, from 1, and 0
    elsewhere. ink: the pixels that each glyph has before anything covers or clips it.
    """
    for number, total in enumerate(ink, 1):
        if np.count_nonzero(owners == number) < max(_MIN_STROKE, _MIN_INK_LEFT * total):
            return "clipped"
    owners = np.ascontiguousarray(owners[::_STEP, ::_STEP])
    # (glyphs, height, width)
    own = owners == np.arange(1, len(ink) + 1, dtype=np.uint8)[:, None, None]
    around = _reach(own.any(2))[:, :, None] & _reach(own.any(1))[:, None, :] & (owners == 0)
    where = np.concatenate([own, around]).reshape(2 * len(ink), -1)
    counts = _count(where)
    if not counts.all():
        return "hidden"
    # By channels, since a matrix times a vector is quicker than times a narrow matrix.
    colors = pixels[::_STEP, ::_STEP].transpose(2, 0, 1).reshape(3, -1).astype(np.float32)
    weights = where.astype(np.float32)
    sums = np.stack([weights @ channel for channel in colors], 1)
    means = sums / counts[:, None].astype(np.float32)
    middle, base = means[: len(ink)], means[len(ink) :]
    difference = middle - base
    close = (difference**2).sum(1) < _MIN_COLOR_GAP**2
    if (close & (abs(difference @ _LUMINANCE) < _MIN_GAP)).any():
        return "contrast"
    # Whether each pixel is nearer to the glyph's colour than to its surroundings'.
    half = ((middle + base) * difference).sum(1) / 2
    like = difference @ colors > half[:, None]
    wrong = _count(where & np.concatenate([~like, like]))
    return "hidden" if (wrong > _MAX_CONFUSED * counts).any() else None


def _count(where: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return how much of each row is true; a loop is quicker than numpy's count along an axis."""
    return np.array([np.count_nonzero(row) for row in where])


def _reach(occupied: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows, or columns, lie within a glyph or close to it: (glyphs, length)."""
    length = occupied.shape[1]
    places = np.arange(length)
    first, last = occupied.argmax(1) - _MARGIN, length - 1 - occupied[:, ::-1].argmax(1) + _MARGIN
    return np.asarray((places >= first[:, None]) & (places <= last[:, None]))
