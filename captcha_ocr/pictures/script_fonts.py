"""Which installed font has a character: the fonts that come with matplotlib lack many scripts."""

import logging
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from matplotlib.font_manager import FontEntry, findfont, fontManager, get_font

OWN_FONTS = (
    "DejaVu Sans Mono",
    "DejaVu Sans",
)  # the first tells 0 from O, and l from I; the second has more scripts
# It warns of every font that has no weight of 400, which many fonts of other scripts lack.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def fonts_for(characters: Iterable[str]) -> dict[str, FontEntry]:
    """Return for each character a font that has it: one of matplotlib's own if it can.

    What no font has is left out.
    """
    missing = set(characters)
    own = [FontEntry(fname=findfont(name), name=name) for name in OWN_FONTS]
    # A text that mixes letters from right to left with digits needs both in one font: DejaVu Sans
    # then comes first.
    own.sort(key=lambda font: -len(held(font, missing)))
    # The regular fonts come first. Last Resort has a box for every character.
    others = sorted(
        fontManager.ttflist, key=lambda font: (font.style, font.weight) != ("normal", 400)
    )
    found: dict[str, FontEntry] = {}
    for font in (*own, *others):
        # matplotlib's list may be older than the fonts
        if missing and Path(font.fname).exists() and not font.name.startswith("Last Resort"):
            found |= dict.fromkeys(held(font, missing), font)
            missing -= found.keys()
    return found


def held(font: FontEntry, characters: set[str]) -> list[str]:
    """Return the characters that a font has."""
    has = get_font(font.fname).get_char_index
    return [text for text in characters if all(map(has, map(ord, text)))]


def visible(character: str, fonts: dict[str, FontEntry]) -> str:
    """Return what shows a character in a picture.

    Itself (a mark on a dotted circle), or its code point.
    """
    if character == " ":
        return "space"
    if not character.isprintable() or character.isspace() or character not in fonts:
        return " ".join(f"U+{ord(each):04X}" for each in character)
    return f"\u25cc{character}" if unicodedata.category(character[0]).startswith("M") else character
