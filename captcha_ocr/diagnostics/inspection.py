"""What a folder of captchas holds before training, and what a model gets wrong there afterwards."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, filterfalse
from operator import attrgetter
from pathlib import Path
from typing import Any

from captcha_ocr.charset import (
    LOOKALIKES,
    MAX_SHOWN,
    SHOWN,
    shorten,
    split_characters,
)
from captcha_ocr.data.images import ONE_COLOUR, decode, describe_oddities, hash_pixels, read_bytes
from captcha_ocr.data.labels import Found, Label, Problems, find_labels
from captcha_ocr.data.prepare import (
    IMAGES_PER_JOB,
    ProgressCallback,
    derive_size,
    set_preset,
    survey_labelled,
)
from captcha_ocr.data.recurrence import find_beginning, find_odd_characters
from captcha_ocr.data.selection import Selection, select_labels
from captcha_ocr.errors import ImageError, check, in_one_line
from captcha_ocr.experiments.judge import judge
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.input_size import ImageKind
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import count_kinds, counted, in_groups
from captcha_ocr.system.parallel import map_jobs

SHEET_FILE, WRONG_FILE = "contact-sheet.png", "read-wrong.png"
# Texts with a character; with fewer it is hardly learnt. The model in the package knows it before
_MIN_TEXTS, _MIN_TEXTS_KNOWN = 20, 3
_MAX_STRETCH = 1.1  # ratio of the widest to the narrowest aspect ratio of one design
_ENOUGH_LABELS = {"finetune": (50, " (50 of one real design gave 98 %: README.md)")}
_FEW_UNLABELLED = 10  # images without a label, which adapt needs
_FEW_LABELS = 300  # with more, adapting gains nothing: docs/own-captchas.md
_NEARLY_ALL = 0.9
_MIN_NUMBERS = 30  # by chance, none of them starts with 0 once in 24 such tables
_REWRITTEN = re.compile(
    # 'true', an empty field
    r"TRUE|FALSE|WAHR|FALSCH|VRAI|FAUX|ИСТИНА|ЛОЖЬ|NaN|nan|NULL|None|[nN]/[aA]"
    # 1.00E+05, 12.0, 1,907
    r"|\d[.,]\d+E[+-]?\d+|\dE[+-]\d+|\d+[.,]0+|\d{1,3}(?:,\d{3})+"
    # 1-Mar, 01. Mär, Mar-24
    r"|\d{1,2}(?:[-./]|\. )[^\W\d_]{3,4}\.?(?:[-./ ]\d{2,4})?|[^\W\d_]{3}[- ]\d{2}"
    # dates, times
    r"|\d{4}-\d\d-\d\d(?: 00:00:00)?|\d{1,2}([./])\d{1,2}\1\d{2,4}|\d{1,2}:\d\d(?::\d\d)?"
    r"|#[A-Z/¡]+[!?]?|#{3,}"  # #NAME?, ########
)
# Of the different texts; more, and they are the design, but for numbers that end with .0.
_MAX_SHARE_REWRITTEN = 0.5
_MIN_FRAMED = 10  # different texts; of fewer, a common beginning is luck
_MAX_LISTED = 8  # items in a line; the others are counted


@dataclass(frozen=True)
class _File:
    """An image file.

    content: a hash of its pixels. size: width and height. mode: of Pillow. oddities: how it is
    read.
    """

    content: str
    size: tuple[int, int]
    mode: str
    oddities: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """What a folder holds.

    labels: of the readable images; if no image has a label, their texts are empty. problems: why
    files are left out, by name. contents: the files and where their labels come from. oddities: how
    animated or transparent images are read. copies: groups of images with the same pixels.
    conflicts: such groups with different labels. preset, input_size: what `prepare` chooses, for
    people. doubts: what most images are not fit for. case_sensitive: as the option.
    """

    folder: Path
    labels: list[Label]
    problems: Problems
    contents: Found
    sizes: Counter[tuple[int, int]]
    modes: Counter[str]
    oddities: Counter[str]
    copies: list[list[Label]]
    conflicts: list[list[Label]]
    preset: str
    input_size: str
    doubts: tuple[str, ...]
    case_sensitive: bool

    @property
    def lacks_labels(self) -> bool:
        """Whether so many images lack a label that adapting gains from them, and labels are few."""
        missing = len(
            {*self.contents.images}.difference(label.file for label in self.contents.labels)
        )
        return len(self.texts) < _FEW_LABELS and missing >= max(_FEW_UNLABELLED, len(self.texts))

    @property
    def texts(self) -> list[str]:
        """The labels' texts; none without labels."""
        return [label.text for label in self.labels if self.contents.labels]

    @property
    def lengths(self) -> Counter[int]:
        """The number of texts of each length, the shortest first."""
        return Counter(sorted(len(split_characters(text)) for text in self.texts))

    @property
    def characters(self) -> Counter[str]:
        """The number of texts with each character, in the order of the alphabet."""
        different = map(set, map(split_characters, self.texts))
        return Counter(sorted(chain.from_iterable(different)))

    def summary(self) -> dict[str, Any]:
        """Return the facts as JSON types."""
        return {
            "images": len(self.labels),
            "labels": len(self.texts),
            "problems": self.problems,
            "sizes": {
                f"{width}x{height}": count for (width, height), count in self.sizes.most_common()
            },
            "modes": dict(self.modes.most_common()),
            "oddities": dict(self.oddities.most_common()),
            "sources": self.contents.sources,
            "other_files": self.contents.others,
            "lengths": dict(zip(map(str, self.lengths), self.lengths.values(), strict=True)),
            "characters": dict(self.characters),
            "copies": list(map(_list_files, self.copies)),
            "conflicts": list(map(_list_files, self.conflicts)),
            "input": self.input_size,
            "advice": advice_on_images(self),
        }

    def __str__(self) -> str:
        with_label = " with a label" if self.contents.labels else ", none with a label"
        images = f"{len(self.labels):,} readable{with_label}; {len(self.problems):,} left out"
        sizes = [f"{w}x{h} {count:,}" for (w, h), count in self.sizes.most_common()]
        modes = [f"{mode} {count:,}" for mode, count in self.modes.most_common()]
        copies = [" = ".join(files) for files in map(_list_files, self.copies)]
        left_out = _shorten_list(in_groups(self.problems), "more reasons")
        rows = [
            ("images", images),
            *self.contents.rows(),
            ("sizes", _join_first(sizes)),
            ("modes", _join_first(modes)),
            ("odd images", count_kinds(self.oddities)),
            *self._describe_texts(),
            ("copies", _join_first(copies)),
            *(("left out", line) for line in left_out),
        ]
        return "\n".join([f"{name:14}{in_one_line(words)}" for name, words in rows if words])

    def _describe_texts(self) -> list[tuple[str, str]]:
        if not self.texts:
            return []
        lengths = [f"{length} {count:,}" for length, count in self.lengths.items()]
        counts, what = list(self.characters.items()), "the number of texts"
        if len(counts) > MAX_SHOWN:
            counts = sorted(counts, key=lambda item: item[1])[:SHOWN]
            what = "the rarest and their number of texts"
        alphabet = " ".join(f"{character}:{count:,}" for character, count in counts)
        groups = ["".join(filter(group.__contains__, self.characters)) for group in LOOKALIKES]
        name = "{0.file} ({0.text})".format
        conflicts = [" = ".join(map(name, group)) for group in self.conflicts]
        return [
            ("for training", self.input_size),
            ("lengths", _join_first(lengths)),
            ("alphabet", f"{len(self.characters):,} characters, with {what}: {alphabet}"),
            ("look-alikes", _join_first([group for group in groups if len(group) > 1])),
            ("conflicts", _join_first(conflicts)),
        ]


def inspect(
    folder: Path,
    config: PrepareConfig,
    options: PrepareOptions = PrepareOptions(),
    progress: ProgressCallback = lambda done, total: None,
) -> Inspection:
    """Read every labelled image below `folder`, or every image if none has a label.

    Copies are kept and counted. Errors are those of `prepare`, but for a folder without labels.
    """
    contents = find_labels(folder, options.labels, options.corrections, config)
    labels, problems, input_size = [Label(file, "") for file in contents.images], Problems(), ""
    preset = "finetune"
    if contents.labels:
        selected = select_labels(contents.labels, config)
        labels, problems = selected.labels, contents.problems | selected.problems
    seen = survey_labelled(folder, labels, config.max_bytes)
    if contents.labels:
        config = set_preset(config, selected, seen)
        preset, input_size = str(config.preset), _describe_size(seen, config, selected)
    jobs = [
        (folder, labels[start : start + IMAGES_PER_JOB], config.max_bytes)
        for start in range(0, len(labels), IMAGES_PER_JOB)
    ]
    files: list[_File | ImageError] = []
    for results in map_jobs(_read_files, jobs, options.workers):
        files += results
        progress(len(files), len(labels))
    images: dict[Label, _File] = {}
    groups: dict[str, list[Label]] = {}
    for label, file in zip(labels, files, strict=True):
        if isinstance(file, ImageError):
            problems[label.file] = str(file)
        else:
            images[label] = file
            groups.setdefault(file.content, []).append(label)
    check(bool(images), f"no image below {folder} can be read; {labels[0].file}: {files[0]}")
    same = [group for group in groups.values() if len(group) > 1]
    return Inspection(
        folder=folder,
        labels=list(images),
        problems=problems,
        contents=contents,
        sizes=Counter(file.size for file in images.values()),
        modes=Counter(map(attrgetter("mode"), images.values())),
        oddities=Counter(chain.from_iterable(map(attrgetter("oddities"), images.values()))),
        copies=list(filter(_has_one_text, same)),
        conflicts=list(filterfalse(_has_one_text, same)),
        preset=preset,
        input_size=input_size,
        doubts=seen.doubts,
        case_sensitive=config.case_sensitive,
    )


def _read_files(job: tuple[Path, list[Label], int]) -> list[_File | ImageError]:
    folder, labels, max_bytes = job
    files: list[_File | ImageError] = []
    for label in labels:
        try:
            image = decode(read_bytes(folder / label.file, max_bytes), max_bytes)
            oddities = tuple(describe_oddities(image))
            files.append(_File(hash_pixels(image), image.size, image.mode, oddities))
        except ImageError as error:
            files.append(error)
    return files


def _has_one_text(labels: Sequence[Label]) -> bool:
    return len({label.text for label in labels}) == 1


def _list_files(labels: Sequence[Label]) -> list[str]:
    return [label.file for label in labels]


def _describe_size(seen: ImageKind, config: PrepareConfig, selected: Selection) -> str:
    size = config.input_size(derive_size(seen, selected.lengths.longest))
    before = f"{seen.width}x{seen.height}"
    if config.preset == "finetune":
        return f"{before} resized to {size} (as the model in the package reads them)"
    why = (
        "colours differ where their brightness does not"
        if seen.channels == 3
        else "grey keeps the contrast"
    )
    if (seen.width, seen.height) == (size.width, size.height):
        return f"{before} not resized, {size.colours} ({why})"
    return f"{before} resized to {size} ({why})"


def _shorten_list(words: Sequence[str], rest: str = "more") -> list[str]:
    if len(words) <= _MAX_LISTED:
        return [*words]
    return [*words[:_MAX_LISTED], f"{len(words) - _MAX_LISTED:,} {rest}"]


def _join_first(words: Sequence[str]) -> str:
    return "; ".join(_shorten_list(words)) or "none"


def advice_on_images(inspection: Inspection) -> list[str]:
    """Return what to consider before training, one sentence each."""
    contents, characters = inspection.contents, inspection.characters
    advice = []
    if not contents.labels:
        file, reason = next(iter(contents.problems.items()))
        why = "; ".join([f"{file}: {reason}", *contents.hints])
        advice.append(
            f"no image has a label ({why}): adapt makes a model without labels, label is a page to "
            "write them; or write them into a labels.csv with the columns filename,text"
        )
    elif inspection.lacks_labels:
        advice.append("most images have no label: adapt learns from them, too")
    advice += advice_on_tables(contents, inspection.texts)
    fewest = _MIN_TEXTS_KNOWN if inspection.preset == "finetune" else _MIN_TEXTS
    rare = "".join(character for character, count in characters.items() if count < fewest)
    both = "".join(c for c in characters if c.lower() != c and c.lower() in characters)
    is_merged = both and not inspection.case_sensitive
    times = counted(len(inspection.conflicts), "time")
    proportions = [width / height for width, height in inspection.sizes]
    flat = inspection.oddities[ONE_COLOUR]
    considered = {
        f"fewer than {fewest} texts contain each of {shorten(rare)}: "
        "add more, or they may be misread": rare,
        f"{shorten(both)} occur in both cases: prepare reads them as one case; "
        "`case_sensitive` keeps both": is_merged,
        f"the same image has different labels, {times}: correct them; "
        "prepare leaves the image out": inspection.conflicts,
        "the images have different proportions: all are stretched to one size": (
            max(proportions) > _MAX_STRETCH * min(proportions)
        ),
        f"{counted(flat, 'image')} {'has' if flat == 1 else 'have'} one colour and no text: "
        "take them out of the folder": flat,
    }
    advice += inspection.doubts
    advice += [sentence for sentence, applies in considered.items() if applies]
    if contents.labels:
        left_out = chain(*(group[1:] for group in inspection.copies), *inspection.conflicts)
        usable = len(inspection.labels) - len(list(left_out))
        advice += advice_on_number(usable, inspection.preset)
    return advice or ["the images are fit for training"]


def advice_on_number(labels: int, preset: str) -> list[str]:
    """Return what to do if there are too few labelled images for a preset."""
    enough, known = _ENOUGH_LABELS.get(preset, (300, ""))
    advice = f"only {counted(labels, 'labelled image')}: label {enough} or more{known}"
    return [advice] if labels < enough else []


def advice_on_tables(contents: Found, texts: Sequence[str]) -> list[str]:
    """Return what to do with texts that a spreadsheet or a model may have written."""
    advice = advice_on_spreadsheet(texts) if contents.has_table else []
    advice += _advise_on_frame(texts)
    if odd := find_odd_characters({label.file: label.text for label in contents.labels}):
        places = _join_first([f"{character} ({file})" for file, character in odd.items()])
        advice.append(f"hardly any other text has {places}: a note, or a typing error?")
    if contents.readings:
        advice.append(
            f"{counted(contents.readings, 'text')} are a model's readings: check every row, "
            "then delete the table's column of confidences"
        )
    return advice


def advice_on_wrong(wrong: int, labels: int) -> list[str]:
    """Return what it means that a model reads nearly all images differently from their labels."""
    advice = (
        f"{wrong:,} of {labels:,} images are read differently from their labels: "
        "the labels do not belong to the images, or the model is for another design"
    )
    return [advice] if wrong >= _NEARLY_ALL * labels else []


def _advise_on_frame(texts: Sequence[str]) -> list[str]:
    """Return what all texts begin or end with, as the answers of a program may."""
    are_many = len(set(texts)) >= _MIN_FRAMED
    ends = {
        "begin": find_beginning(texts),
        "end": find_beginning(text[::-1] for text in texts)[::-1],
    }
    return [
        f"all texts {verb} with {part!r}: take it out of them unless the images show it"
        for verb, part in ends.items()
        if part and are_many
    ]


def advice_on_spreadsheet(texts: Sequence[str]) -> list[str]:
    """Return the signs that a spreadsheet took texts for numbers, truth values or dates."""
    again = "import the column as text, or quote from the source, and save the table again"
    numbers = [text for text in texts if text.isdecimal()]
    are_many = len(numbers) >= _MIN_NUMBERS and 2 * len(numbers) > len(texts)
    with_zero = sum(text.startswith("0") and text != "0" for text in numbers)
    longest = max(map(len, numbers), default=0)
    shorter = sum(len(text) < longest for text in numbers)
    few = "no text starts" if with_zero == 0 else f"only {counted(with_zero, 'text')} start"
    rewritten = list(dict.fromkeys(filter(_REWRITTEN.fullmatch, texts)))
    are_few = len(rewritten) < _MAX_SHARE_REWRITTEN * len(set(texts))
    signs = {
        f"{few} with 0 and their lengths differ: a spreadsheet may have cut zeros; {again}": (
            are_many and shorter and (with_zero == 0 or with_zero < shorter / 3 < len(numbers) / 9)
        ),
        f"{', '.join(rewritten[:3])}: a spreadsheet may have rewritten such texts; {again}": (
            rewritten and (are_few or all(text.endswith(".0") for text in rewritten))
        ),
    }
    return [sentence for sentence, applies in signs.items() if applies]


def read_wrong(
    recognizer: Recognizer,
    inspection: Inspection,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[tuple[Label, Reading]]:
    """Return the images that a model reads differently from their labels.

    The most confident ones come first: they are often wrong labels.
    """
    labels, wrong = inspection.labels, []
    for number, judged in enumerate(judge(recognizer, inspection.folder, labels), 1):
        if not judged.is_exact:
            wrong.append((judged.label, judged.reading))
        progress(number, len(labels))
    return sorted(wrong, key=lambda item: (-item[1].confidence, item[0].file))
