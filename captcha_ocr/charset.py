"""The alphabet of a set of captchas: text to class ids and back."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, get_args

from captcha_ocr.errors import LabelError, check

if TYPE_CHECKING:
    import numpy as np  # takes 0.2 s to import, which `captcha-ocr --help` saves

Case = Literal["lower", "upper", None]

# The 3,755 most frequent characters of simplified Chinese: level 1 of GB 2312, rows 16 to 55.
_CHINESE = b"".join(
    bytes((row, cell)) for row in range(0xB0, 0xD8) for cell in range(0xA1, 0xFF)
).decode("gb2312", "ignore")  # the last row has five cells less

NAMED_ALPHABETS = {
    "digits": string.digits,
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "upper-alnum": string.ascii_uppercase + string.digits,
    "lower-alnum": string.ascii_lowercase + string.digits,
    "alnum": string.ascii_uppercase + string.ascii_lowercase + string.digits,
    # Without 0 O, 1 I L: the pairs that people and networks confuse most often.
    "no-lookalikes": "ABCDEFGHJKMNPQRSTUVWXYZ23456789",
    "chinese": _CHINESE,
}
# Words that people write for one: what to write instead
_MEANT = {
    **dict.fromkeys(("num", "number", "numbers", "numeric", "numerals"), "digits"),
    **dict.fromkeys(("letters", "alphabet", "alphabetic"), "A-Za-z"),
    **{"alphanumeric": "alnum", "uppercase": "upper", "lowercase": "lower"},
    **{"hex": "0-9a-f", "hexadecimal": "0-9a-f"},
    **dict(zip(NAMED_ALPHABETS, NAMED_ALPHABETS, strict=True)),
}
_MAY_BE_WORD, _IS_NEAR = re.compile("[A-Za-z _-]{3,20}"), 0.75
_RANGE = re.compile(r"([^\W_])-([^\W_])")
# Characters that look nearly the same once a glyph is cropped and stretched: a score counts them
# separately.
LOOKALIKES = ("0Oo", "1Il|", "Cc", "Kk", "Pp", "Ss", "Uu", "Vv", "Ww", "Xx", "Zz")
_MERGED = {ord(character): group[0] for group in LOOKALIKES for character in group}
# The reason where `can_be_read` is false
UNREADABLE = "controls, and marks without a letter, cannot be read"
# Of any width: one blank in an image
_BLANKS = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_FULL_WIDTH = {number + 0xFEE0: number for number in range(0x21, 0x7F)}  # as of Ａ１
# Characters of an alphabet: of more than the first number, so many are shown
MAX_SHOWN, SHOWN = (100, 20)
# What runs from left to right in a text that runs from right to left, as kinds of characters: L
# letters, D digits, S their separators, E currency and percent signs (beside digits), O others.
_LEFT_TO_RIGHT = re.compile("E*(?=[LSEO]*D)[LD](?:[SEO]*[LD])*E*|L(?:[SEO]*L)*")
# By Unicode's class
_DIRECTIONS = {"L": "L", "R": "R", "AL": "R", "EN": "D", "AN": "D", "ES": "S", "CS": "S", "ET": "E"}


def merge_lookalikes(text: str) -> str:
    """Return `text` with every look-alike replaced by the first of its group."""
    return text.translate(_MERGED)


def standard_form(text: str) -> str:
    """Return `text` in composed Unicode (NFC), its blanks as single spaces between other
    characters, and full-width characters as ASCII.
    """
    text = unicodedata.normalize("NFC", text).translate(_FULL_WIDTH)
    return _BLANKS.sub(" ", text).strip(" ")


def split_characters(text: str) -> list[str]:
    """Return the characters of `text`: each with the combining marks that follow it, as in
    Devanagari or Thai.
    """
    if text.isascii():
        return list(text)
    characters: list[str] = []
    for character in text:
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    return characters


def has_right_to_left(text: Iterable[str]) -> bool:
    """Tell whether `text` has a letter of a script that runs from right to left, such as Hebrew or
    Arabic.
    """
    return any(unicodedata.bidirectional(character[0]) in ("R", "AL") for character in text)


def visual_order(characters: Sequence[str]) -> list[int]:
    """Return the indices of a text's characters in the order in which they are seen, from left to
    right.

    A text with a letter from right to left begins at the right; digits and other letters in it run
    from left to right. So for each text the same function brings the visual order back into the
    logical one. It is the Unicode algorithm (UAX 9) for a paragraph from right to left, but for
    signs between digits and letters: in UAX 9 their place follows from what stands before them,
    which cannot be told from an image.
    """
    order = list(range(len(characters)))
    directions = [unicodedata.bidirectional(character[0]) for character in characters]
    kinds = "".join(_DIRECTIONS.get(direction, "O") for direction in directions)
    if "R" not in kinds:
        return order
    for run in _LEFT_TO_RIGHT.finditer(kinds):
        order[run.start() : run.end()] = order[run.start() : run.end()][::-1]
    return order[::-1]


def in_visual_order(text: str) -> list[str]:
    """Return the characters of `text` in the order in which they are seen, from left to right."""
    characters = split_characters(text)
    return [characters[number] for number in visual_order(characters)]


def shorten(characters: str) -> str:
    """Return an alphabet for people; of a large one its beginning and its number of characters."""
    symbols = split_characters(characters.replace(" ", "\u2423"))
    if len(symbols) <= MAX_SHOWN:
        return "".join(symbols)
    return f"{''.join(symbols[:SHOWN])}… ({len(symbols):,} characters)"


@dataclass(frozen=True)
class Charset:
    """An ordered alphabet: the class id of a character is its index in `symbols`.

    A character is a base with its combining marks, such as the Devanagari कि.

    Class ids follow the order in which characters are seen, and texts the logical one; they differ
    only where a script runs from right to left.
    case: the case to which labels are converted before their characters are looked up; None keeps
    both cases.
    UsageError if the alphabet is empty, repeats a character, or has a control, a surrogate or a
    mark without a base.
    """

    characters: str
    case: Case = None

    def __post_init__(self) -> None:
        check(bool(self.characters), "the alphabet is empty")
        check(len(self) <= 2**15, f"the alphabet has {len(self)} characters; the maximum is 32,768")
        for symbol in self.symbols:
            check(
                can_be_read(symbol),
                f"the alphabet cannot have the character {symbol!a}: {UNREADABLE}",
            )
        character, count = Counter(self.symbols).most_common(1)[0]
        check(count == 1, f"the alphabet has the character {character!r} twice")

    def __str__(self) -> str:
        return shorten(self.characters) + (f" ({self.case} case)" if self.case else "")

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def symbols(self) -> list[str]:
        """The characters, each with its marks."""
        return split_characters(self.characters)

    def to_dict(self) -> dict[str, str | None]:
        """Return the alphabet as JSON types.

        Files call the case `fold`, and name the order only if letters run from right to left.
        """
        document = {"characters": self.characters, "fold": self.case}
        if has_right_to_left(self.characters):
            document["order"] = "visual"
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Charset":
        """Invert `to_dict`; UsageError, KeyError or TypeError for anything else."""
        characters, case = document["characters"], document["fold"]
        check(isinstance(characters, str), "the alphabet must be a text")
        check(case in get_args(Case), f"unknown case {case!r}")
        charset, order = cls(characters, case), document.get("order")
        check(order == charset.to_dict().get("order"), f"unknown order {order!r}")
        return charset

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.symbols)}

    def normalize(self, text: str) -> str:
        """Return `text` in its standard form and in the case of the alphabet, if it has one."""
        text = standard_form(text)
        if self.case is None:
            return text
        # Character by character, since some would change the length ("ß".upper() is "SS").
        return "".join(_to_case(character, self.case) for character in text)

    def encode(self, texts: Sequence[str], longest: int | None = None) -> "np.ndarray":
        """Return the class ids of N texts, (N, L) int16.

        Positions after a text's end hold K, the number of characters.

        L is `longest`, or the length of the longest text. LabelError for an unknown character or a
        text that is too long.
        """
        import numpy as np

        rows = []
        for text in texts:
            if unknown := self.unknown_characters(text):
                raise LabelError(f"the text {text!r} has {unknown!r}, which the alphabet lacks")
            rows.append(
                [self._ids[character] for character in in_visual_order(self.normalize(text))]
            )
            check(
                longest is None or len(rows[-1]) <= longest,
                f"the text {text!r} has more than {longest} characters",
                LabelError,
            )
        length = max(map(len, rows), default=0) if longest is None else longest
        ids = np.full((len(rows), length), len(self), dtype=np.int16)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
        return ids

    def unknown_characters(self, text: str) -> str:
        """Return the characters of `text`, in their order, that the alphabet does not have."""
        return "".join(
            dict.fromkeys(c for c in split_characters(self.normalize(text)) if c not in self._ids)
        )


def can_be_read(character: str) -> bool:
    """Tell whether an alphabet may have a character: a space, or anything but a control, surrogate
    or mere mark.
    """
    return character == " " or unicodedata.category(character[0])[0] not in "CZM"


def _to_case(character: str, case: Literal["lower", "upper"]) -> str:
    """Return `character` in a case, or unchanged if that case takes more than one character."""
    changed = character.lower() if case == "lower" else character.upper()
    return changed if len(changed) == len(character) else character


def resolve_alphabet(name_or_characters: str) -> str:
    """Return the characters of a named alphabet (`digits`, `upper-alnum`, …), or those that the
    argument lists, in ranges such as a-z, too.

    A minus stands for itself at the ends and beside signs. UsageError for what seems to be a name
    or a range, and is none.
    """
    characters = NAMED_ALPHABETS.get(name_or_characters, name_or_characters)
    is_in_order = "".join(sorted(characters)) == characters
    if not is_in_order and _MAY_BE_WORD.fullmatch(characters):
        near = get_close_matches(characters.casefold(), _MEANT, 1, _IS_NEAR)
        check(
            not near,
            f"there is no alphabet {characters!r}; did you mean "
            f"{''.join(map(_MEANT.__getitem__, near))}? If you mean the characters themselves, "
            f"write them in order: {''.join(sorted(set(characters)))}",
        )
    return _RANGE.sub(_expand_range, unicodedata.normalize("NFC", characters))


def _expand_range(match: re.Match[str]) -> str:
    """Return the characters of a range such as a-z."""
    first, last = map(ord, match.groups())
    characters = "".join(map(chr, range(first, last + 1)))
    kinds = set(map(unicodedata.category, characters))
    check(
        len(kinds) == 1,
        f"{match[0]} is no range of characters of one kind, such as A-Z, a-z or 0-9; "
        "a minus that is meant stands at an end of the alphabet",
    )
    return characters


def find_charset(
    texts: Iterable[str], given: str | None = None, case_sensitive: bool = False
) -> Charset:
    """Return the alphabet of the labels `texts`, or the `given` one, with its case.

    Labels with letters of both cases are converted to upper case if the given alphabet has only
    upper case, else to lower case. Labels in one case keep it, and `case_sensitive` keeps both
    cases.
    """
    labelled = {character for text in texts for character in split_characters(standard_form(text))}
    characters = resolve_alphabet(given) if given is not None else "".join(sorted(labelled))
    # First, as an error in the alphabet could vanish with its second case.
    both_cases = Charset(characters)
    if case_sensitive or not mixes_cases(labelled):
        return both_cases
    is_upper = given is not None and characters == characters.upper() != characters.lower()
    case: Literal["lower", "upper"] = "upper" if is_upper else "lower"
    one_case = dict.fromkeys(_to_case(character, case) for character in both_cases.symbols)
    return Charset("".join(one_case), case)


def mixes_cases(characters: Iterable[str]) -> bool:
    """Tell whether `characters` holds letters of both cases."""
    return {"Lu", "Ll"} <= {
        unicodedata.category(character[0]) for character in characters if character
    }


def _fold_look_alikes(text: str) -> str:
    merged = merge_lookalikes(unicodedata.normalize("NFKD", text)).casefold()
    return "".join(character for character in merged if character != " " and can_be_read(character))


def how_they_differ(one: str, other: str) -> str:
    """Return the rest of a sentence that names two texts: where they differ if they look alike, but
    for blanks, marks, case, look-alikes and what is not ASCII; else nothing.
    """
    folded = zip_longest(_fold_look_alikes(one), _fold_look_alikes(other), fillvalue="")
    if one == other or any(a != b and (a + b).isascii() for a, b in folded):
        return ""
    pairs = enumerate(zip_longest(one, other, fillvalue=""), 1)
    place, (first, second) = next(entry for entry in pairs if entry[1][0] != entry[1][1])
    names = f"{name_character(first)} and {name_character(second)}"
    return f" (they differ in character {place}: {names})"


def name_character(character: str) -> str:
    """Return the number and the name of a character in Unicode."""
    if not character:
        return "nothing"
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
