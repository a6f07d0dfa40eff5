"""A contact sheet: many small images in one picture, each with a line of text."""

import io
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from captcha_ocr.config import MAX_BYTES
from captcha_ocr.data.images import flatten, open_image
from captcha_ocr.errors import ImageError
from captcha_ocr.system.files import write_atomic

COLUMNS, ROWS = 6, 12
TILE = (190, 72)  # pixels, width and height, for an image
LINE, GAP = 18, 8  # pixels, for the text below it and between tiles
FONT_SIZE = 14


def draw_sheet(tiles: Sequence[tuple[Path, str]], path: Path, max_bytes: int = MAX_BYTES) -> int:
    """Write a PNG of the first images of (file, text), as many as fit; returns how many.

    A tile stays empty if its file cannot be read.
    """
    tiles = tiles[: COLUMNS * ROWS]
    rows = -(-len(tiles) // COLUMNS)
    width, height = TILE[0] + GAP, TILE[1] + LINE + GAP
    sheet = Image.new("RGB", (COLUMNS * width + GAP, rows * height + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (file, text) in enumerate(tiles):
        x, y = GAP + number % COLUMNS * width, GAP + number // COLUMNS * height
        draw.rectangle((x - 1, y - 1, x + TILE[0], y + TILE[1]), outline="lightgrey")
        with suppress(ImageError):
            image = flatten(open_image(file, max_bytes), "RGB")
            scale = min(TILE[0] / image.width, TILE[1] / image.height)
            image = image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))))
            sheet.paste(image, (x + (TILE[0] - image.width) // 2, y + (TILE[1] - image.height) // 2))
        draw.text((x, y + TILE[1] + 1), fit_text(replace_missing_glyphs(text)), fill="black", font=font())
    picture = io.BytesIO()
    sheet.save(picture, format="PNG")
    write_atomic(path, picture.getvalue())
    return len(tiles)


def fit_text(text: str) -> str:
    """Shorten a text to the width of a tile."""
    length = len(text)
    while font().getlength(short := text[:length] + "…" * (length < len(text))) > TILE[0]:
        length -= 1
    return short


@lru_cache(maxsize=1)
def font() -> ImageFont.FreeTypeFont:
    """Return the font that comes with matplotlib; it has more alphabets than Pillow's."""
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), FONT_SIZE)


def replace_missing_glyphs(text: str) -> str:
    """Replace the characters that the font lacks by <U+…>."""
    missing = bytes(font().getmask("\U0010ffff"))
    return "".join(c if bytes(font().getmask(c)) != missing else f"<U+{ord(c):04X}>" for c in text)
