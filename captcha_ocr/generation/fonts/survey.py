"""Which characters a font has, which look alike in it, and whether they are framed."""

import contextlib
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PAIRED = string.digits + string.ascii_uppercase + string.ascii_lowercase
ALPHABET = PAIRED + "+-*/=?"
_NOTDEF = "\U0010ffff"  # no character, so every font draws the box of a missing one
_EM = 48  # pixels, of the first look at a font
# Pixels of the median of PAIRED above the baseline when they are compared; an em of 48 in most
# fonts.
HEIGHT = 36
_SIZES = 8, 400  # pixels of an em, the smallest and the largest; a font may state any unit
_CELL = 3 * _EM  # pixels, the side of the square for a character
_BASELINE = 2 * _EM  # pixels below the top of a cell
_INK = 64  # coverage that counts as ink, of 255: a line of half a pixel between two pixels has it
# Chosen by eye from pictures of pairs in 488 faces: just above them are a dot in a zero, and a bold
# b beside an h.
_MAX_ALONE = 0.02  # of the ink far from any ink of the other character, see `alike`
_MAX_BLOCKS = 0.015
# Of 488 faces of texts three have frames: they share 0.68 to 0.71 of their ink, no other more than
# 0.06.
_SHARED_BY, _MAX_SHARED = 0.9, 0.25


@dataclass(frozen=True)
class Glyphs:
    """What a font draws for ALPHABET: see the fields of `catalogue.Face`."""

    family: str
    characters: str
    look_alikes: tuple[str, ...]
    framed: bool


def examine(data: bytes) -> Glyphs:
    """Return what the bytes of a font file draw.

    OSError if FreeType cannot read them as a font of any size.
    """

    def font_of(size: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(BytesIO(data), size, layout_engine=ImageFont.Layout.BASIC)

    font, family = font_of(_EM), ""
    with contextlib.suppress(ValueError):  # a name that is not UTF-8
        family = font.getname()[0] or ""
    characters, masks = draw(font, ALPHABET)
    is_paired = [character in PAIRED for character in characters]
    paired = "".join(character for character in characters if character in PAIRED)
    paired, masks = draw(font_of(_comparable_size(masks[is_paired])), paired)
    if len(paired) < 2:
        return Glyphs(family, characters, (), False)
    masks = _centre(_crop(masks))
    first, second = np.nonzero(np.triu(alike(masks), 1))
    pairs = sorted(paired[one] + paired[other] for one, other in zip(first, second, strict=True))
    # The ink that nearly all characters have in common, such as a frame.
    shared = float((masks & (masks.mean(0) >= _SHARED_BY)).sum() / masks.sum())
    return Glyphs(family, characters, tuple(pairs), shared > _MAX_SHARED)


def draw(font: ImageFont.FreeTypeFont, characters: str) -> tuple[str, np.ndarray]:
    """Return the characters that a font has, and where their ink is.

    (N, _CELL, _CELL) bool, all on one baseline.

    A character without ink, one drawn like the box of a missing character, and one that needs more
    than a cell count as missing.
    """
    strip = Image.new("L", (_CELL, _CELL * (1 + len(characters))))
    pen = ImageDraw.Draw(strip)
    for number, character in enumerate((_NOTDEF, *characters)):
        _draw_cell(pen, number * _CELL, font, character)
    cells = np.asarray(strip).reshape(-1, _CELL, _CELL)
    notdef, coverage = cells[0], cells[1:]
    held = (coverage >= _INK).any((1, 2)) & (coverage != notdef).any((1, 2))
    kept = "".join(character for character, has in zip(characters, held, strict=True) if has)
    return kept, coverage[held] >= _INK


def _draw_cell(
    pen: ImageDraw.ImageDraw, top: int, font: ImageFont.FreeTypeFont, character: str
) -> None:
    """Draw a character into the cell that begins at the row `top`, if it fits."""
    with contextlib.suppress(OSError):  # a glyph that FreeType cannot read
        left, highest, right, lowest = font.getbbox(character, anchor="ls")
        if right - left <= _CELL and highest >= -_BASELINE and lowest <= _CELL - _BASELINE:
            pen.text((-int(left), top + _BASELINE), character, 255, font, anchor="ls")


def _comparable_size(masks: np.ndarray) -> int:
    """Return the em at which the median height above the baseline is HEIGHT.

    masks: of characters at _EM.
    """
    height = float(np.median(_BASELINE - masks.any(2).argmax(1))) if len(masks) else HEIGHT
    return round(min(max(_EM * HEIGHT / max(height, 1), _SIZES[0]), _SIZES[1]))


def alike(masks: np.ndarray) -> np.ndarray:
    """Tell for each two of N masks whether they look alike: (N, N) bool.

    The masks are centred, with empty margins.

    Two tests, as each is blind for what the other sees. Of thin strokes the first finds the ink
    that is more than a pixel from any ink of the other character. In bold characters a narrow gap
    is nowhere far from ink: the second counts the blocks of 2 x 2 pixels that are full in one
    character and empty in the other. Both are shares of the character with less ink, and neither
    sees an outline that moved by one pixel.
    """
    pixels = ink(masks)
    area = pixels.sum(1)
    alone = area[:, None] - pixels @ ink(_widen(masks)).T
    full, empty = ink(_full_blocks(masks)), ink(_full_blocks(~masks))
    blocks = full @ empty.T
    least = np.minimum(area[:, None], area)
    result: np.ndarray = (np.maximum(alone, alone.T) <= _MAX_ALONE * least) & (
        blocks + blocks.T <= _MAX_BLOCKS * least
    )
    return result


def _crop(masks: np.ndarray) -> np.ndarray:
    """Return the rows and columns where any mask has ink, with a margin of one pixel."""
    rows, columns = np.flatnonzero(masks.any((0, 2))), np.flatnonzero(masks.any((0, 1)))
    inner = masks[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.pad(inner, ((0, 0), (1, 1), (1, 1)))


def _centre(masks: np.ndarray) -> np.ndarray:
    """Move the ink of each mask sideways into the middle; a margin of one pixel stays empty."""
    columns = masks.max(1)
    width = masks.shape[2]
    middles = (columns.argmax(1) + width - columns[:, ::-1].argmax(1)) // 2
    sources = (np.arange(width) + middles[:, None] - width // 2) % width
    return np.take_along_axis(masks, sources[:, None], 2)


def ink(masks: np.ndarray) -> np.ndarray:
    """Return each mask as a row of float32, in which products of matrices count pixels exactly."""
    rows: np.ndarray = masks.reshape(len(masks), -1).astype(np.float32)
    return rows


def _widen(masks: np.ndarray) -> np.ndarray:
    """Return which pixels have ink in the 3 x 3 around them; the margins are empty."""
    wide = masks.copy()
    wide[:, :, 1:] |= masks[:, :, :-1]
    wide[:, :, :-1] |= masks[:, :, 1:]
    high = wide.copy()
    high[:, 1:] |= wide[:, :-1]
    high[:, :-1] |= wide[:, 1:]
    return high


def _full_blocks(masks: np.ndarray) -> np.ndarray:
    """Return where masks have blocks of 2 x 2 pixels that are all true."""
    blocks: np.ndarray = (
        masks[:, :-1, :-1] & masks[:, 1:, :-1] & masks[:, :-1, 1:] & masks[:, 1:, 1:]
    )
    return blocks


def without_twins(characters: str, pairs: Sequence[str], rng: random.Random) -> str:
    """Leave out one character of each pair that is there whole; at least one character stays."""
    kept = list(characters)
    for pair in pairs:
        if len(kept) > 1 and set(pair) <= set(kept):
            kept.remove(rng.choice(pair))
    return "".join(kept)
