from pathlib import Path

import pytest
from matplotlib.font_manager import FontEntry, findfont, fontManager, get_font

from captcha_ocr.pictures.script_fonts import OWN_FONTS, fonts_for, visible


@pytest.mark.parametrize(
    ("characters", "name"),
    [
        ("0O", OWN_FONTS[0]),
        ("aßя\u0301", OWN_FONTS[0]),
        ("ש12", OWN_FONTS[1]),
        ("ֿאב", OWN_FONTS[1]),
    ],
)
def test_an_own_font_that_has_all_characters_comes_first(characters, name):
    assert {Path(font.fname) for font in fonts_for(characters).values()} == {Path(findfont(name))}


def test_what_the_own_fonts_lack_comes_from_another_that_has_it():
    covered = [get_font(findfont(name)).get_charmap().keys() for name in OWN_FONTS]
    lacking = [*map(chr, {*range(0x1D400, 0x1D800)}.difference(*covered))]
    fonts = fonts_for(lacking)  # letters of mathematics, which matplotlib's STIX fonts have
    assert fonts
    for character, font in fonts.items():
        assert get_font(font.fname).get_char_index(ord(character))
        assert font.name not in (*OWN_FONTS, "Last Resort High-Efficiency")


def test_what_no_font_has_is_left_out_even_if_a_font_of_the_list_is_gone(monkeypatch):
    gone = FontEntry(fname="gone.ttf", name="Gone", style="normal", weight=400)
    monkeypatch.setattr(fontManager, "ttflist", [gone, *fontManager.ttflist])
    assert set(fonts_for("a\ufdd0")) == {"a"}


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("a", "a"),
        ("\ufdd0", "U+FDD0"),
        (" ", "space"),
        ("\u2003", "U+2003"),
        ("\u200d", "U+200D"),
        ("e\u0323\u0301", "e\u0323\u0301"),
        ("\ufdd0\u0301", "U+FDD0 U+0301"),
        ("\u0301", "\u25cc\u0301"),
    ],
)
def test_every_character_becomes_visible(character, name):
    assert visible(character, fonts_for([character])) == name
