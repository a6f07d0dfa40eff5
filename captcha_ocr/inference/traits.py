"""What the texts of a folder have in common: lengths, alphabet and case, told by their readings.

The images of a folder mostly have one design, and its generator draws all lengths and characters
about equally often. So what is read far more rarely is a misreading.
"""

import os
import re
import string
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from captcha_ocr.data.images import ImageSource
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.options.model import Lengths

_FEWEST_READINGS = 10  # as many sure ones tell something
# How often each character is read, on average, where those that were never read are none
_OFTEN = 6
# Of the mean count, the part from which a length or a character is no misreading
_USUAL_LENGTH, _USUAL_CHARACTER = 0.3, 0.1
_ONE_CASE = 0.8  # of the letters whose case shows
_ALIKE_IN_BOTH_CASES = "cosvwxz"
# Characters that are taken for one another: one of them brings those whose kind is read
_TWINS = ("0o", "1il")
_KINDS = (set(string.digits), set(string.ascii_lowercase))
_IS_READ = 1 / 3  # of a kind
_MOST_EXAMPLES = 300  # of a length
ANY_FORM = ".*"
_SUM = r"\d+[-+*/x×÷]\d+"
_ARE_SUMS = 0.5  # of what was read

_Symbol = TypeVar("_Symbol", int, str)


@dataclass(frozen=True)
class Traits:
    """What the texts of a folder have in common, as options of `Recognizer`."""

    charset: str
    lengths: Lengths
    fold_case: bool


class Tally:
    """Counts the lengths and the characters of readings, each by its confidence.

    known: the characters that may be read. examples: some image files, by the length of their text.
    """

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.examples: dict[int, list[ImageSource]] = defaultdict(list)
        self.lengths: dict[int, float] = defaultdict(float)
        self.characters: dict[tuple[int, str], float] = defaultdict(float)  # by the text's length
        self.endings: dict[str, float] = defaultdict(float)  # of sums, such as =?

    def add(self, reading: Reading, source: ImageSource) -> None:
        """Count a reading of an image."""
        length = len(reading.characters)
        if len(self.examples[length]) < _MOST_EXAMPLES and isinstance(source, (str, os.PathLike)):
            self.examples[length].append(source)
        self.lengths[length] += reading.confidence
        for part in reading.characters:
            self.characters[length, part.character] += part.confidence
        if is_sum := re.fullmatch(_SUM + r"(=?\??)", reading.text.casefold()):
            self.endings[is_sum[1]] += reading.confidence

    def find_traits(self) -> Traits | None:
        """Return what the readings have in common; None if they are too few to tell."""
        if sum(self.lengths.values()) < _FEWEST_READINGS:
            return None
        usual = _find_usual(self.lengths, _USUAL_LENGTH)
        lengths = Lengths(min(usual), max(usual))
        counts: dict[str, float] = defaultdict(float)
        for (length, character), count in self.characters.items():
            if length in lengths:
                counts[character] += count
        alphabet = _find_alphabet(counts, self.known)
        is_lower, is_upper = _find_cases(counts)
        charset = {
            form
            for character in alphabet
            for form, is_read in ((character, is_lower), (character.upper(), is_upper))
            if (is_read or not character.isalpha()) and form in self.known
        }
        return Traits(
            charset="".join(sorted(charset)),
            lengths=lengths,
            fold_case=any(c not in charset and c.casefold() in alphabet for c in counts),
        )

    def find_form(self) -> str:
        """Return a regular expression for all texts, case folded: for sums, if most are sums."""
        if sum(self.endings.values()) <= _ARE_SUMS * sum(self.lengths.values()):
            return ANY_FORM
        ending = max(self.endings, key=lambda ending: self.endings[ending])
        return _SUM + re.escape(ending)

    def measure_fit(self, traits: Traits) -> float:
        """Return which part of the characters that were read has these traits, 0 to 1."""
        known = traits.charset.casefold()
        fitting = sum(
            count
            for (length, character), count in self.characters.items()
            if length in traits.lengths and character.casefold() in known
        )
        return fitting / sum(self.characters.values())


def _find_usual(counts: Mapping[_Symbol, float], part: float) -> set[_Symbol]:
    """Return the symbols that come at least `part` as often as the mean of those returned."""
    total, kept = sum(counts.values()), dict(counts)
    while len(kept) > 1:
        rarest = min(kept, key=lambda symbol: kept[symbol])
        if kept[rarest] >= part * total / len(kept):
            break
        del kept[rarest]
    return set(kept)


def _find_alphabet(counts: Mapping[str, float], known: set[str]) -> set[str]:
    """Return the characters, case folded, that are no misreadings.

    Of a few texts in thousands of characters nothing follows: they may have all that are known.
    """
    folded: dict[str, float] = defaultdict(float)
    for character, count in counts.items():
        folded[character.casefold()] += count
    alphabet = _find_usual(folded, _USUAL_CHARACTER)
    if sum(folded.values()) < _OFTEN * len(alphabet):
        if not all(map(str.isascii, alphabet)):
            return set(map(str.casefold, known))
        return alphabet.union(*(kind for kind in _KINDS if kind & alphabet))
    for twins in _TWINS:
        if alphabet.intersection(twins):
            alphabet |= {twin for twin in twins if twin in folded and _is_kind_read(twin, alphabet)}
    return alphabet


def _is_kind_read(character: str, alphabet: set[str]) -> bool:
    kind = next(kind for kind in _KINDS if character in kind)
    return len(alphabet & kind) >= _IS_READ * len(kind)


def _find_cases(counts: Mapping[str, float]) -> tuple[bool, bool]:
    """Tell whether lower and upper case are read; both if neither prevails."""
    lower = upper = 0.0
    for character, count in counts.items():
        if character.casefold() not in _ALIKE_IN_BOTH_CASES:
            lower += count * character.islower()
            upper += count * character.isupper()
    either = _ONE_CASE * (lower + upper)
    return upper <= either, lower <= either
