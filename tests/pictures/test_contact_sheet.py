import numpy as np
import pytest
from PIL import Image

from captcha_ocr.pictures.contact_sheet import (
    COLUMNS,
    GAP,
    ROWS,
    TILE,
    Tile,
    align,
    draw_sheet,
    find_fonts,
    lay_out_texts,
    measure_width,
)


def lines_below(tile):
    """The lines of text below an image, as they are drawn; every one fits below it."""
    fonts = find_fonts([tile])
    lines = []
    for block in lay_out_texts(tile, fonts):
        width = sum(measure_width(column, block.size, fonts) for column in block.columns)
        assert width + block.indent <= TILE[0]
        lines += ["".join(texts) for texts in zip(*block.columns, strict=True)]
    return lines


def test_every_image_fits_its_tile(tmp_path):
    wide, high = tmp_path / "wide.png", tmp_path / "high.png"
    Image.new("RGB", (400, 20), "red").save(wide)
    Image.new("RGB", (10, 300), "blue").save(high)
    draw_sheet([Tile(wide, "w", "a"), Tile(high, "h", "b")], tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.asarray(sheet).astype(int)
    assert pixels.shape[1:] == (2 * (TILE[0] + GAP) + GAP, 3)  # as wide as its tiles
    red, blue = ((pixels[..., channel] - pixels[..., 2 - channel]) > 200 for channel in (0, 2))
    first = slice(GAP, GAP + TILE[0])
    assert red[:, first].sum() == red.sum() == TILE[0] * (TILE[0] * 20 // 400)
    assert (blue[:, first].sum(), blue.any(1).sum()) == (0, TILE[1])


def test_a_full_sheet_drops_the_rest_and_an_unreadable_image_keeps_its_tile(tmp_path):
    tile = Tile(tmp_path / "none.png", "n", "a")
    below = sum(block.height for block in lay_out_texts(tile, find_fonts([tile])))
    size = COLUMNS * (TILE[0] + GAP) + GAP, ROWS * (TILE[1] + below + GAP) + GAP
    for count in (COLUMNS * ROWS, 1000):
        draw_sheet([tile] * count, tmp_path / "sheet.png")
        with Image.open(tmp_path / "sheet.png") as sheet:
            assert sheet.size == size


ID = "train/550e8400-e29b-41d4-a716-446655440000.png"


@pytest.mark.parametrize(
    ("name", "drawn", "text", "least_lines"),
    [
        ("a.png", "a.png", "A1B2", 2),
        ("a.png", "a.png", "", 1),  # an image without a label
        (ID, ID, "W" * 64, 2 + 4),
        ("x" * 255, "x" * 255, "a b  c", 9 + 1),
        ("e\u0301.png", "e\u0301.png", "שלום12", 2),
        # What cannot be drawn is named.
        ("a\nb.png", "aU+000Ab.png", "", 1),
        ("\udcff.png", "U+DCFF.png", "", 1),
        ("\u202ea.png", "U+202Ea.png", "", 1),
        ("\ufdd0", "U+FDD0", "", 1),
    ],
)
def test_names_and_texts_are_never_cut(name, drawn, text, least_lines):
    lines = lines_below(Tile("none", name, text))
    assert "".join(lines) == drawn + text
    assert len(lines) >= least_lines


def test_what_was_read_stands_below_the_label_with_its_confidence():
    tile = Tile("none", "492.png", "4gggiu", "4gggtu", 0.9825)
    assert lines_below(tile) == ["492.png", "4gggiu", "4gggtu", "confidence 0.98"]
    long = lines_below(Tile("none", "a.png", "W" * 30, "W" * 29, 0.5))
    # Label and reading in turn.
    assert ("".join(long[1:-1:2]), "".join(long[2:-1:2])) == ("W" * 30, "W" * 29)


@pytest.mark.parametrize(
    ("label", "read", "marked"),
    [
        ("4gggiu", "4gggtu", [(4, "i", "t")]),
        ("82", "22", [(0, "8", "2")]),
        ("3z2vsu", "3z2su", [(3, "v", "")]),
        ("2su", "2vsu", [(1, "", "v")]),
        ("0O0", "O", [(0, "0", ""), (2, "0", "")]),
        ("AB", "", [(0, "A", ""), (1, "B", "")]),
        ("a b", "ab", [(1, " ", "")]),
        ("e\u0301a", "ea", [(0, "e\u0301", "e")]),
        (
            "אב12",
            "אג12",
            [(2, "ב", "ג")],
        ),  # seen from left to right: 1 2, then the letters from the right
        ("中文", "中又", [(1, "文", "又")]),
    ],
)
def test_the_characters_that_differ_are_marked(label, read, marked):
    pairs = align(label, read)
    assert [(place, *pair) for place, pair in enumerate(pairs) if len(set(pair)) > 1] == marked
    for text, seen in zip((label, read), zip(*pairs, strict=True), strict=True):
        assert sorted("".join(seen)) == sorted(text)


def test_numbers_between_letters_from_the_right_keep_their_order():
    assert "".join(label for label, _ in align("אב12ג", "אב12ג")) == "ג12בא"
