"""A contact sheet: many small images in one picture, each with its name and its text.

Where a model reads another text, both stand below one another, and what differs is marked.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import accumulate, chain, groupby, zip_longest
from operator import attrgetter
from pathlib import Path

from matplotlib.font_manager import FontEntry, findfont
from PIL import Image, ImageDraw, ImageFont

from captcha_ocr.charset import has_right_to_left, split_characters, visual_order
from captcha_ocr.data.images import encode_png, flatten, open_image
from captcha_ocr.errors import ImageError
from captcha_ocr.options.shared import MAX_BYTES
from captcha_ocr.pictures.script_fonts import OWN_FONTS, fonts_for, visible
from captcha_ocr.system.files import write_atomic

COLUMNS, ROWS = 6, 12
TILE = (190, 72)  # pixels, width and height, for an image
GAP = 10  # pixels between tiles
_INDENT = 46  # pixels, for the words before texts
_NAME_SIZE, _TEXT_SIZE = 12, 16  # pixels, of fonts
_LEADING = 1.3  # height of a line, in sizes of its font
_GREY = "#555555"
_MARK = "#FFC45C"  # what differs is also underlined: it takes no eye for colours

Fonts = dict[str, FontEntry]


@dataclass(frozen=True)
class Tile:
    """An image or its file, the name to show, and its text.

    read: what a model reads instead, with its confidence.
    """

    image: Path | Image.Image
    name: str
    text: str
    read: str | None = None
    confidence: float = 0.0


@dataclass(frozen=True)
class TextBlock:
    """Text below an image, in columns: each holds one character, or two below one another.

    The characters of two lines are compared: a column of two different ones is marked.
    """

    columns: Sequence[tuple[str, ...]]
    size: int = _TEXT_SIZE

    @property
    def height(self) -> int:
        """The height in pixels, for a block that is no wider than a tile."""
        return round(_LEADING * self.size) * len(self.columns[0])

    @property
    def indent(self) -> int:
        """The pixels before the first column."""
        return _INDENT if len(self.columns[0]) > 1 else 0


def draw_sheet(
    tiles: Sequence[Tile], path: Path, max_bytes: int = MAX_BYTES, rows: int = ROWS
) -> None:
    """Write a PNG of the first tiles, as many as fit; one whose file cannot be read stays empty."""
    tiles = tiles[: COLUMNS * rows]
    fonts = find_fonts(tiles)
    texts = [lay_out_texts(tile, fonts) for tile in tiles]
    heights = [TILE[1] + GAP + sum(map(attrgetter("height"), blocks)) for blocks in texts]
    starts = range(0, len(tiles), COLUMNS)
    tops = list(accumulate((max(heights[n : n + COLUMNS]) for n in starts), initial=GAP))
    width = min(COLUMNS, len(tiles)) * (TILE[0] + GAP) + GAP
    sheet = Image.new("RGB", (width, tops[-1]), "white")
    canvas = ImageDraw.Draw(sheet)
    for number, tile in enumerate(tiles):
        x, y = GAP + number % COLUMNS * (TILE[0] + GAP), tops[number // COLUMNS]
        canvas.rectangle((x - 1, y - 1, x + TILE[0], y + TILE[1]), outline="lightgrey")
        with suppress(ImageError):
            image = flatten(open_image(tile.image, max_bytes), "RGB")
            scale = min(TILE[0] / image.width, TILE[1] / image.height)
            size = max(1, int(image.width * scale)), max(1, int(image.height * scale))
            image = image.resize(size)
            sheet.paste(
                image, (x + (TILE[0] - image.width) // 2, y + (TILE[1] - image.height) // 2)
            )
        y += TILE[1] + 2
        for block in texts[number]:
            _write(canvas, x, y, block, fonts)
            y += block.height
    write_atomic(path, encode_png(sheet))


def find_fonts(tiles: Sequence[Tile]) -> Fonts:
    """Return a font for each character below these tiles that a font has."""
    texts = (tile.name + tile.text + (tile.read or "") for tile in tiles)
    return fonts_for("".join(["confidence 0.123456789", *texts]))


def lay_out_texts(tile: Tile, fonts: Fonts) -> list[TextBlock]:
    """Return what stands below an image, from top to bottom; no block is wider than a tile.

    That is its name and its text, or its name, its label above what was read, and the confidence.
    """
    blocks = [_make_line(tile.name, _NAME_SIZE)]
    if tile.read is None:
        blocks.append(_make_line(tile.text, _TEXT_SIZE))
    else:
        blocks.append(TextBlock(align(tile.text, tile.read)))
        blocks.append(_make_line(f"confidence {tile.confidence:.2f}", _NAME_SIZE))
    return [piece for block in blocks for piece in _wrap(block, fonts)]


def _make_line(text: str, size: int) -> TextBlock:
    return TextBlock([(cluster,) for cluster in split_characters(text)], size)


def align(label: str, read: str) -> list[tuple[str, str]]:
    """Return the characters of two texts in pairs, as seen from left to right.

    Where a text has none, it is empty. Texts of one length are compared position by position.
    """
    labelled, predicted = split_characters(label), split_characters(read)
    pairs = list(zip(labelled, predicted, strict=False))
    if len(labelled) != len(predicted):
        steps = SequenceMatcher(None, labelled, predicted, autojunk=False).get_opcodes()
        parts = (
            zip_longest(labelled[a:b], predicted[c:d], fillvalue="") for _, a, b, c, d in steps
        )
        pairs = list(chain.from_iterable(parts))
    # What stands in a column: of two characters the one from right to left, if there is one.
    columns = [max(filter(None, pair), key=has_right_to_left) for pair in pairs]
    return [pairs[number] for number in visual_order(columns)]


def _wrap(block: TextBlock, fonts: Fonts) -> list[TextBlock]:
    """Break a block into pieces that are no wider than a tile, in characters that fonts have."""
    pieces: list[list[tuple[str, ...]]] = []
    room = 0.0
    for clusters in block.columns:
        column = tuple(_make_drawable(cluster, fonts) for cluster in clusters)
        width = measure_width(column, block.size, fonts)
        if width > room:
            pieces.append([])
            room = TILE[0] - block.indent
        pieces[-1].append(column)
        room -= width
    return [replace(block, columns=piece) for piece in pieces]


def _make_drawable(cluster: str, fonts: Fonts) -> str:
    """Return a character with its marks, or what stands for what is invisible or has no font."""
    has_all = cluster.isprintable() and all(character in fonts for character in cluster)
    if cluster == " " or (len(cluster) > 1 and has_all):
        return cluster
    return "".join(visible(character, fonts) for character in cluster)


def measure_width(column: tuple[str, ...], size: int, fonts: Fonts) -> float:
    """Return the width of a column, in pixels."""
    return max(_choose_font(text, size, fonts).getlength(text) for text in column)


def _choose_font(text: str, size: int, fonts: Fonts) -> ImageFont.FreeTypeFont:
    """Return the font of a text whose characters are all in one."""
    font = fonts.get(text[:1])
    return _load_font(font.fname if font else findfont(OWN_FONTS[0]), size)


_load_font = lru_cache(ImageFont.truetype)


def _write(canvas: ImageDraw.ImageDraw, x: int, y: int, block: TextBlock, fonts: Fonts) -> None:
    columns = block.columns
    line = round(_LEADING * block.size)
    baselines = [y + number * line + round(0.75 * line) for number in range(len(columns[0]))]
    colour = _GREY if block.size == _NAME_SIZE else "black"
    if len(baselines) > 1:
        font = _choose_font("label", _NAME_SIZE, fonts)
        for word, baseline in zip(("label", "read"), baselines, strict=True):
            canvas.text((x, baseline), word, fill=_GREY, font=font, anchor="ls")
    else:
        # Characters of many scripts are joined, or run from right to left: write them together.
        runs = groupby(
            chain.from_iterable(columns), lambda text: _choose_font(text, block.size, fonts)
        )
        columns = [("".join(run),) for _, run in runs]
    left = float(x + block.indent)
    for column in columns:
        width = measure_width(column, block.size, fonts)
        right, differs = left + width - 1, len(set(column)) > 1
        if differs:
            canvas.rectangle((left, y + 1, right, y + block.height - 1), fill=_MARK)
        for text, baseline in zip(column, baselines, strict=True):
            font = _choose_font(text, block.size, fonts)
            start = left + (width - font.getlength(text)) / 2
            canvas.text((start, baseline), text, fill=colour, font=font, anchor="ls")
            if differs:
                canvas.line((left, baseline + 3, right, baseline + 3), fill="black", width=2)
        left += width
