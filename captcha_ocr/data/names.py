"""The text in the file name of an image: which part of the name it is, and which names hold none."""

import re
from collections.abc import Callable, Sequence

from captcha_ocr.errors import LabelError

Test = Callable[[str], bool]
WORD = (
    "img|imgs|image|images|captcha|captchas|pic|pics|picture|photo|foto|bild|scan|sample|file|frame|page|item|data"
    "|dsc|dscn|dscf|gopr|dji|pxl|mvi|mvimg|vid|p|screenshot|screen shot|bildschirmfoto|capture|snap|snapshot|download"
    "|unnamed|untitled|unbenannt|train|test|val|valid"
)
NO_TEXT = re.compile(
    rf"(?:{WORD})(?:[ .]*\(?\d+\)?)?"  # browsers and scripts: captcha, captcha17, image (3)
    r"|(?:img|pxl|mvimg|vid|screenshot|screen shot|bildschirmfoto)[-_ ]*(?:19|20)\d\d.*"
    r"|(?:.*\D)?(?:19|20)\d\d([-_.]?)[01]\d\1[0-3]\d(?:\D*[0-2]\d[-_.:h]?[0-5]\d.*)?"  # a date, with a time or without
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|(?=.*\d)(?=.*[a-f])[0-9a-f]{16,}|(?=.*\d)(?=.*[a-z])[0-9a-z]{20,}",  # a hash, a long identifier
    re.IGNORECASE,
)
COPY = re.compile(r"(.+\S) ?\(\d+\)")  # a name that a browser or a file manager gives to a copy
GENERATED = re.compile(r"\d{5,}-(.+)")  # a name that `generate` gives
SECONDS = range(1_400_000_000, 2_100_000_000)  # since 1970: from 2014 to 2036
SHARE = 20  # such names are no accident if 1 in 20 matches
FULL = 0.9  # numbers count the images if they fill as much of the range from the least to the greatest
FEW = 10  # a part with fewer different values than 1 in 10 names, beside one with more, is a word or a counter
ENOUGH = 20  # names for such a share
SEPARATORS, SURE = "_-.", ("_", ".")  # a minus may also belong to the text
HINT = "say which part is the text with --label-pattern, or name the texts in a labels.csv"


class NameReader:
    """Find the texts in the names of one folder's images.

    stems: all their names, without folders and extensions: what recurs in them, or counts them, is no text.
    fits: whether the alphabet and the lengths that the user named allow a text; None if they name neither.
    """

    def __init__(self, stems: Sequence[str], fits: Test | None = None) -> None:
        self.fits = fits
        self.is_text = text_test(stems, 10)
        self.part_is_text, self.differs_more = dict[str, tuple[Test, Test]](), dict[str, int | None]()
        self.numbers_words = dict[str, bool]()
        for separator in SEPARATORS:
            parts = [parts_of(stem, separator) for stem in stems if separators_in(stem) == separator]
            heads, tails = [head for head, _ in parts], [tail for _, tail in parts]
            self.part_is_text[separator] = text_test(heads, 3), text_test(tails, 3)
            self.numbers_words[separator] = all(tail.isdecimal() for head, tail in parts if NO_TEXT.fullmatch(head))
            self.differs_more[separator] = which_differs_more(heads, tails)

    def text_of(self, stem: str) -> str:
        """Return the text in a name; LabelError if there is none, or if the name can be read in two ways."""
        copy = COPY.fullmatch(stem)
        if copy and not (self.fits is not None and self.fits(stem)):
            return self.text_of(copy[1])
        if generated := GENERATED.fullmatch(stem):
            return generated[1]
        if not self.is_text(stem):
            raise LabelError(f"its name holds a number, a date or an identifier instead of a text; {HINT}")
        separators = separators_in(stem)
        if not separators:
            return stem
        candidates = [part for separator in separators for part in self.parts_with_text(stem, separator)]
        if self.fits is not None:
            if self.fits(stem):
                return stem
            candidates = list(filter(self.fits, dict.fromkeys(candidates))) or candidates
        if not candidates:
            raise LabelError(f"its name holds no text; {HINT}")
        if len(candidates) == 1:
            return candidates[0]
        if separators in SURE:
            return candidates[self.differs_more[separators] or 0]
        if separators == "-" and (part := self.differs_more["-"]) is not None:
            return candidates[part]
        both = " or ".join(map(repr, candidates))
        raise LabelError(f"its name can be read as {both}; name the alphabet with --charset, {HINT}")

    def parts_with_text(self, stem: str, separator: str) -> list[str]:
        """Return the parts of a name, at its first or last separator, that can be a text."""
        head, tail = parts_of(stem, separator)
        if self.numbers_words[separator] and NO_TEXT.fullmatch(head) and tail.isdecimal():
            return []  # IMG_0042, and no other name has a text after such a word
        tests = self.part_is_text[separator]
        return [part for part, is_text in zip((head, tail), tests, strict=True) if part and is_text(part)]


def separators_in(stem: str) -> str:
    """Return which of the separators a name has."""
    return "".join(separator for separator in SEPARATORS if separator in stem)


def parts_of(stem: str, separator: str) -> tuple[str, str]:
    """Return the parts of a name before the first and after the last separator."""
    return stem.split(separator, 1)[0].strip(), stem.rsplit(separator, 1)[1].strip()


def text_test(values: Sequence[str], least: int) -> Test:
    """Return a function that tells a text from what stands in the same place of other names.

    No text is a value that all names share, one of numbers that count the names or are times, or a usual name of a
    camera or program. least: how many numbers make a count.
    """
    numbers = sorted(int(value) for value in values if value.isdecimal())
    are_most = len(numbers) >= least and 2 * len(numbers) >= len(values)
    are_distinct = are_most and len(set(numbers)) == len(numbers)
    counts = are_distinct and FULL * (numbers[-1] - numbers[0]) < len(numbers)
    times = are_most and all(number in SECONDS or number // 1000 in SECONDS for number in numbers)
    usual = SHARE * sum(NO_TEXT.fullmatch(value) is not None for value in values) >= len(values)
    recurs = len(values) >= 3 and len(set(values)) == 1

    def is_text(value: str) -> bool:
        return not (recurs or ((counts or times) and value.isdecimal()) or (usual and NO_TEXT.fullmatch(value)))

    return is_text


def which_differs_more(heads: Sequence[str], tails: Sequence[str]) -> int | None:
    """Return 0 if the tails of the names are a few values only and the heads are not, 1 for the reverse, else None."""
    few = [len(heads) >= ENOUGH and FEW * len(set(parts)) <= len(heads) for parts in (heads, tails)]
    return None if few[0] == few[1] else int(few[0])
