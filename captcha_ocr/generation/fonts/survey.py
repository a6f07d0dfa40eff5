"""Which characters a font has, which look alike in it, and whether they are framed."""

import contextlib
import string
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

_PAIRED = string.digits + string.ascii_uppercase + string.ascii_lowercase
ALPHABET = _PAIRED + "+-*/=?@&%#$!:"
_NOTDEF = "\U0010ffff"  # no character, so every font draws the box of a missing one
_EM = 48  # pixels, of the first look at a font
_HEIGHT = 36  # pixels of the median of _PAIRED above the baseline when they are compared
_SIZES = 8, 400  # pixels of an em, the smallest and the largest; a font may state any unit
_CELL = 3 * _EM  # pixels, the side of the square for a character
_BASELINE = 2 * _EM  # pixels below the top of a cell
_INK = 64  # coverage that counts as ink, of 255: a line of half a pixel between two pixels has it
# Chosen by eye from pictures of pairs in 488 faces: just above them are a dot in a zero, and a bold
# b beside an h.
_MAX_ALONE = 0.02  # of the ink far from any ink of the other character, see `find_alike`
_MAX_BLOCKS = 0.015
# Of 488 faces of texts three have frames: they share 0.68 to 0.71 of their ink, no other more than
# 0.06.
_SHARED_BY, _MAX_SHARED = 0.9, 0.25


_Masks = NDArray[np.bool_]  # (N, rows, columns), where N characters have ink


@dataclass(frozen=True)
class Glyphs:
    """What a font draws for ALPHABET.

    family: as the font states it; may be empty.
    characters: those of ALPHABET that the font has, in the order of ALPHABET. A character counts if
        its glyph has ink and is not the box of a missing character.
    look_alikes: sorted pairs, such as `0O`, of digits and letters that nobody can tell apart in
        this font if they have the same size and stand on the same baseline. The first of a pair
        stands earlier in ALPHABET.
    framed: whether the characters share much of their ink, such as a frame or a background around
        each.
    """

    family: str
    characters: str
    look_alikes: tuple[str, ...]
    framed: bool


def examine(data: bytes) -> Glyphs:
    """Return what the bytes of a font file draw.

    OSError if FreeType cannot read them as a font of any size.
    """

    def load(size: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(BytesIO(data), size, layout_engine=ImageFont.Layout.BASIC)

    font, family = load(_EM), ""
    with contextlib.suppress(ValueError):  # a name that is not UTF-8
        family = font.getname()[0] or ""
    characters, masks = _draw(font, ALPHABET)
    paired = "".join(character for character in characters if character in _PAIRED)
    if paired:
        height = np.median(_BASELINE - masks[: len(paired)].any(2).argmax(1))
        size = np.clip(_EM * _HEIGHT / max(height, 1), *_SIZES)
        paired, masks = _draw(load(round(size)), paired)
    if len(paired) < 2:
        return Glyphs(family, characters, (), False)
    masks = _align(masks)
    first, second = np.nonzero(np.triu(find_alike(masks), 1))
    pairs = sorted(paired[one] + paired[other] for one, other in zip(first, second, strict=True))
    # The ink that nearly all characters have in common, such as a frame.
    shared = float((masks & (masks.mean(0) >= _SHARED_BY)).sum() / masks.sum())
    return Glyphs(family, characters, tuple(pairs), shared > _MAX_SHARED)


def _draw(font: ImageFont.FreeTypeFont, characters: str) -> tuple[str, _Masks]:
    """Return the characters that a font has, and where their ink is, all on one baseline.

    A character without ink, one drawn like the box of a missing character, and one that needs more
    than a cell count as missing.
    """
    strip = Image.new("L", (_CELL, _CELL * (1 + len(characters))))
    pen = ImageDraw.Draw(strip)
    for number, character in enumerate((_NOTDEF, *characters)):
        with contextlib.suppress(OSError):  # a glyph that FreeType cannot read
            left, highest, right, lowest = font.getbbox(character, anchor="ls")
            if right - left <= _CELL and highest >= -_BASELINE and lowest <= _CELL - _BASELINE:
                place = -int(left), number * _CELL + _BASELINE
                pen.text(place, character, 255, font, anchor="ls")
    cells = np.asarray(strip).reshape(-1, _CELL, _CELL)
    notdef, coverage = cells[0], cells[1:]
    held = (coverage >= _INK).any((1, 2)) & (coverage != notdef).any((1, 2))
    kept = "".join(character for character, has in zip(characters, held, strict=True) if has)
    return kept, coverage[held] >= _INK


def _align(masks: _Masks) -> _Masks:
    """Move the ink of each mask sideways into the middle; leave an empty margin of one pixel.

    Rows and columns without ink in any mask are left out.
    """
    rows, columns = np.flatnonzero(masks.any((0, 2))), np.flatnonzero(masks.any((0, 1)))
    inner = masks[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    masks = np.pad(inner, ((0, 0), (1, 1), (1, 1)))
    filled: _Masks = masks.max(1)
    width = filled.shape[1]
    middles = (filled.argmax(1) + width - filled[:, ::-1].argmax(1)) // 2
    sources = (np.arange(width) + middles[:, None] - width // 2) % width
    return np.take_along_axis(masks, sources[:, None], 2)


def find_alike(masks: _Masks) -> _Masks:
    """Tell for each two of N masks whether they look alike: (N, N) bool.

    The masks are centred, with empty margins.

    Two tests, as each is blind for what the other sees. Of thin strokes the first finds the ink
    that is more than a pixel from any ink of the other character. In bold characters a narrow gap
    is nowhere far from ink: the second counts the blocks of 2 x 2 pixels that are full in one
    character and empty in the other. Both are shares of the character with less ink, and neither
    sees an outline that moved by one pixel.
    """
    pixels = _flatten(masks)
    area = pixels.sum(1)
    wide = masks
    for axis in (1, 2):
        wide = wide | np.roll(wide, 1, axis) | np.roll(wide, -1, axis)
    alone = area[:, None] - pixels @ _flatten(wide).T
    blocks = _flatten(_full_blocks(masks)) @ _flatten(_full_blocks(~masks)).T
    least = np.minimum(area[:, None], area)
    alike: _Masks = np.maximum(alone, alone.T) <= _MAX_ALONE * least
    alike &= blocks + blocks.T <= _MAX_BLOCKS * least
    return alike


def _flatten(masks: _Masks) -> NDArray[np.float32]:
    """Return each mask as a row of float32, in which products of matrices count pixels exactly."""
    return masks.reshape(len(masks), -1).astype(np.float32)


def _full_blocks(masks: _Masks) -> _Masks:
    """Return where masks have blocks of 2 x 2 pixels that are all true."""
    rows = masks[:, :-1] & masks[:, 1:]
    return rows[:, :, :-1] & rows[:, :, 1:]
