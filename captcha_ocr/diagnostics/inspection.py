"""Inspect a folder of captchas: what it holds before training, and what a model gets wrong afterwards."""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captcha_ocr.charset import LOOKALIKES, MAX_SHOWN, SHOWN, shorten, split_characters
from captcha_ocr.config import PrepareConfig
from captcha_ocr.data.images import describe_oddities, open_image, read_bytes
from captcha_ocr.data.labels import Found, Label, Problems, find_labels
from captcha_ocr.data.prepare import (
    IMAGES_PER_JOB,
    PrepareOptions,
    derive_size,
    set_preset,
    survey_labelled,
)
from captcha_ocr.data.selection import Selection, select_labels
from captcha_ocr.errors import ImageError, UsageError, in_one_line
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.input_size import ImageKind
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import count_kinds, counted, in_groups
from captcha_ocr.system.files import sha256
from captcha_ocr.system.parallel import map_jobs

MIN_TEXTS = 20  # with a character; with fewer it is hardly learnt
MAX_STRETCH = 1.1  # ratio of the widest to the narrowest aspect ratio of one design
FEW_IMAGES = 300
MANY_LABELS = 100  # of which one with a character of its own is odd
MOSTLY = 0.9
SHEET_FILE, WRONG_FILE = "contact-sheet.png", "read-wrong.png"
MIN_NUMBERS = 30  # by chance, none of them starts with 0 once in 24 such tables
REWRITTEN = re.compile(
    r"TRUE|FALSE|WAHR|FALSCH|VRAI|FAUX|ИСТИНА|ЛОЖЬ|NaN|nan|NULL|None|[nN]/[aA]"  # 'true', an empty field
    r"|\d[.,]\d+E[+-]?\d+|\dE[+-]\d+|\d+[.,]0+|\d{1,3}(?:,\d{3})+"  # 1.00E+05, 12.0, 1,907
    r"|\d{1,2}(?:[-./]|\. )[^\W\d_]{3,4}\.?(?:[-./ ]\d{2,4})?|[^\W\d_]{3}[- ]\d{2}"  # 1-Mar, 01. Mär, Mar-24
    r"|\d{4}-\d\d-\d\d(?: 00:00:00)?|\d{1,2}([./])\d{1,2}\1\d{2,4}|\d{1,2}:\d\d(?::\d\d)?"  # dates, times
    r"|#[A-Z/¡]+[!?]?|#{3,}"  # #NAME?, ########
)
MAX_SHARE_REWRITTEN = (
    0.5  # of the different texts; more, and they are the design, but for numbers that end with .0
)
MAX_LISTED = 8  # items in a line; the others are counted


@dataclass(frozen=True)
class File:
    """An image file: its hash, (width, height), Pillow's mode and what is odd, or the reason why it cannot be read."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    oddities: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Inspection:
    """What a folder holds. copies: groups of byte-identical images. conflicts: such groups with different labels.

    labels: of the readable images; if no image has a label, their texts are empty. problems: why files are left out, by
    name. found: the files and where their labels come from. oddities: how animated or transparent images are read.
    input_size: the size that `prepare` chooses, for people.
    """

    folder: Path
    labels: list[Label]
    problems: Problems
    found: Found
    sizes: Counter[tuple[int, int]]
    modes: Counter[str]
    oddities: Counter[str]
    copies: list[list[Label]]
    conflicts: list[list[Label]]
    input_size: str

    @property
    def texts(self) -> list[str]:
        """The labels' texts; none without labels."""
        return [label.text for label in self.labels] if self.found.labels else []

    @property
    def lengths(self) -> Counter[int]:
        """The number of texts of each length."""
        return Counter(len(split_characters(text)) for text in self.texts)

    @property
    def characters(self) -> Counter[str]:
        """The number of texts with each character, in the order of the alphabet."""
        counts = Counter(
            character for text in self.texts for character in set(split_characters(text))
        )
        return Counter(dict(sorted(counts.items())))

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
            "sources": self.found.sources,
            "other_files": self.found.others,
            "lengths": {str(length): count for length, count in sorted(self.lengths.items())},
            "characters": dict(self.characters),
            "copies": [[label.file for label in group] for group in self.copies],
            "conflicts": [[label.file for label in group] for group in self.conflicts],
            "input": self.input_size,
            "advice": advice_on_images(self),
        }

    def __str__(self) -> str:
        with_label = " with a label" if self.found.labels else ", none with a label"
        rows = [
            (
                "images",
                f"{len(self.labels):,} readable{with_label}; {len(self.problems):,} left out",
            ),
            *self.found.rows(),
            (
                "sizes",
                join_first([f"{w}x{h} {count:,}" for (w, h), count in self.sizes.most_common()]),
            ),
            (
                "modes",
                join_first([f"{mode} {count:,}" for mode, count in self.modes.most_common()]),
            ),
            ("odd images", count_kinds(self.oddities)),
            *(self.rows_on_texts() if self.texts else []),
            (
                "copies",
                join_first([" = ".join(label.file for label in group) for group in self.copies]),
            ),
            *(("left out", line) for line in first_of(in_groups(self.problems), "more reasons")),
        ]
        return "\n".join(f"{name:14}{in_one_line(words)}" for name, words in rows if words)

    def rows_on_texts(self) -> list[tuple[str, str]]:
        """Return what the labels hold, for people."""
        counts, of = list(self.characters.items()), "the number of texts"
        if len(counts) > MAX_SHOWN:
            counts, of = (
                sorted(counts, key=lambda each: each[1])[:SHOWN],
                "the rarest and their number of texts",
            )
        characters = " ".join(f"{character}:{count:,}" for character, count in counts)
        groups = (
            "".join(character for character in self.characters if character in group)
            for group in LOOKALIKES
        )
        conflicts = [
            " = ".join(f"{label.file} ({label.text})" for label in group)
            for group in self.conflicts
        ]
        return [
            ("for training", self.input_size),
            (
                "lengths",
                join_first(
                    [f"{length} {count:,}" for length, count in sorted(self.lengths.items())]
                ),
            ),
            ("alphabet", f"{len(self.characters):,} characters, with {of}: {characters}"),
            ("look-alikes", join_first([group for group in groups if len(group) > 1])),
            ("conflicts", join_first(conflicts)),
        ]


def inspect(
    folder: Path, config: PrepareConfig, options: PrepareOptions = PrepareOptions()
) -> Inspection:
    """Read every labelled image below `folder`, or every image if none has a label; copies are kept and counted.

    Errors are those of `prepare`, but for a folder without labels.
    """
    found = find_labels(folder, options.labels_file, options.corrections, config)
    selected = select_labels(found.labels, config) if found.labels else None
    labels = selected.labels if selected else [Label(file, "") for file in found.images]
    blocks = [
        labels[first : first + IMAGES_PER_JOB] for first in range(0, len(labels), IMAGES_PER_JOB)
    ]
    jobs = [(folder, [label.file for label in block], config.max_bytes) for block in blocks]
    files: list[File] = []
    for results in map_jobs(read_files, jobs, options.workers):
        files += results
        options.progress(len(files), len(labels))
    unreadable = {
        label.file: file.reason
        for label, file in zip(labels, files, strict=True)
        if file.reason is not None
    }
    problems = (found.problems | selected.problems if selected else {}) | unreadable
    pairs = [
        (label, file) for label, file in zip(labels, files, strict=True) if file.reason is None
    ]
    if not pairs:
        name, reason = next(iter(unreadable.items()))
        raise UsageError(f"no image below {folder} can be read; {name}: {reason}")
    by_hash: dict[str, list[Label]] = {}
    for label, file in pairs:
        by_hash.setdefault(file.sha256, []).append(label)
    groups = [group for group in by_hash.values() if len(group) > 1]
    readable = [label for label, _ in pairs]
    return Inspection(
        folder=folder,
        labels=readable,
        problems=problems,
        found=found,
        sizes=Counter(file.size for _, file in pairs),
        modes=Counter(file.mode for _, file in pairs),
        oddities=Counter(oddity for _, file in pairs for oddity in file.oddities),
        copies=[group for group in groups if len({label.text for label in group}) == 1],
        conflicts=[group for group in groups if len({label.text for label in group}) > 1],
        input_size=describe_size(
            survey_labelled(folder, readable, config.max_bytes), config, selected
        )
        if selected
        else "",
    )


def read_files(job: tuple[Path, list[str], int]) -> list[File]:
    """Read some files of a folder."""
    folder, names, max_bytes = job
    files = []
    for name in names:
        try:
            data = read_bytes(folder / name, max_bytes)
            image = open_image(data, max_bytes)
            files.append(
                File(sha256(data), image.size, image.mode, tuple(describe_oddities(image)))
            )
        except ImageError as error:
            files.append(File(reason=str(error)))
    return files


def describe_size(seen: ImageKind, config: PrepareConfig, selected: Selection) -> str:
    """Describe the network's input for images like `seen`, and why it is grey or in colour."""
    config = set_preset(config, selected, seen)
    size = config.input_size(derive_size(seen, selected.lengths.longest))
    if config.preset == "finetune":
        return (
            f"{seen.width}x{seen.height} resized to {size} (as the model in the package reads them)"
        )
    why = "colour has contrast that grey lacks" if seen.channels == 3 else "grey keeps the contrast"
    is_same = (seen.width, seen.height) == (size.width, size.height)
    change = f"not resized, {size.colours}" if is_same else f"resized to {size}"
    return f"{seen.width}x{seen.height} {change} ({why})"


def first_of(words: Sequence[str], others: str = "more") -> list[str]:
    """Return the first words, and how many others there are."""
    more = [f"{len(words) - MAX_LISTED:,} {others}"] if len(words) > MAX_LISTED else []
    return [*words[:MAX_LISTED], *more]


def join_first(words: Sequence[str]) -> str:
    """Join the first words, and count the others; `none` without any."""
    return "; ".join(first_of(words)) or "none"


def advice_on_images(found: Inspection) -> list[str]:
    """Return what to consider before training, one sentence each."""
    advice = [] if found.found.labels else advice_on_labels(found.found)
    advice += advice_on_tables(found.found, found.texts)
    advice += advice_on_typing_errors(found)
    rare = [character for character, count in found.characters.items() if count < MIN_TEXTS]
    if rare:
        advice.append(
            f"fewer than {MIN_TEXTS} texts contain each of {shorten(''.join(rare))}: add more, or they will be misread"
        )
    both = [c for c in found.characters if c.lower() != c and c.lower() in found.characters]
    if both:
        advice.append(
            f"{shorten(''.join(both))} occur in both cases: prepare reads them as one case; --case-sensitive keeps both"
        )
    if found.conflicts:
        times = counted(len(found.conflicts), "time")
        advice.append(
            f"the same image has different labels, {times}: correct them; prepare leaves the image out"
        )
    proportions = [width / height for width, height in found.sizes]
    if max(proportions) > MAX_STRETCH * min(proportions):
        advice.append("the images have different proportions: all are stretched to one size")
    if len(found.labels) < FEW_IMAGES:
        advice.append(f"only {counted(len(found.labels), 'image')}: add a few hundred")
    return advice or ["the images are fit for training"]


def advice_on_tables(found: Found, texts: Sequence[str]) -> list[str]:
    """Return what to do with texts that a spreadsheet may have rewritten, and with labels that a model wrote."""
    advice = advice_on_spreadsheet(texts) if found.has_table else []
    if found.readings:
        checked = "check every row, then delete the column confidence of the table"
        advice.append(f"{counted(found.readings, 'text')} are a model's readings: {checked}")
    return advice


def advice_on_labels(found: Found) -> list[str]:
    """Return what to do about a folder whose images have no labels."""
    file, reason = next(iter(found.problems.items()))
    write = "write the texts into a labels.csv with the columns filename,text"
    draft = "the next command writes a draft, a model's readings, for you to correct"
    why = "; ".join([f"{file}: {reason}", *found.hints])
    return [f"no image has a label ({why}): {write}; {draft}"]


def advice_on_typing_errors(found: Inspection) -> list[str]:
    """Return the characters that a single text has among many, with their files."""
    if len(found.labels) < MANY_LABELS:
        return []
    single = {character for character, count in found.characters.items() if count == 1}
    of = {
        c: label.file for label in found.labels for c in split_characters(label.text) if c in single
    }
    places = [f"{character!r} ({file})" for character, file in sorted(of.items())]
    return [f"one text alone has {join_first(places)}: a typing error?"] if places else []


def advice_on_wrong(wrong: int, labels: int) -> list[str]:
    """Return what it means that a model reads nearly all images differently from their labels."""
    if wrong < MOSTLY * labels:
        return []
    why = "the labels do not belong to the images, or the model is for another design"
    return [f"{wrong:,} of {labels:,} images are read differently from their labels: {why}"]


def advice_on_spreadsheet(texts: Sequence[str]) -> list[str]:
    """Return the signs that a spreadsheet took texts for numbers, truth values or dates and rewrote them."""
    again = "import the column as text, or quote from the source, and save the table again"
    numbers = [text for text in texts if text.isdecimal()]
    advice = []
    are_many = len(numbers) >= MIN_NUMBERS and 2 * len(numbers) > len(texts)
    with_zero = sum(text.startswith("0") and text != "0" for text in numbers)
    longest = max(map(len, numbers), default=0)
    shorter = sum(len(text) < longest for text in numbers)
    if are_many and shorter and (with_zero == 0 or with_zero < shorter / 3 < len(numbers) / 9):
        few = "no text starts" if with_zero == 0 else f"only {counted(with_zero, 'text')} start"
        advice.append(
            f"{few} with 0 and their lengths differ: a spreadsheet may have cut zeros; {again}"
        )
    rewritten = list(dict.fromkeys(text for text in texts if REWRITTEN.fullmatch(text)))
    are_some = len(rewritten) < MAX_SHARE_REWRITTEN * len(set(texts))
    if rewritten and (are_some or all(text.endswith(".0") for text in rewritten)):
        advice.append(
            f"{', '.join(rewritten[:3])}: a spreadsheet may have rewritten such texts; {again}"
        )
    return advice


def sample(labels: Sequence[Label]) -> list[Label]:
    """Return the labels in a random order, which is always the same."""
    return random.Random(0).sample(list(labels), len(labels))


@dataclass(frozen=True)
class WrongReading:
    """An image whose prediction is not its label."""

    file: str
    label: str
    reading: Reading


def read_wrong(
    recognizer: Recognizer,
    found: Inspection,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[WrongReading]:
    """Return the images whose prediction is not their label, most confident first: the first are often wrong labels."""
    normalize = recognizer.config.charset.normalize
    wrong = []
    results = recognizer.read_all(found.folder / label.file for label in found.labels)
    for number, (label, result) in enumerate(zip(found.labels, results, strict=True), 1):
        if isinstance(result, Reading) and result.text != normalize(label.text):
            wrong.append(WrongReading(label.file, label.text, result))
        progress(number, len(found.labels))
    return sorted(wrong, key=lambda each: (-each.reading.confidence, each.file))
