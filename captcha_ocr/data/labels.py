"""What text an image shows: from its file name, a pattern or a labels file."""

import csv
import io
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import NamedTuple

from captcha_ocr.charset import UNREADABLE, Charset, can_be_read, find_charset
from captcha_ocr.config import MAX_LENGTH, RARE, SPLITS, Lengths, PrepareConfig, Split
from captcha_ocr.data.images import image_files
from captcha_ocr.errors import CaptchaOcrError, LabelError, UsageError, check
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import open_regular

LABELS_FILE = "labels.csv"
LONGEST_SHOWN = 100  # characters of what somebody wrote, in a sentence
Problems = dict[str, str]  # file name -> why it is left out


@dataclass(frozen=True)
class Label:
    """The text of the image `file` (a POSIX path relative to its folder) and the split given for it."""

    file: str
    text: str
    split: Split | None = None

    def __post_init__(self) -> None:
        # File systems hand out decomposed names: "e" and an accent where the label has one "é".
        object.__setattr__(self, "text", unicodedata.normalize("NFC", self.text))


def label_from_name(stem: str) -> str:
    """The text in a file name without its extension: TEXT, TEXT_anything or anything-TEXT."""
    if "_" in stem and "-" in stem:
        raise LabelError("its name has both '_' and '-': name the text with --label-pattern or a labels.csv")
    text = stem.rsplit("-", 1)[1] if "-" in stem else stem.split("_", 1)[0]
    if not text:
        raise LabelError("its name holds no text")
    return text


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A --label-pattern: the group `text`, else the first group, else the whole match is the text."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageError(f"--label-pattern {shortened(pattern)!r} is no regular expression: {error}") from None


def shortened(text: str) -> str:
    """As much of a text as a sentence has room for."""
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def label_from_pattern(name: str, pattern: re.Pattern[str]) -> str:
    """The text that `pattern` finds in a file name (with its extension)."""
    match = pattern.search(name)
    if match is None:
        raise LabelError("--label-pattern does not match its name")
    groups = match.groupdict()
    text = groups["text"] if "text" in groups else match.group(1 if match.re.groups else 0)
    if not text:
        raise LabelError("--label-pattern finds no text in its name")
    return text


def labels_from_names(files: list[str], pattern: str | None = None) -> tuple[list[Label], Problems]:
    """A label for every file whose name tells it, and why the others have none."""
    compiled = compile_pattern(pattern) if pattern is not None else None
    labels, problems = [], {}
    for file in files:
        name = PurePosixPath(file)
        try:
            text = label_from_pattern(name.name, compiled) if compiled else label_from_name(name.stem)
            labels.append(Label(file, text))
        except LabelError as error:
            problems[file] = str(error)
    return labels, problems


def are_serial_numbers(labels: list[Label]) -> bool:
    """Whether the texts found in names number the images, 0, 1, 2, … from wherever on, some of ten and more."""
    numbers = sorted(int(label.text) for label in labels if label.text.isdecimal())
    return len(numbers) == len(labels) >= 10 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def read_labels(path: Path, folder: Path | None = None) -> tuple[list[Label], Problems]:
    """The rows of a labels file, `filename,text[,split]` in UTF-8, and why some are left out.

    What `eval --csv` and `eval --json` print is such a file, too. folder: where the images lie; a file name that leads
    to one of them from where we are now stands for it.
    """
    rows = read_rows(path)
    labels: dict[str, Label] = {}
    problems: Problems = {}
    has_splits = any(row.get("split") for row in rows)
    for number, row in enumerate(rows, 2):
        file = within(folder, PurePosixPath((row["filename"] or "").replace("\\", "/")).as_posix())
        try:
            label = label_from_row(row, file, has_splits)
        except LabelError as error:
            problems[file if row["filename"] else f"{path.name} row {number}"] = str(error)
            continue
        if labels.setdefault(file, label) != label:
            problems[file] = f"{path.name} gives it two different labels"
    return [label for file, label in labels.items() if file not in problems], problems


def within(folder: Path | None, file: str) -> str:
    """A file name as one relative to `folder`, where it names something else, or nothing, there but leads into it."""
    path = Path(file)
    is_relative = not path.is_absolute() and ".." not in path.parts
    if folder is None or "\0" in file or (is_relative and os.path.exists(folder / file)):
        return file
    place, inside = Path(os.path.abspath(file)), os.path.abspath(folder)
    # Nothing outside the folder is looked for.
    return place.relative_to(inside).as_posix() if place.is_relative_to(inside) and os.path.exists(place) else file


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, or lines of JSON objects; CaptchaOcrError where it is none of ours."""
    try:
        with open_regular(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as stream:
            lines = stream.readlines()
        if lines and lines[0].startswith("{"):
            return [row for line in lines if (row := row_of_json(line)) is not None]
        columns = lines[0].strip() if lines else ""
        separator = max(",;\t", key=columns.count)  # spreadsheets take what is usual where one lives
        names = [name.strip().lower() for name in next(csv.reader([columns], delimiter=separator), [])]
        rows = list(csv.DictReader(lines[1:], names, delimiter=separator, strict=True))
    except OSError as error:
        raise CaptchaOcrError(f"{path} cannot be read as a labels file: {error.strerror or error}") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise CaptchaOcrError(f"{path} cannot be read as a labels file: {error}") from None
    if names.count("filename") != 1 or names.count("text") != 1:
        raise CaptchaOcrError(f"{path} needs a first line with filename,text (and, if wanted, split), each once")
    return rows


def row_of_json(line: str) -> dict[str, str] | None:
    """A line of `eval --json` as a row; None for one that has no code: a failure, or the summary."""
    found = json.loads(line)
    if not (isinstance(found, dict) and isinstance(found.get("path"), str) and isinstance(found.get("text"), str)):
        return None
    return {"filename": found["path"], "text": found["text"]}


def label_from_row(row: dict[str, str], file: str, has_splits: bool) -> Label:
    """The label in one row; LabelError where something is missing or leads elsewhere."""
    if not row["filename"]:
        raise LabelError("the row has no file name")
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(file).drive or "\0" in file:
        raise LabelError("the file name leads out of the folder")
    if not row["text"]:
        raise LabelError("its label is empty")
    if not has_splits:
        return Label(file, row["text"])
    for split in SPLITS:
        if row["split"] == split:
            return Label(file, row["text"], split)
    raise LabelError(f"its split is {row['split']!r}; only train, val and test are known")


SERIAL_NUMBERS = (
    "the names of the images in {} hold serial numbers where a text is looked for; "
    "--label-pattern or labels.csv says where their text is"
)


def find_labels(
    images: Path, labels_file: Path | None = None, pattern: str | None = None, corrections: Path | None = None
) -> tuple[list[Label], Problems]:
    """Find the labels of the images below a folder: in a labels file (given, or labels.csv there) or in the names.

    corrections: a labels file whose rows win; a row with an empty text leaves its image out. UsageError without any
    label.
    """
    labels, problems = find_first_labels(images, labels_file, pattern)
    if corrections is not None:
        corrected, refused = read_labels(corrections, images)
        check_rows(corrections, corrected, refused, images, {label.file for label in labels} | set(problems))
        split_of = {label.file: label.split for label in labels}
        new = {label.file: replace(label, split=split_of.get(label.file)) for label in corrected}
        kept = [label for label in labels if label.file not in new and label.file not in refused]
        problems = {file: reason for file, reason in problems.items() if file not in new} | refused
        labels = sorted([*kept, *new.values()], key=lambda label: label.file)
    if not labels:
        file, reason = next(iter(problems.items()))
        raise UsageError(f"no image has a label; {file}: {reason}")
    return labels, problems


def find_first_labels(images: Path, labels_file: Path | None, pattern: str | None) -> tuple[list[Label], Problems]:
    """The labels as `find_labels` finds them, before they are corrected."""
    if not images.is_dir():
        raise UsageError(f"{images} is not a folder; make images with: captcha-ocr generate")
    files = image_files(images)
    if not files:
        raise UsageError(f"{images} holds no PNG, JPEG, GIF, BMP or WEBP files")
    if labels_file is None and pattern is None and os.path.lexists(images / LABELS_FILE):
        labels_file = images / LABELS_FILE
    if labels_file is None:
        labels, problems = labels_from_names(files, pattern)
        check(pattern is not None or not are_serial_numbers(labels), SERIAL_NUMBERS.format(images))
        return labels, problems
    if pattern is not None:
        raise UsageError("--labels and --label-pattern exclude each other")
    labels, problems = read_labels(labels_file, images)
    check_rows(labels_file, labels, problems, images, set(files))
    known = {label.file for label in labels} | set(problems)
    problems |= {file: f"{labels_file.name} has no row for it" for file in files if file not in known}
    return sorted(labels, key=lambda label: label.file), problems


def check_rows(table: Path, labels: list[Label], refused: Problems, images: Path, files: set[str]) -> None:
    """UsageError where a labels file has rows, but none of them names one of the files below `images`."""
    named = [label.file for label in labels] + list(refused)
    strange = f"no row of {table} names an image below {images}: the first names {named[0] if named else 'nothing'!r}"
    check(not named or not files.isdisjoint(named), f"{strange}, and there is {min(files, default='')!r}")


class Selection(NamedTuple):
    """The labels that can be learnt, their alphabet and lengths, and why the other files are left out."""

    labels: list[Label]
    charset: Charset
    lengths: Lengths
    problems: Problems


def select_labels(labels: list[Label], config: PrepareConfig) -> Selection:
    """Select the labels whose length and characters fit; UsageError where there is nothing to learn."""
    lengths = config.lengths or usual_lengths(len(label.text) for label in labels)
    problems = {label.file: reason for label in labels if (reason := why_unfit(label.text, lengths, config))}
    fit = [label for label in labels if label.file not in problems]
    if not fit:
        raise UsageError(f"no label is a text that can be learnt; {labels[0].file}: {problems[labels[0].file]}")
    charset = find_charset((label.text for label in fit), config.charset, config.case_sensitive)
    selected = []
    for label in fit:
        unknown = charset.unknown_characters(label.text)
        if unknown:
            problems[label.file] = f"its text {label.text!r} has {unknown!r}, which the alphabet lacks"
        else:
            selected.append(label)
    if not selected:
        first = fit[0].file
        raise UsageError(f"no label fits the alphabet {charset.characters}; {first}: {problems[first]}")
    texts = {charset.normalize(label.text) for label in selected}
    same = f"all {len(selected):,} images are labelled {selected[0].text!r}, so there is nothing to learn"
    check(len(texts) > 1 or len(selected) == 1, f"{same}; name the texts with --label-pattern or labels.csv")
    found = {len(label.text) for label in selected}
    return Selection(selected, charset, config.lengths or Lengths(min(found), max(found)), problems)


def why_unfit(text: str, lengths: Lengths, config: PrepareConfig) -> str | None:
    """Why a text cannot be learnt, whatever the alphabet; None where it can."""
    unreadable = "".join(dict.fromkeys(character for character in text if not can_be_read(character)))
    if unreadable:
        return f"its text {text!r} has {unreadable!r}: {UNREADABLE}"
    if len(text) in lengths:
        return None
    why = f"which fewer than 1 in {RARE} texts have; --length keeps them"
    if config.lengths is not None:
        why = f"and --length says {lengths}"
    elif len(text) > MAX_LENGTH:
        why = f"and at most {MAX_LENGTH} are read"
    return f"its text {text!r} has {counted(len(text), 'character')}, {why}"


def usual_lengths(lengths: Iterable[int]) -> Lengths:
    """From the shortest to the longest of the lengths that at least one in `RARE` texts has; others may be slips."""
    counts = Counter(lengths)
    usual = [length for length, count in counts.items() if count * RARE >= counts.total() and length <= MAX_LENGTH]
    check(bool(usual), f"no label has {MAX_LENGTH} characters or less")
    return Lengths(min(usual), max(usual))
