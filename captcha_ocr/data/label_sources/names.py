"""The text in the file name of an image: which part it is, and which names hold none."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, product
from math import gcd
from pathlib import PurePosixPath
from string import digits

from captcha_ocr.data.recurrence import find_beginning
from captcha_ocr.errors import LabelError, check

TextTest = Callable[[str], bool]
_WORD = (
    "img|imgs|image|images|captcha|captchas|pic|pics|picture|photo|foto|bild|scan|sample|file"
    "|frame|page|item|data|dsc|dscn|dscf|gopr|dji|pxl|mvi|mvimg|vid|p|screenshot|screen shot"
    "|bildschirmfoto|capture|snap|snapshot|download|unnamed|untitled|unbenannt|train|test|val|valid"
)
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
NO_TEXT = re.compile(
    rf"(?:{_WORD})(?:[ .]*\(?\d+\)?)?"  # browsers and scripts: captcha, captcha17, image (3)
    r"|(?:img|pxl|mvimg|vid|screenshot|screen shot|bildschirmfoto)[-_ ]*(?:19|20)\d\d.*"
    # A date, perhaps with a time
    r"|(?:19|20)\d\d([-_.]?)[01]\d\1[0-3]\d(?:\D*(?:[01]\d|2[0-3])[-_.:h]?[0-5]\d.*)?"
    rf"|{_UUID}"
    # A hash, a long identifier
    r"|(?=.*\d)(?=.*[a-f])[0-9a-f]{16,}|(?=.*\d)(?=.*[a-z])[0-9a-z]{20,}",
    re.IGNORECASE,
)
_WHOLE = re.compile(  # separators within these separate nothing
    rf"(?<![^\W_])(?:{_UUID}|(?:19|20)\d\d([-_.])[01]\d\1[0-3]\d"
    r"|[0-3]?\d([-_.])[01]?\d\2(?:19|20)\d\d)(?![^\W_])",
    re.IGNORECASE,
)
_COPY = re.compile(  # names that a browser or a file manager gives to a copy
    r"(.+\S) ?\(\d{1,2}\)"
    r"|(?:copy|kopie|copie)(?: \(?\d+\)?)? (?:of|von|de) (.+)"
    r"|(\S.*?)(?: -)? (?:copy|kopie|copie)(?: \d+)?",
    re.IGNORECASE,
)
_GENERATED = re.compile(r"\d{5,}-(.+)")  # a name that `generate` gives
# Many names like this are random identifiers, as of a hash, though one of them may be a text
_IDENTIFIER = re.compile("[0-9a-f]{8,}|[0-9a-z]{16,}", re.IGNORECASE)
_SECONDS = range(1_400_000_000, 2_100_000_000)  # since 1970: from 2014 to 2036
_SHARE = 20  # such names are no accident if 1 in 20 matches
# Numbers count the images if they fill as much of the range from the least to the greatest
_FULL = 0.9
FEW_VALUES = 10  # a part with fewer different values than 1 in 10 names may be a counter of copies
_ENOUGH = 20  # names for such a share
_COPIES = 5  # of a text, if texts are numbers, too
_SHORT = 2  # digits of a counter of copies, beside a longer part
_SINGLE = 36  # names of one letter or digit are no count, though they fill their range
_PIECE = re.compile(r"\d+|\D")  # of a name that counts
_SIGN = re.compile(r"[+*=?×÷]")  # of a sum, whose numbers may fill their range
_AROUND_PARTS = "_. ,;#@~—–()[]{}"
_SEPARATORS = frozenset("-" + _AROUND_PARTS)
_SEPARATOR = re.compile(r"(?<=[^-{0}])([-{0}]+)(?=[^-{0}])".format(re.escape(_AROUND_PARTS)))
HINT = "say which part is the text with `label_pattern`, or name the texts in a labels.csv"


class NameReader:
    """Find the texts in the names of one folder's images.

    stems: all their names, without folders and extensions: what recurs in them, or counts them, is
    no text. fits: whether the alphabet and the lengths that the user named allow a text; None
    without both. joins: whether a text may have what separates parts, as the user's alphabet says.
    """

    def __init__(
        self, stems: Sequence[str], fits: TextTest | None = None, joins: bool = True
    ) -> None:
        self.is_given, self.joins = fits is not None, joins
        self.fits = fits or (lambda text: False)
        self.is_text = make_text_test(stems, 10)
        names = defaultdict[tuple[str, ...], list[list[str]]](list)
        for pieces in map(_split_name, stems):
            names[tuple(pieces[1::2])].append(pieces[::2])
        self.rules = {
            separators: _PartRules(separators, values)
            for separators, values in names.items()
            if separators
        }

    def find_text(self, stem: str) -> str:
        """Return the text in a name.

        LabelError if there is none, or if the name can be read in two ways.
        """
        pieces = _split_name(stem)
        values, separators = pieces[::2], tuple(pieces[1::2])
        allowed = self.fits(stem) and (self.joins or not any(map(self.fits, values)))
        copy = _COPY.fullmatch(stem)
        if copy and not allowed:
            return self.find_text(copy[1] or copy[2] or copy[3])
        if generated := _GENERATED.fullmatch(stem):
            return generated[1]
        text = stem.strip("_. ")
        check(
            self.is_text(text) or (self.is_given and "" in values),
            f"its name holds {'a number, a date or an identifier instead of a' if text else 'no'} "
            f"text; {HINT}",
            LabelError,
        )
        if allowed:
            return stem
        if not separators:
            return text
        # The name of a copy may have other separators than all names.
        rules = self.rules.get(separators) or _PartRules(separators, [values])
        check(
            not rules.are_numbered,
            f"its name holds a word and a number, which may count the images; {HINT}",
            LabelError,
        )
        possible = [
            place for place, value in enumerate(values) if value and rules.tests[place](value)
        ]
        check(bool(possible), f"its name holds no text; {HINT}", LabelError)
        clear = [place for place in possible if place in rules.clear] or possible
        texts = (
            self._find_fitting(pieces, clear)
            or self._find_fitting(pieces, possible)
            or [values[place] for place in clear]
        )
        if len(texts) == 1:
            return texts[0]
        ways = " or ".join(map(repr, dict.fromkeys([*texts, stem])))
        way_out = (
            "neither `charset` nor `lengths` decides; "
            if self.is_given
            else "name the alphabet with `charset` or `lengths`, or "
        )
        raise LabelError(f"its name can be read as {ways}; {way_out}{HINT}")

    def _find_fitting(self, pieces: list[str], places: Sequence[int]) -> list[str]:
        """Return the parts that fit, the longest of those side by side as one: 7-3."""
        fitting, last = list[str](), -1
        for start, end in product(places, places[::-1]):
            text = "".join(pieces[2 * start : 2 * end + 1])
            are_new = last < start <= end and set(range(start, end + 1)).issubset(places)
            if are_new and (self.joins or start == end) and self.fits(text):
                fitting.append(text)
                last = end
        return list(dict.fromkeys(fitting))


class _PartRules:
    """Which parts of names with the same separators can be the text.

    clear: the places of these parts, without numbers of copies. are_numbered: whether the names are
    words and a number.
    """

    def __init__(self, separators: tuple[str, ...], names: Sequence[Sequence[str]]) -> None:
        columns = list(zip(*names, strict=True))
        self.tests = [make_text_test(column, 3) for column in columns]
        if set(separators) == {"."} and all(map(_are_numbers, columns)):
            self.tests = [str.isdecimal for _ in columns]  # 0.399 may be a number
        candidates = [
            place for place, column in enumerate(columns) if any(map(self.tests[place], column))
        ]
        others = [column for place, column in enumerate(columns) if place not in candidates]
        self.are_numbered = (
            len(candidates) == 1
            and all(map(_is_word, others))
            and _are_numbers(columns[candidates[0]])
        )
        self.clear = [
            place
            for place in candidates
            if not _counts_copies(columns, place, candidates, separators)
        ]


def _split_name(stem: str) -> list[str]:
    """Return a name's parts, and between them what separates them; a minus at its start separates
    nothing. A part that is a date or a UUID is empty.
    """
    pieces = _SEPARATOR.split(_WHOLE.sub("\0", stem.strip(_AROUND_PARTS)))
    return [re.sub(".*\0.*", "", piece, flags=re.DOTALL) for piece in pieces]


def make_text_test(values: Sequence[str], least: int) -> TextTest:
    """Return a function that tells a text from what stands in the same place of other names.

    No text is a value that all names share, one of numbers that count the names, in even steps, or
    are times, one of random identifiers, a text after the same word, a number after it or one of a
    few words, or a usual name of a camera or program. least: how many numbers make a count.
    """
    numbers = sorted(int(value) for value in values if value.isdecimal())
    are_most = len(numbers) >= least and 2 * len(numbers) >= len(values)
    are_distinct = are_most and len(set(numbers)) == len(numbers)
    step = gcd(*(number - numbers[0] for number in numbers))
    counts = are_distinct and _FULL * (numbers[-1] - numbers[0]) < step * len(numbers)
    times = are_most and all(number in _SECONDS or number // 1000 in _SECONDS for number in numbers)
    usual = _SHARE * sum(NO_TEXT.fullmatch(value) is not None for value in values) >= len(values)
    are_alike = len(values) >= 3 and (
        len(set(values)) == 1
        or _have_same_word(values)
        or _have_few_words(values)
        or _are_identifiers(values)
    )

    def is_text(value: str) -> bool:
        if not value or are_alike or ((counts or times) and value.isdecimal()):
            return False
        return not (usual and NO_TEXT.fullmatch(value))

    return is_text


def _are_identifiers(values: Sequence[str]) -> bool:
    """Tell whether many values are random identifiers, with letters and digits."""
    joined = "".join(values)
    alike = sum(_IDENTIFIER.fullmatch(value) is not None for value in values)
    are_all = alike >= max(FEW_VALUES, _FULL * len(values))
    return are_all and not joined.isalpha() and not joined.isdecimal()


def _have_same_word(values: Sequence[str]) -> bool:
    """Tell whether different values begin with the same word: im0 … im11, label=0412, [0412]."""
    distinct = set(values)
    word = find_beginning(distinct).rstrip(digits)
    fewest = 3 if len(word) > 1 else FEW_VALUES
    if not any(map(str.isalnum, word)) or _SEPARATORS.intersection(word) or len(distinct) < fewest:
        return False
    return not word.isalnum() or all(value[len(word) :].isdecimal() for value in distinct)


def _have_few_words(values: Sequence[str]) -> bool:
    """Tell whether all values are one of a few words and a number: left000, right000."""
    words = {value.rstrip(digits) for value in values}
    are_few = FEW_VALUES * len(words) <= min(len(set(values)), FEW_VALUES**2)
    return are_few and all(word.isalpha() and len(word) > 1 for word in words - set(values))


def _is_word(values: Sequence[str]) -> bool:
    """Tell whether values that recur begin with a letter, or all are usual names of cameras and
    programs.
    """
    return (len(set(values)) == 1 and values[0][:1].isalpha()) or all(
        NO_TEXT.fullmatch(value) and not value[0].isdecimal() for value in values
    )


def _may_count(values: Sequence[str]) -> bool:
    """Tell whether values may be numbers that count the images, some of which are elsewhere."""
    return (
        _are_numbers(values) and min(map(len, values)) > _SHORT and len(set(values)) == len(values)
    )


def _are_numbers(values: Sequence[str]) -> bool:
    return all(map(str.isdecimal, values))


def _is_short(values: Sequence[str]) -> bool:
    return all(value.isdecimal() and len(value) <= _SHORT for value in values)


def _counts_copies(
    columns: Sequence[Sequence[str]],
    place: int,
    candidates: Sequence[int],
    separators: Sequence[str],
) -> bool:
    """Tell whether a part numbers the copies of each text: the short number in AB12_1.

    After a minus, which may belong to a sum (45-7), its values must be few, and the other parts
    have letters.
    """
    values = columns[place]
    others = [columns[other] for other in candidates if other != place]
    if place == 0 or not others or not _is_short(values):
        return False
    different = len(set(values))
    are_few = FEW_VALUES * different <= len(values) >= _ENOUGH
    # 0037_7: the text may be 0037 or 7; but too few values are no texts.
    if any(map(_may_count, others)) and not (are_few and different <= _COPIES):
        return False
    is_shorter = max(map(len, values)) < min(map(len, chain.from_iterable(others)))
    is_certain = "-" not in "".join(separators)
    return is_shorter and (is_certain or (are_few and not any(map(_are_numbers, others))))


def recur_in_folders(files: list[str], stems: list[str]) -> bool:
    """Tell whether most names recur in other folders, and are few or numbers: AB12/1, CD34/1."""
    folders = defaultdict[str, set[str]](set)
    for file, stem in zip(files, stems, strict=True):
        folders[stem].add(str(PurePosixPath(file).parent))
    most_recur = 2 * sum(len(folders[stem]) > 1 for stem in stems) > len(stems)
    return most_recur and (3 * len(folders) <= len(stems) or _is_short(tuple(folders)))


def are_counted(stems: Sequence[str]) -> bool:
    """Tell whether names count the images, with letters, too: a00 … h49, 0a0 … 22f, p1_01 …."""
    names = {stem.lower() for stem in stems}
    if len(names) <= _SINGLE or len(names) < len(stems) or _SIGN.search("".join(names)):
        return False
    start = len(find_beginning(names))
    ends = [name[start:] for name in names]
    width = max(map(len, ends))
    padded = [list(end.rjust(width, "0")) for end in ends]
    return _have_no_gaps(padded) or _have_no_gaps(list(map(_PIECE.findall, ends)))


def _have_no_gaps(names: list[list[str]]) -> bool:
    """Tell whether the last pieces after the same pieces are runs without gaps, and these, too."""
    rows = {tuple(map(_to_number, name)) for name in names}
    while len(set(map(len, rows))) == 1 and () not in rows:
        runs = defaultdict[tuple[int, ...], list[int]](list)
        for *before, last in rows:
            runs[tuple(before)].append(last)
        span = sum(max(run) - min(run) + 1 for run in runs.values())
        is_constant = len(set(chain.from_iterable(runs.values()))) == 1
        if not is_constant and (_FULL * span > len(rows) or len(rows) < 2 * len(runs)):
            return False
        rows = set(runs)
    return rows == {()}


def _to_number(piece: str) -> int:
    if piece.isdecimal():
        return int(piece)
    return int(piece, 36) if piece.isalnum() and piece.isascii() else ord(piece)


def describe_place(stem: str, text: str) -> str:
    """Return how a text stands in a name: TEXT, TEXT_anything, anything-TEXT …"""
    before, _, after = stem.partition(text) if stem.startswith(text) else stem.rpartition(text)
    start = f"anything{before[-1]}" if before else ""
    return f"{start}TEXT{after[0]}anything" if after else f"{start}TEXT"
