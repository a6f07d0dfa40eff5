"""Tell whether a person could read a captcha: each glyph must stand out, and must not have lost its ink."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captcha_ocr.generation.operators.registry import Mask, Pixels

MIN_INK_LEFT = 0.65  # of a glyph's own ink: the rest is clipped, or covered by other glyphs
MAX_CONFUSED = 0.28  # of a glyph's pixels that look like what surrounds it, or the other way round
MIN_GAP = 25.0  # between the luminance of a glyph and what surrounds it
MIN_COLOR_GAP = 60.0  # between their colours, if the luminance is the same
MIN_STROKE = 6  # pixels of ink that a glyph needs
STEP = 2  # every other row and column is looked at
MARGIN = 2  # of these around a glyph that count as what surrounds it
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def why_illegible(pixels: Pixels, owners: Mask, ink: Sequence[int]) -> str | None:
    """Return why an image cannot be read, in a word, or None: `clipped`, `contrast` or `hidden`.

    owners (height, width): the number of the glyph that a pixel belongs to, from 1, and 0 elsewhere. ink: the pixels
    that each glyph has before anything covers or clips it.
    """
    left = np.bincount(owners.ravel(), minlength=len(ink) + 1)[1:]
    owners, pixels = owners[::STEP, ::STEP], pixels[::STEP, ::STEP]
    for number, (own, total) in enumerate(zip(left, ink, strict=True), 1):
        if own < max(MIN_STROKE, MIN_INK_LEFT * total):
            return "clipped"
        if (reason := why_hidden(pixels, owners, number)) is not None:
            return reason
    return None


def why_hidden(pixels: Pixels, owners: Mask, number: int) -> str | None:
    """Return why a glyph does not stand out from what surrounds it: `contrast` or `hidden`, or None."""
    own = owners == number
    if not own.any():
        return "hidden"
    rows, columns = reach(own.any(1)), reach(own.any(0))
    near = pixels[rows, columns].astype(np.float32)
    glyph, around = near[own[rows, columns]], near[owners[rows, columns] == 0]
    if not len(around):
        return "hidden"
    middle, base = mean(glyph), mean(around)
    difference = middle - base
    if abs(difference @ LUMINANCE) < MIN_GAP and difference @ difference < MIN_COLOR_GAP**2:
        return "contrast"
    # How far each pixel is on the way from the surroundings' colour to the glyph's.
    half = (middle + base) @ difference / 2
    lost = np.count_nonzero(glyph @ difference < half) / len(glyph)
    confused = np.count_nonzero(around @ difference > half) / len(around)
    return "hidden" if max(lost, confused) > MAX_CONFUSED else None


def mean(colors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of colours (n, 3); a product with ones is quicker than numpy's mean."""
    ones = np.full(len(colors), 1 / len(colors), np.float32)
    average: NDArray[np.float32] = ones @ colors
    return average


def reach(occupied: NDArray[np.bool_]) -> slice:
    """Return the rows, or columns, from the first to the last that a glyph occupies, with a margin."""
    places = np.flatnonzero(occupied)
    return slice(max(0, int(places[0]) - MARGIN), int(places[-1]) + MARGIN + 1)
