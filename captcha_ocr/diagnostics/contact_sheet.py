"""A contact sheet: many small images on one, each with a line of text below it."""

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from captcha_ocr.config import MAX_BYTES
from captcha_ocr.data.images import flatten, open_image
from captcha_ocr.errors import ImageError
from captcha_ocr.system.files import write_atomic

COLUMNS, ROWS = 6, 12
TILE = (190, 72)  # pixels, width and height, in which an image has room
LINE, GAP = 18, 8  # pixels: for the text below, and between tiles
FONT_SIZE = 14


def draw_sheet(tiles: Sequence[tuple[Path, str]], path: Path, max_bytes: int = MAX_BYTES) -> int:
    """Write a PNG of the first images of (file, text), as many as have room; returns how many there are.

    A file that cannot be read leaves its place empty. Characters that the font lacks are written as their number.
    """
    tiles = tiles[: COLUMNS * ROWS]
    rows = -(-len(tiles) // COLUMNS)
    width, height = TILE[0] + GAP, TILE[1] + LINE + GAP
    sheet = Image.new("RGB", (COLUMNS * width + GAP, rows * height + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (file, text) in enumerate(tiles):
        x, y = GAP + number % COLUMNS * width, GAP + number // COLUMNS * height
        draw.rectangle((x - 1, y - 1, x + TILE[0], y + TILE[1]), outline="lightgrey")
        tile = fitted(file, max_bytes)
        if tile is not None:
            sheet.paste(tile, (x + (TILE[0] - tile.width) // 2, y + (TILE[1] - tile.height) // 2))
        draw.text((x, y + TILE[1] + 1), shortened(shown(text)), fill="black", font=font())
    picture = io.BytesIO()
    sheet.save(picture, format="PNG")
    write_atomic(path, picture.getvalue())
    return len(tiles)


def fitted(file: Path, max_bytes: int) -> Image.Image | None:
    """An image, made smaller or larger to fit its tile; None where it cannot be read."""
    try:
        image = flatten(open_image(file, max_bytes), "RGB")
    except ImageError:
        return None
    scale = min(TILE[0] / image.width, TILE[1] / image.height)
    return image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))))


def shortened(text: str) -> str:
    """As much of a text as has room below a tile."""
    length = len(text)
    while font().getlength(short := text[:length] + "…" * (length < len(text))) > TILE[0]:
        length -= 1
    return short


@lru_cache(maxsize=1)
def font() -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings along, which has more alphabets than Pillow's own."""
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), FONT_SIZE)


def shown(text: str) -> str:
    """`text` with the characters that the font lacks as U+ and their number."""
    lacking = bytes(font().getmask("\U0010ffff"))
    return "".join(c if bytes(font().getmask(c)) != lacking else f"<U+{ord(c):04X}>" for c in text)
