"""A contact sheet: many small images in one picture, each with its name and text, or with what was read instead."""

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import chain, groupby, zip_longest
from pathlib import Path

from matplotlib.font_manager import FontEntry, findfont
from PIL import Image, ImageDraw, ImageFont

from captcha_ocr.charset import has_right_to_left, split_characters, visual_order
from captcha_ocr.config import MAX_BYTES
from captcha_ocr.data.images import flatten, open_image
from captcha_ocr.errors import ImageError
from captcha_ocr.pictures.script_fonts import OWN_FONTS, fonts_for, visible
from captcha_ocr.system.files import write_atomic

COLUMNS, ROWS = 6, 12
TILE = (190, 72)  # pixels, width and height, for an image
GAP = 10  # pixels between tiles
NAME_SIZE, TEXT_SIZE = 12, 16  # pixels, of fonts
LEADING = 1.3  # height of a line, in sizes of its font
INDENT = 46  # pixels, for the words before texts
GREY, MARK = (
    "#555555",
    "#FFC45C",
)  # what differs stands on orange and is underlined: it takes no eye for colours

Fonts = dict[str, FontEntry]


@dataclass(frozen=True)
class Tile:
    """An image or its file, the name to show, and its text. read: what a model reads instead, with its confidence."""

    image: Path | Image.Image
    name: str
    text: str
    read: str | None = None
    confidence: float = 0.0


@dataclass(frozen=True)
class Block:
    """Text below an image, in columns: each holds the characters that stand below one another, one or two.

    A column of two different characters is marked. before: a word before each line.
    """

    columns: Sequence[tuple[str, ...]]
    size: int = TEXT_SIZE
    colour: str = "black"
    before: tuple[str, ...] = ()


def draw_sheet(
    tiles: Sequence[Tile], path: Path, max_bytes: int = MAX_BYTES, rows: int = ROWS
) -> None:
    """Write a PNG of the first tiles, as many as fit; the image stays empty if its file cannot be read."""
    tiles = tiles[: COLUMNS * rows]
    blocks = [blocks_of(tile) for tile in tiles]
    fonts = fonts_for(
        {
            *chain.from_iterable(
                "".join(column) for tile in blocks for each in tile for column in each.columns
            )
        }
    )
    pieces = [[piece for each in tile for piece in wrap(each, fonts)] for tile in blocks]
    lines = [
        range(first, min(first + COLUMNS, len(tiles))) for first in range(0, len(tiles), COLUMNS)
    ]
    heights = [
        TILE[1] + max(sum(map(height_of, pieces[number])) for number in line) + GAP
        for line in lines
    ]
    sheet = Image.new("RGB", (len(lines[0]) * (TILE[0] + GAP) + GAP, sum(heights) + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    y = GAP
    for line, height in zip(lines, heights, strict=True):
        for column, number in enumerate(line):
            x = GAP + column * (TILE[0] + GAP)
            draw.rectangle((x - 1, y - 1, x + TILE[0], y + TILE[1]), outline="lightgrey")
            with suppress(ImageError):
                source = tiles[number].image
                image = fit(
                    flatten(open_image(source, max_bytes), "RGB")
                    if isinstance(source, Path)
                    else source
                )
                sheet.paste(
                    image, (x + (TILE[0] - image.width) // 2, y + (TILE[1] - image.height) // 2)
                )
            below = y + TILE[1] + 2
            for piece in pieces[number]:
                write(draw, x, below, piece, fonts)
                below += height_of(piece)
        y += height
    picture = io.BytesIO()
    sheet.save(picture, format="PNG")
    write_atomic(path, picture.getvalue())


def fit(image: Image.Image) -> Image.Image:
    """Resize an image to the size of a tile; its proportions stay."""
    scale = min(TILE[0] / image.width, TILE[1] / image.height)
    return image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))))


def blocks_of(tile: Tile) -> list[Block]:
    """Return what stands below an image: its name and its text, or its label above what was read."""
    name = Block([(cluster,) for cluster in split_characters(tile.name)], NAME_SIZE, GREY)
    if tile.read is None:
        return [name, Block([(cluster,) for cluster in split_characters(tile.text)])]
    confidence = Block(
        [(character,) for character in f"confidence {tile.confidence:.2f}"], NAME_SIZE, GREY
    )
    return [name, Block(align(tile.text, tile.read), before=("label", "read")), confidence]


def align(label: str, read: str) -> list[tuple[str, str]]:
    """Return the characters of two texts in pairs, as seen from left to right; where a text has none, it is empty.

    Texts of one length are compared position by position.
    """
    one, other = split_characters(label), split_characters(read)
    pairs = [*zip_longest(one, other, fillvalue="")]
    if len(one) != len(other):
        steps = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
        parts = (zip_longest(one[a:b], other[c:d], fillvalue="") for _, a, b, c, d in steps)
        pairs = [*chain.from_iterable(parts)]
    # What stands in a column: of two characters the one from right to left, if there is one.
    columns = [max(filter(None, pair), key=has_right_to_left) for pair in pairs]
    return [pairs[number] for number in visual_order(columns)]


def wrap(block: Block, fonts: Fonts) -> list[Block]:
    """Break a block into pieces that are no wider than a tile, in characters that fonts have."""
    room = TILE[0] - INDENT * bool(block.before)
    pieces: list[list[tuple[str, ...]]] = []
    left = 0.0
    for column in block.columns:
        column = tuple(drawable(cluster, fonts) for cluster in column)
        width = width_of(column, block.size, fonts)
        if width > left:
            pieces.append([])
            left = room
        pieces[-1].append(column)
        left -= width
    return [replace(block, columns=piece) for piece in pieces]


def drawable(cluster: str, fonts: Fonts) -> str:
    """Return a character with its marks, or what stands for it if it is invisible or no font has it."""
    has_all = cluster.isprintable() and all(character in fonts for character in cluster)
    if cluster == " " or (len(cluster) > 1 and has_all):
        return cluster
    return "".join(visible(character, fonts) for character in cluster)


def height_of(piece: Block) -> int:
    """Return the height of a piece, in pixels."""
    return round(LEADING * piece.size) * len(piece.columns[0])


def width_of(column: tuple[str, ...], size: int, fonts: Fonts) -> float:
    """Return the width of a column, in pixels."""
    return max(font_of(text, size, fonts).getlength(text) for text in column)


def font_of(text: str, size: int, fonts: Fonts) -> ImageFont.FreeTypeFont:
    """Return the font of a text whose characters are all in one."""
    return load_font(
        fonts[text[0]].fname if text and text[0] in fonts else findfont(OWN_FONTS[0]), size
    )


load_font = lru_cache(ImageFont.truetype)


def write(draw: ImageDraw.ImageDraw, x: int, y: int, piece: Block, fonts: Fonts) -> None:
    """Write a piece of a block, with its upper left corner at (x, y)."""
    line = round(LEADING * piece.size)
    baselines = [y + number * line + round(0.75 * line) for number in range(len(piece.columns[0]))]
    for word, baseline in zip(piece.before, baselines, strict=False):
        draw.text((x, baseline), word, fill=GREY, font=font_of(word, NAME_SIZE, fonts), anchor="ls")
    columns = piece.columns
    if (
        len(baselines) == 1
    ):  # written together: the characters of many scripts are joined, or run from right to left
        runs = groupby(
            (text for (text,) in columns), key=lambda text: font_of(text, piece.size, fonts)
        )
        columns = [("".join(run),) for _, run in runs]
    left = float(x + INDENT * bool(piece.before))
    for column in columns:
        width = width_of(column, piece.size, fonts)
        if len(set(column)) > 1:
            draw.rectangle((left, y + 1, left + width - 1, y + height_of(piece) - 1), fill=MARK)
        for text, baseline in zip(column, baselines, strict=True):
            font = font_of(text, piece.size, fonts)
            start = left + (width - font.getlength(text)) / 2
            draw.text((start, baseline), text, fill=piece.colour, font=font, anchor="ls")
            if len(set(column)) > 1:
                draw.line(
                    (left, baseline + 3, left + width - 1, baseline + 3), fill="black", width=2
                )
        left += width
