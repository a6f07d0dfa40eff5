from pathlib import Path

import pytest
from matplotlib.font_manager import FontEntry, findfont, fontManager, get_font

from captcha_ocr.system.fonts import OWN_FONT, fonts_for, visible


@pytest.mark.parametrize("character", [*"aß→אяع\u0301"])
def test_the_own_font_comes_first(character):
    assert Path(fonts_for(character)[character].fname) == Path(findfont(OWN_FONT))


def test_what_the_own_font_lacks_comes_from_another_that_has_it():
    lacking = [chr(code) for code in range(0x1D400, 0x1D800) if not get_font(findfont(OWN_FONT)).get_char_index(code)]
    found = fonts_for(lacking)  # letters of mathematics, which matplotlib's STIX fonts have
    assert found
    for character, font in found.items():
        assert get_font(font.fname).get_char_index(ord(character))
        assert font.name not in (OWN_FONT, "Last Resort High-Efficiency")


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
        ("\u0301", "\u25cc\u0301"),
    ],
)
def test_every_character_becomes_visible(character, name):
    assert visible(character, fonts_for(character)) == name
