"""Tell whether a person could read a captcha.

Each glyph must stand out, and must not have lost its ink.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captcha_ocr.data.images import LUMINANCE
from captcha_ocr.generation.operators.registry import Mask, Pixels

_MIN_INK_LEFT = 0.65  # of a glyph's own ink: the rest is clipped, or covered by other glyphs
_MAX_CONFUSED = 0.28  # of a glyph's pixels that look like what surrounds it, or the other way round
_MIN_GAP = 25.0  # between the luminance of a glyph and what surrounds it
_MIN_COLOR_GAP = 60.0  # between their colours, if the luminance is the same
_MIN_STROKE = 6  # pixels of ink that a glyph needs
_STEP = 2  # every other row and column is looked at
_MARGIN = 2  # of these around a glyph that count as what surrounds it
_LUMINANCE = np.array(LUMINANCE, np.float32)


def why_illegible(pixels: Pixels, owners: Mask, ink: Sequence[int]) -> str | None:
    """Return why an image cannot be read, in a word, or None: `clipped`, `contrast` or `hidden`.

    owners (height, width): the number of the glyph that a pixel belongs to, from 1, and 0
    elsewhere. ink: the pixels that each glyph has before anything covers or clips it.
    """
    for number, total in enumerate(ink, 1):
        if np.count_nonzero(owners == number) < max(_MIN_STROKE, _MIN_INK_LEFT * total):
            return "clipped"
    pixels, owners = pixels[::_STEP, ::_STEP], owners[::_STEP, ::_STEP]
    # (glyphs, height, width)
    own = owners == np.arange(1, len(ink) + 1, dtype=np.uint8)[:, None, None]
    around = _reach(own.any(2))[:, :, None] & _reach(own.any(1))[:, None, :] & (owners == 0)
    own, around = own.reshape(len(ink), -1), around.reshape(len(ink), -1)
    counts = np.stack([_count(own), _count(around)])
    if not counts.all():
        return "hidden"
    colors = pixels.reshape(-1, 3).astype(np.float32)
    pairs = zip((own, around), counts, strict=True)
    middle, base = (where.astype(np.float32) @ colors / total[:, None] for where, total in pairs)
    difference = middle - base
    close = (difference**2).sum(1) < _MIN_COLOR_GAP**2
    if (close & (abs(difference @ _LUMINANCE) < _MIN_GAP)).any():
        return "contrast"
    # Whether each pixel is nearer to the glyph's colour than to its surroundings'.
    half = ((middle + base) * difference).sum(1) / 2
    like = difference @ colors.T > half[:, None]
    wrong = np.stack([_count(own & ~like), _count(around & like)])
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
