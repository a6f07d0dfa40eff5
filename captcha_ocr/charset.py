"""The alphabet of a set of captchas: text to class ids and back."""

import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, get_args

from captcha_ocr.errors import LabelError, UsageError, check

if TYPE_CHECKING:
    import numpy as np  # 0.2 s that `captcha-ocr --help` does without

Case = Literal["lower", "upper", None]

NAMED = {
    "digits": string.digits,
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "upper-alnum": string.ascii_uppercase + string.digits,
    "lower-alnum": string.ascii_lowercase + string.digits,
    "alnum": string.ascii_uppercase + string.ascii_lowercase + string.digits,
    # Without 0 O, 1 I L: the pairs that people, and networks, mix up most.
    "no-lookalikes": "ABCDEFGHJKMNPQRSTUVWXYZ23456789",
}
# Characters that one glyph, cropped and stretched, can hardly tell: a score counts them apart.
LOOKALIKES = ("0Oo", "1Il|", "Cc", "Kk", "Pp", "Ss", "Uu", "Vv", "Ww", "Xx", "Zz")
MERGED = {ord(character): group[0] for group in LOOKALIKES for character in group}
UNREADABLE = "spaces, combining marks and controls cannot be read"  # which can_be_read refuses


def merge_lookalikes(text: str) -> str:
    """`text` with every look-alike written as the first of its group."""
    return text.translate(MERGED)


@dataclass(frozen=True)
class Charset:
    """An ordered alphabet: the class id of a character is its place in `characters`.

    case: the one case to which labels are brought before they are looked up; None keeps both cases.
    Raises UsageError for an alphabet that is empty, repeats a character or holds one that
    could not be told from nothing in a file or on a terminal (space, control, combining, surrogate).
    """

    characters: str
    case: Case = None

    def __post_init__(self) -> None:
        if not self.characters:
            raise UsageError("the alphabet is empty")
        if len(self.characters) > 2**15:
            raise UsageError(f"the alphabet has {len(self.characters)} characters; at most 32,768 fit")
        for character in self.characters:
            if not can_be_read(character):
                raise UsageError(f"the alphabet cannot hold the character {character!a}: {UNREADABLE}")
        if len(set(self.characters)) < len(self.characters):
            character = Counter(self.characters).most_common(1)[0][0]
            raise UsageError(f"the alphabet names the character {character!r} twice")

    def __str__(self) -> str:
        """The characters, and the case rule if there is one."""
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
        """`text` in composed Unicode (NFC) and, where the alphabet folds, in its one case."""
        text = unicodedata.normalize("NFC", text)
        if self.case is None:
            return text
        # Character by character, keeping those that would change length ("ß".upper() is "SS").
        return "".join(to_case(character, self.case) for character in text)

    def encode(self, texts: Sequence[str], longest: int | None = None) -> "np.ndarray":
        """Texts, (N), to class ids, (N, L) int16; places after a text's end hold the number of characters, K.

        L is `longest`, or what the longest text has; LabelError names what is unknown or too long.
        """
        import numpy as np

        rows = [self._encode_one(text) for text in texts]
        places = max(map(len, rows), default=0) if longest is None else longest
        ids = np.full((len(rows), places), len(self), dtype=np.int16)
        for number, row in enumerate(rows):
            if len(row) > places:
                raise LabelError(f"the text {texts[number]!r} has more than {places} characters")
            ids[number, : len(row)] = row
        return ids

    def _encode_one(self, text: str) -> list[int]:
        unknown = self.unknown_characters(text)
        if unknown:
            raise LabelError(f"the text {text!r} has {unknown!r}, which the alphabet lacks")
        return [self._id_of[character] for character in self.normalize(text)]

    def unknown_characters(self, text: str) -> str:
        """The characters of `text`, in their order, that the alphabet does not have."""
        return "".join(dict.fromkeys(c for c in self.normalize(text) if c not in self._id_of))

    def decode(self, ids: "np.ndarray") -> list[str]:
        """Class ids, (N, L), to N texts, each of which ends before its first K."""
        ends = len(self)
        return ["".join(self.characters[n] for n in takewhile(ends.__ne__, row)) for row in ids.tolist()]


def can_be_read(character: str) -> bool:
    """Whether a character may stand in an alphabet: no control, space, combining mark or surrogate."""
    return unicodedata.category(character)[0] not in "CZM"


def to_case(character: str, case: Literal["lower", "upper"]) -> str:
    """`character` in the given case, or as it is where the other case is not one character."""
    changed = character.lower() if case == "lower" else character.upper()
    return changed if len(changed) == 1 else character


def characters_of(name_or_characters: str) -> str:
    """The characters of a named alphabet (`digits`, `upper-alnum`, …), or the argument itself."""
    return NAMED.get(name_or_characters, unicodedata.normalize("NFC", name_or_characters))


def find_charset(texts: Iterable[str], given: str | None = None, case_sensitive: bool = False) -> Charset:
    """The alphabet of the labels `texts`, or the `given` one, and the case rule that goes with them.

    Labels that hold letters of both cases are folded, to the case of the given alphabet where that
    has only one and else to lower case; labels in one case keep it; `case_sensitive` folds nothing.
    """
    found = {character for text in texts for character in unicodedata.normalize("NFC", text)}
    characters = characters_of(given) if given is not None else "".join(sorted(found))
    Charset(characters)  # refuses what cannot be an alphabet, before folding could hide it
    if case_sensitive or not mixes_cases(found):
        return Charset(characters)
    one_upper_case = given is not None and characters == characters.upper() != characters.lower()
    case: Literal["lower", "upper"] = "upper" if one_upper_case else "lower"
    return Charset("".join(dict.fromkeys(to_case(c, case) for c in characters)), case)


def mixes_cases(characters: Iterable[str]) -> bool:
    """Whether `characters` holds letters of both cases."""
    kinds = {unicodedata.category(character) for character in characters if character}
    return {"Lu", "Ll"} <= kinds
