"""The text in the file name of an image: which part of the name it is, and which names hold none."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import NamedTuple

from captcha_ocr.errors import LabelError

Test = Callable[[str], bool]
WORD = (
    "img|imgs|image|images|captcha|captchas|pic|pics|picture|photo|foto|bild|scan|sample|file|frame|page|item|data"
    "|dsc|dscn|dscf|gopr|dji|pxl|mvi|mvimg|vid|p|screenshot|screen shot|bildschirmfoto|capture|snap|snapshot|download"
    "|unnamed|untitled|unbenannt|train|test|val|valid"
)
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NO_TEXT = re.compile(
    rf"(?:{WORD})(?:[ .]*\(?\d+\)?)?"  # browsers and scripts: captcha, captcha17, image (3)
    r"|(?:img|pxl|mvimg|vid|screenshot|screen shot|bildschirmfoto)[-_ ]*(?:19|20)\d\d.*"
    r"|(?:19|20)\d\d([-_.]?)[01]\d\1[0-3]\d(?:\D*(?:[01]\d|2[0-3])[-_.:h]?[0-5]\d.*)?"  # a date, perhaps with a time
    rf"|{UUID}"
    r"|(?=.*\d)(?=.*[a-f])[0-9a-f]{16,}|(?=.*\d)(?=.*[a-z])[0-9a-z]{20,}",  # a hash, a long identifier
    re.IGNORECASE,
)
WHOLE = re.compile(  # separators within these separate nothing
    rf"(?<![^\W_])(?:{UUID}|(?:19|20)\d\d([-_.])[01]\d\1[0-3]\d|[0-3]?\d([-_.])[01]?\d\2(?:19|20)\d\d)(?![^\W_])",
    re.IGNORECASE,
)
COPY = re.compile(  # names that a browser or a file manager gives to a copy
    r"(.+\S) ?\(\d{1,2}\)"
    r"|(?:copy|kopie|copie)(?: \(?\d+\)?)? (?:of|von|de) (.+)"
    r"|(\S.*?)(?: -)? (?:copy|kopie|copie)(?: \d+)?",
    re.IGNORECASE,
)
GENERATED = re.compile(r"\d{5,}-(.+)")  # a name that `generate` gives
SECONDS = range(1_400_000_000, 2_100_000_000)  # since 1970: from 2014 to 2036
SHARE = 20  # such names are no accident if 1 in 20 matches
FULL = (
    0.9  # numbers count the images if they fill as much of the range from the least to the greatest
)
FEW = 10  # a part with fewer different values than 1 in 10 names may be a counter of copies
ENOUGH = 20  # names for such a share
SHORT = 2  # digits of a counter of copies, beside a longer part
BESIDE = "_. ,;#@~—–()[]{}"
SEPARATORS = frozenset("-" + BESIDE)
SEPARATOR = re.compile(r"(?<=[^-{0}])([-{0}]+)(?=[^-{0}])".format(re.escape(BESIDE)))
HINT = "say which part is the text with --label-pattern, or name the texts in a labels.csv"


class Parts(NamedTuple):
    """A name's parts and what stands between them; a part that is a date or a UUID is empty."""

    values: list[str]
    separators: tuple[str, ...]

    def text(self, first: int, last: int) -> str:
        """Return the parts from one to another, with what stands between them."""
        between = (*self.separators[first:last], "")
        return "".join(map("".join, zip(self.values[first : last + 1], between, strict=True)))


class NameReader:
    """Find the texts in the names of one folder's images.

    stems: all their names, without folders and extensions: what recurs in them, or counts them, is no text.
    fits: whether the alphabet and the lengths that the user named allow a text; None if they name neither.
    """

    def __init__(self, stems: Sequence[str], fits: Test | None = None) -> None:
        self.fits = fits
        self.is_text = text_test(stems, 10)
        names = defaultdict[tuple[str, ...], list[list[str]]](list)
        for stem in stems:
            parts = parts_of(stem)
            names[parts.separators].append(parts.values)
        self.rules = {
            separators: PartRules(separators, values)
            for separators, values in names.items()
            if separators
        }

    def text_of(self, stem: str) -> str:
        """Return the text in a name; LabelError if there is none, or if the name can be read in two ways."""
        allowed = self.fits is not None and self.fits(stem)
        copy = COPY.fullmatch(stem)
        if copy and not allowed:
            return self.text_of(copy[1] or copy[2] or copy[3])
        if generated := GENERATED.fullmatch(stem):
            return generated[1]
        parts = parts_of(stem)
        if not self.is_text(stem) and not (self.fits is not None and "" in parts.values):
            raise LabelError(
                f"its name holds a number, a date or an identifier instead of a text; {HINT}"
            )
        if allowed:
            return stem
        if not parts.separators:
            return stem.strip("_. ")
        rules = self.rules.get(parts.separators) or PartRules(
            parts.separators, [parts.values]
        )  # of a copy
        possible = rules.possible(parts.values)
        if not possible:
            why = (
                "a word and a number, which may count the images"
                if rules.are_numbered
                else "no text"
            )
            raise LabelError(f"its name holds {why}; {HINT}")
        clear = [place for place in possible if place in rules.clear] or possible
        found = self.fitting(parts, clear) or self.fitting(parts, possible)
        found = found or [parts.values[place] for place in clear]
        if len(found) == 1:
            return found[0]
        ways = " or ".join(map(repr, dict.fromkeys([*found, stem])))
        how = (
            "neither --charset nor --length decides; "
            if self.fits
            else "name the alphabet with --charset or --length, or "
        )
        raise LabelError(f"its name can be read as {ways}; {how}{HINT}")

    def fitting(self, parts: Parts, places: Sequence[int]) -> list[str]:
        """Return the parts at the given places that fit, and the longest that fit of those side by side: 7-3."""
        if self.fits is None:
            return []
        found, last = dict[str, None](), -1
        for start in places:
            ends = [
                end
                for end in places
                if end >= start and set(range(start, end + 1)).issubset(places)
            ]
            texts = {end: parts.text(start, end) for end in reversed(ends) if start > last}
            end = next((end for end, text in texts.items() if self.fits(text)), None)
            if end is not None:
                found[texts[end]], last = None, end
        return list(found)


class PartRules:
    """Which parts of names with the same separators can be the text.

    clear: the places of these parts, without numbers of copies. are_numbered: whether the names are words and a number.
    """

    def __init__(self, separators: tuple[str, ...], names: Sequence[Sequence[str]]) -> None:
        columns = list(zip(*names, strict=True))
        self.tests = [text_test(column, 3) for column in columns]
        if set(separators) == {"."} and all(all(map(str.isdecimal, column)) for column in columns):
            self.tests = [str.isdecimal for _ in columns]  # 0.399 may be a number
        candidates = [
            place for place, column in enumerate(columns) if any(map(self.tests[place], column))
        ]
        words = all(
            is_word(column) for place, column in enumerate(columns) if place not in candidates
        )
        self.are_numbered = (
            len(candidates) == 1 and words and all(map(str.isdecimal, columns[candidates[0]]))
        )
        self.clear = set(candidates)
        if not any(
            may_count(columns[place]) for place in candidates
        ):  # 0037_7: the text may be 0037 or 7
            self.clear -= {
                place
                for place in candidates
                if counts_copies(columns, place, candidates, separators)
            }

    def possible(self, values: Sequence[str]) -> list[int]:
        """Return the places of a name's parts that can be its text."""
        if self.are_numbered:
            return []
        return [place for place, value in enumerate(values) if value and self.tests[place](value)]


def parts_of(stem: str) -> Parts:
    """Return a name's parts; a minus at its start is no separator."""
    parts = SEPARATOR.split(WHOLE.sub("\0", stem.strip(BESIDE)))
    return Parts(["" if "\0" in part else part for part in parts[::2]], tuple(parts[1::2]))


def text_test(values: Sequence[str], least: int) -> Test:
    """Return a function that tells a text from what stands in the same place of other names.

    No text is a value that all names share, one of numbers that count the names or are times, a number or a text after
    the same word, or a usual name of a camera or program. least: how many numbers make a count.
    """
    numbers = sorted(int(value) for value in values if value.isdecimal())
    are_most = len(numbers) >= least and 2 * len(numbers) >= len(values)
    are_distinct = are_most and len(set(numbers)) == len(numbers)
    counts = are_distinct and FULL * (numbers[-1] - numbers[0]) < len(numbers)
    times = are_most and all(number in SECONDS or number // 1000 in SECONDS for number in numbers)
    usual = SHARE * sum(NO_TEXT.fullmatch(value) is not None for value in values) >= len(values)
    recurs = len(values) >= 3 and (len(set(values)) == 1 or have_same_word(values))

    def is_text(value: str) -> bool:
        return not (
            not value
            or recurs
            or ((counts or times) and value.isdecimal())
            or (usual and NO_TEXT.fullmatch(value))
        )

    return is_text


def have_same_word(values: Sequence[str]) -> bool:
    """Tell whether different values begin with the same word: im0 … im11, label=0412, [0412]."""
    distinct = set(values)
    pairs = zip(min(distinct), max(distinct), strict=False)
    word = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)).rstrip(
        "0123456789"
    )
    if (
        not any(map(str.isalnum, word))
        or SEPARATORS.intersection(word)
        or len(distinct) < (3 if len(word) > 1 else FEW)
    ):
        return False
    return not word.isalnum() or all(value[len(word) :].isdecimal() for value in distinct)


def is_word(values: Sequence[str]) -> bool:
    """Tell whether values that recur are a word, or all are usual names of cameras and programs."""
    names = all(NO_TEXT.fullmatch(value) and not value[0].isdecimal() for value in values)
    return names or (len(set(values)) == 1 and values[0].isalpha())


def may_count(values: Sequence[str]) -> bool:
    """Tell whether values may be numbers that count the images, some of which are elsewhere."""
    return all(value.isdecimal() and len(value) > SHORT for value in values) and len(
        set(values)
    ) == len(values)


def is_short(values: Sequence[str]) -> bool:
    """Tell whether all values are numbers of one or two digits."""
    return all(value.isdecimal() and len(value) <= SHORT for value in values)


def counts_copies(
    columns: Sequence[Sequence[str]],
    place: int,
    candidates: Sequence[int],
    separators: Sequence[str],
) -> bool:
    """Tell whether a part numbers the copies of each text: a short number after longer parts, as in AB12_1.

    After a minus, which may belong to a sum (45-7), its values must be few, and the other parts have letters.
    """
    values, others = columns[place], [columns[other] for other in candidates if other != place]
    if place == 0 or not others or not is_short(values):
        return False
    if min(len(value) for other in others for value in other) <= max(map(len, values)):
        return False
    are_few = FEW * len(set(values)) <= len(values) >= ENOUGH
    have_letters = not any(all(map(str.isdecimal, other)) for other in others)
    return "-" not in "".join(separators) or (are_few and have_letters)


def recur_in_folders(files: list[str], stems: list[str]) -> bool:
    """Tell whether most names are also in other folders, and are a few or numbers: AB12/1.png, CD34/1.png."""
    folders = defaultdict[str, set[str]](set)
    for file, stem in zip(files, stems, strict=True):
        folders[stem].add(str(PurePosixPath(file).parent))
    most_recur = 2 * sum(len(folders[stem]) > 1 for stem in stems) > len(stems)
    return most_recur and (3 * len(folders) <= len(stems) or is_short(tuple(folders)))


def way_of(stem: str, text: str) -> str:
    """Return how a text stands in a name: TEXT, TEXT_anything, anything-TEXT …"""
    place = 0 if stem.startswith(text) else stem.rfind(text)
    before, after = stem[:place][-1:], stem[place + len(text) :][:1]
    return (f"anything{before}" if before else "") + "TEXT" + (f"{after}anything" if after else "")
