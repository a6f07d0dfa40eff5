import numpy as np
from PIL import Image

from captcha_ocr.diagnostics.contact_sheet import (
    COLUMNS,
    GAP,
    LINE,
    ROWS,
    TILE,
    draw_sheet,
    fit_text,
    font,
    replace_missing_glyphs,
)


def picture(path, size, colour):
    Image.new("RGB", size, colour).save(path)
    return path


def test_every_image_fits_its_tile(tmp_path):
    wide = picture(tmp_path / "wide.png", (400, 20), "red")
    high = picture(tmp_path / "high.png", (10, 300), "blue")
    assert draw_sheet([(wide, "a"), (high, "b")], tmp_path / "sheet.png") == 2
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.asarray(sheet).astype(int)
    assert pixels.shape == (TILE[1] + LINE + 2 * GAP, COLUMNS * (TILE[0] + GAP) + GAP, 3)
    red, blue = ((pixels[..., channel] - pixels[..., 2 - channel]) > 200 for channel in (0, 2))
    first = slice(GAP, GAP + TILE[0])
    assert red[:, first].sum() == red.sum() == TILE[0] * (TILE[0] * 20 // 400)
    assert blue[:, first].sum() == 0
    assert blue.any(1).sum() == TILE[1]


def test_a_full_sheet_drops_the_rest_and_an_unreadable_image_keeps_its_tile(tmp_path):
    assert draw_sheet([(tmp_path / "none.png", "a")] * 1000, tmp_path / "sheet.png") == COLUMNS * ROWS


def test_a_text_fits_below_its_tile():
    assert replace_missing_glyphs("aß中") == "aß<U+4E2D>"  # which the font lacks
    assert fit_text("A1B2") == "A1B2"
    short = fit_text("W" * 40)
    assert short.endswith("W…")
    assert font().getlength(short) <= TILE[0] < font().getlength(short.replace("…", "W…"))
