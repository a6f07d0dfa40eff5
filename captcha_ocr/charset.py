"""The alphabet of a set of captchas: text to class ids and back."""

import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING, Any, Literal, get_args

from captcha_ocr.errors import LabelError, check

if TYPE_CHECKING:
    import numpy as np  # takes 0.2 s to import, which `captcha-ocr --help` saves

Case = Literal["lower", "upper", None]

NAMED = {
    "digits": string.digits,
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "upper-alnum": string.ascii_uppercase + string.digits,
    "lower-alnum": string.ascii_lowercase + string.digits,
    "alnum": string.ascii_uppercase + string.ascii_lowercase + string.digits,
    # Without 0 O, 1 I L: the pairs that people and networks confuse most often.
    "no-lookalikes": "ABCDEFGHJKMNPQRSTUVWXYZ23456789",
}
# Characters that look nearly the same once a glyph is cropped and stretched: a score counts them separately.
LOOKALIKES = ("0Oo", "1Il|", "Cc", "Kk", "Pp", "Ss", "Uu", "Vv", "Ww", "Xx", "Zz")
MERGED = {ord(character): group[0] for group in LOOKALIKES for character in group}
UNREADABLE = "spaces, combining marks and controls cannot be read"  # the reason where `can_be_read` is false


def merge_lookalikes(text: str) -> str:
    """Return `text` with every look-alike replaced by the first of its group."""
    return text.translate(MERGED)


@dataclass(frozen=True)
class Charset:
    """An ordered alphabet: the class id of a character is its index in `characters`.

    case: the case to which labels are converted before their characters are looked up; None keeps both cases.
    UsageError if the alphabet is empty, repeats a character, or has one that is invisible in a file or on a terminal
    (space, control, combining mark, surrogate).
    """

    characters: str
    case: Case = None

    def __post_init__(self) -> None:
        check(bool(self.characters), "the alphabet is empty")
        number = len(self.characters)
        check(number <= 2**15, f"the alphabet has {number} characters; the maximum is 32,768")
        for character in self.characters:
            check(can_be_read(character), f"the alphabet cannot have the character {character!a}: {UNREADABLE}")
        character, count = Counter(self.characters).most_common(1)[0]
        check(count == 1, f"the alphabet has the character {character!r} twice")

    def __str__(self) -> str:
        return self.characters + (f" ({self.case} case)" if self.case else "")

    def __len__(self) -> int:
        return len(self.characters)

    def to_dict(self) -> dict[str, str | None]:
        """Return the alphabet as JSON types; files call the case `fold`."""
        return {"characters": self.characters, "fold": self.case}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Charset":
        """Invert `to_dict`; UsageError, KeyError or TypeError for anything else."""
        characters, case = document["characters"], document["fold"]
        check(isinstance(characters, str), "the alphabet must be a text")
        check(case in get_args(Case), f"unknown case {case!r}")
        return cls(characters, case)

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.characters)}

    def normalize(self, text: str) -> str:
        """Return `text` in composed Unicode (NFC) and in the case of the alphabet, if it has one."""
        text = unicodedata.normalize("NFC", text)
        if self.case is None:
            return text
        # Character by character, since some would change the length ("ß".upper() is "SS").
        return "".join(to_case(character, self.case) for character in text)

    def encode(self, texts: Sequence[str], longest: int | None = None) -> "np.ndarray":
        """Return the class ids of N texts, (N, L) int16; positions after a text's end hold K, the number of characters.

        L is `longest`, or the length of the longest text. LabelError for an unknown character or a text that is too
        long.
        """
        import numpy as np

        rows = []
        for text in texts:
            if unknown := self.unknown_characters(text):
                raise LabelError(f"the text {text!r} has {unknown!r}, which the alphabet lacks")
            rows.append([self._id_of[character] for character in self.normalize(text)])
        length = max(map(len, rows), default=0) if longest is None else longest
        ids = np.full((len(rows), length), len(self), dtype=np.int16)
        for number, row in enumerate(rows):
            if len(row) > length:
                raise LabelError(f"the text {texts[number]!r} has more than {length} characters")
            ids[number, : len(row)] = row
        return ids

    def unknown_characters(self, text: str) -> str:
        """Return the characters of `text`, in their order, that the alphabet does not have."""
        return "".join(dict.fromkeys(c for c in self.normalize(text) if c not in self._id_of))

    def decode(self, ids: "np.ndarray") -> list[str]:
        """Return the N texts of class ids, (N, L); each text ends before its first K."""
        end = len(self)
        return ["".join(self.characters[n] for n in takewhile(end.__ne__, row)) for row in ids.tolist()]


def can_be_read(character: str) -> bool:
    """Tell whether an alphabet may have a character: not a control, space, combining mark or surrogate."""
    return unicodedata.category(character)[0] not in "CZM"


def to_case(character: str, case: Literal["lower", "upper"]) -> str:
    """Return `character` in a case, or unchanged if that case takes more than one character."""
    changed = character.lower() if case == "lower" else character.upper()
    return changed if len(changed) == 1 else character


def characters_of(name_or_characters: str) -> str:
    """Return the characters of a named alphabet (`digits`, `upper-alnum`, …), or the argument itself."""
    return NAMED.get(name_or_characters, unicodedata.normalize("NFC", name_or_characters))


def find_charset(texts: Iterable[str], given: str | None = None, case_sensitive: bool = False) -> Charset:
    """Return the alphabet of the labels `texts`, or the `given` one, with its case.

    Labels with letters of both cases are converted to upper case if the given alphabet has only upper case, else to
    lower case. Labels in one case keep it, and `case_sensitive` keeps both cases.
    """
    found = {character for text in texts for character in unicodedata.normalize("NFC", text)}
    characters = characters_of(given) if given is not None else "".join(sorted(found))
    both_cases = Charset(characters)  # first, as an error in the alphabet could vanish with its second case
    if case_sensitive or not mixes_cases(found):
        return both_cases
    one_upper_case = given is not None and characters == characters.upper() != characters.lower()
    case: Literal["lower", "upper"] = "upper" if one_upper_case else "lower"
    return Charset("".join(dict.fromkeys(to_case(c, case) for c in characters)), case)


def mixes_cases(characters: Iterable[str]) -> bool:
    """Tell whether `characters` holds letters of both cases."""
    return {"Lu", "Ll"} <= {unicodedata.category(character) for character in characters if character}


def look_alike(one: str, other: str) -> bool:
    """Tell whether two texts may look the same: but for blanks, marks, case, look-alikes and what is not ASCII."""
    both = [shape_of(text) for text in (one, other)]
    return len(both[0]) == len(both[1]) and all(
        a == b or not (a.isascii() and b.isascii()) for a, b in zip(*both, strict=True)
    )


def shape_of(text: str) -> str:
    """Return a text without blanks, marks and what is invisible, its look-alikes and cases merged."""
    merged = merge_lookalikes(unicodedata.normalize("NFKD", text)).casefold()
    return "".join(character for character in merged if can_be_read(character))


def how_they_differ(one: str, other: str) -> str:
    """Return the rest of a sentence that names two texts: where they differ if they look alike, else nothing."""
    if one == other or not look_alike(one, other):
        return ""
    place, pair = next((n, pair) for n, pair in enumerate(zip_longest(one, other, fillvalue=""), 1) if len({*pair}) > 1)
    first, second = (
        f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip() if character else "nothing"
        for character in pair
    )
    return f" (they differ in character {place}: {first} and {second})"
