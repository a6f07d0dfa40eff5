"""Which installed font has a character: DejaVu Sans, which comes with matplotlib, lacks many scripts."""

import logging
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from matplotlib.font_manager import FontEntry, findfont, fontManager, get_font

OWN_FONT = "DejaVu Sans"
# It warns of every font that has no weight of 400, which many fonts of other scripts lack.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def fonts_for(characters: Iterable[str]) -> dict[str, FontEntry]:
    """Return for each character a font that has it: DejaVu Sans if it can; a character that no font has is left out."""
    own = Path(findfont(OWN_FONT))
    # The regular fonts come first. Last Resort has a box for every character.
    others = sorted(fontManager.ttflist, key=lambda font: (font.style, font.weight) != ("normal", 400))
    others = [font for font in others if not font.name.startswith("Last Resort")]
    found: dict[str, FontEntry] = {}
    missing = set(characters)
    for font in (FontEntry(fname=str(own), name=OWN_FONT), *others):
        if not missing:
            break
        if Path(font.fname).exists():  # matplotlib's list may be older than the fonts
            face = get_font(font.fname)
            here = {character for character in missing if face.get_char_index(ord(character))}
            found |= dict.fromkeys(here, font)
            missing -= here
    return found


def visible(character: str, fonts: dict[str, FontEntry]) -> str:
    """Return what shows a character in a picture: itself (a mark on a dotted circle), or its code point."""
    if character == " ":
        return "space"
    if not character.isprintable() or character.isspace() or character not in fonts:
        return f"U+{ord(character):04X}"
    return f"\u25cc{character}" if unicodedata.category(character).startswith("M") else character
