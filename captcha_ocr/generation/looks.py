"""How captchas look, in numbers, and which named designs look like them.

An image is described by its size, its colours, the place of its ink, its edges and its strokes, and
a folder by the means and the deviations of these numbers. `looks.json` has those of the named
designs; `benchmarks/designs.py --looks` writes it.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captcha_ocr.data.images import LUMINANCE, flatten, open_image
from captcha_ocr.errors import Command, ImageError
from captcha_ocr.generation.operators.registry import Pixels
from captcha_ocr.options.shared import MAX_BYTES

_Numbers = NDArray[np.floating[Any]]
LOOKS = files("captcha_ocr.generation.designs") / "looks.json"
SAMPLE = 40  # images of a folder that are looked at
NEAR = 0.26  # the distance from which on images have none of the looks: docs/decisions.md, Designs
_INK = 0.2  # of the range of a channel, that ink differs from the ground
_PARTS = 6  # of the height and of the width, in which the ink is counted
_STROKES = (1, 2, 3, 5, 9, 17)  # pixels: the least lengths of each class of runs of ink
_WEIGHT_OF_SIZE = 16  # of the width and of the height: hardly anybody changes a generator's
_DIGITS = 3  # of the numbers in the file


class Resemblance(NamedTuple):
    """A named design, and how far its look is from that of some images: 0 is the same."""

    design: str
    distance: float

    @property
    def is_near(self) -> bool:
        """Whether the images may be of this design."""
        return self.distance <= NEAR

    @property
    def training(self) -> Command:
        """The command that trains on drawings of the design."""
        return Command("train", (), {"draw": (self.design,)})


def find_designs(
    folder: Path, images: Sequence[str], max_bytes: int = MAX_BYTES
) -> list[Resemblance]:
    """Return the named designs, the one that looks most like images in a folder first.

    SAMPLE of the images at most are read. ImageError if none can be.
    """
    sample = []
    for image in images[:: 1 + len(images) // SAMPLE]:
        with suppress(ImageError):
            sample.append(np.asarray(flatten(open_image(folder / image, max_bytes), "RGB")))
    if not sample:
        raise ImageError(f"no image below {folder} can be read")
    return compare_look(describe_look(sample))


def compare_look(look: _Numbers) -> list[Resemblance]:
    """Return the named designs, the one with the most similar look first."""
    names, looks, spreads = _read_looks()
    differences = np.abs(look - looks) / spreads
    weights = np.ones(looks.shape[1])
    weights[:2] = _WEIGHT_OF_SIZE
    # Roots, since one number that a design misses must not outweigh many that it has.
    distances = np.average(np.sqrt(differences), axis=1, weights=weights) ** 2
    return [Resemblance(names[place], float(distances[place])) for place in distances.argsort()]


@cache
def _read_looks() -> tuple[list[str], _Numbers, _Numbers]:
    """Return the names of designs, their looks (designs, numbers) and the deviation of each."""
    document = json.loads(LOOKS.read_text(encoding="utf-8"))
    looks = np.array([*document.values()])
    return [*document], looks, looks.std(0) + 10**-_DIGITS


def describe_look(images: Iterable[Pixels]) -> _Numbers:
    """Return the look of some images: the means of the numbers of each, and their deviations."""
    rows = np.array([_describe(pixels) for pixels in images])
    return np.concatenate([rows.mean(0), rows.std(0)]).round(_DIGITS)


def _describe(pixels: Pixels) -> _Numbers:
    colors = pixels.astype(np.float32) / 255
    height, width, channels = colors.shape
    every, grey = colors.reshape(-1, channels), colors @ np.array(LUMINANCE, np.float32)
    frame = np.concatenate([colors[0], colors[-1], colors[:, 0], colors[:, -1]])
    ground, saturation = np.median(every, axis=0), np.ptp(colors, axis=2)
    ink = np.abs(colors - ground).max(2) > _INK
    inked = colors[ink] if ink.any() else ground[None]
    return np.concatenate(
        [
            np.log2([width, height]),
            *(ground, every.mean(0), every.std(0), np.median(frame, axis=0), frame.std(0)),
            [saturation.mean(), np.percentile(saturation, 95), ink.mean()],
            [_count_colors(pixels), _count_colors(pixels & np.uint8(0b11100000))],
            np.percentile(grey, (2, 10, 25, 50, 75, 90, 98)),
            *(np.median(inked, axis=0), inked.std(0)),
            *(_spread_over(ink), _measure_edges(grey), _measure_runs(ink), _measure_runs(ink.T)),
        ]
    )


def _count_colors(pixels: Pixels) -> float:
    """Return the number of colours, as a logarithm: 1 is as many as 65,536."""
    numbers = pixels.reshape(-1, 3).astype(np.int32) @ (65536, 256, 1)
    return float(np.log2(len(np.unique(numbers))) / 16)


def _spread_over(ink: NDArray[np.bool_]) -> _Numbers:
    """Return the share of ink in the parts of the height, and in those of the width."""
    image = Image.fromarray(ink.astype(np.uint8) * 255)
    parts = [image.resize(size, Image.Resampling.BOX) for size in ((1, _PARTS), (_PARTS, 1))]
    return np.concatenate([np.asarray(part).ravel() for part in parts]) / 255


def _measure_edges(grey: _Numbers) -> list[float]:
    """Return the mean steps from pixel to pixel: down and across, in three sizes of the image."""
    steps = []
    for factor in (1, 2, 4):
        size = np.asarray(Image.fromarray(grey).reduce(factor))
        steps += [float(np.abs(np.diff(size, axis=axis)).sum() / size.size) for axis in (0, 1)]
    return steps


def _measure_runs(ink: NDArray[np.bool_]) -> _Numbers:
    """Return which share of the ink in rows has each class of lengths."""
    steps = np.diff(np.pad(ink, 1).astype(np.int8), axis=1)
    lengths = np.argwhere(steps < 0)[:, 1] - np.argwhere(steps > 0)[:, 1]
    classes = np.searchsorted(_STROKES, lengths, "right") - 1
    shares: _Numbers = np.bincount(classes, lengths, len(_STROKES)) / max(1, lengths.sum())
    return shares
