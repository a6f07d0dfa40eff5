"""The text of an image, from its file name, a pattern or a labels file."""

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
MAX_EXCERPT = 100  # characters of foreign text in a message
Problems = dict[str, str]  # file name -> the reason why it is left out


@dataclass(frozen=True)
class Label:
    """The text of the image `file`, a POSIX path relative to the folder of images, and its split if one is given."""

    file: str
    text: str
    split: Split | None = None

    def __post_init__(self) -> None:
        # Some file systems decompose names: "é" becomes "e" and an accent.
        object.__setattr__(self, "text", unicodedata.normalize("NFC", self.text))


def label_from_name(stem: str) -> str:
    """Return the text in a file name without its extension: TEXT, TEXT_anything or anything-TEXT."""
    if "_" in stem and "-" in stem:
        raise LabelError("its name has both '_' and '-': name the text with --label-pattern or a labels.csv")
    text = stem.rsplit("-", 1)[1] if "-" in stem else stem.split("_", 1)[0]
    if not text:
        raise LabelError("its name holds no text")
    return text


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a --label-pattern; UsageError if it is not a regular expression."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageError(f"--label-pattern {excerpt(pattern)!r} is no regular expression: {error}") from None


def excerpt(text: str) -> str:
    """Return the beginning of a text, for a message."""
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT] + "…"


def label_from_pattern(name: str, pattern: re.Pattern[str]) -> str:
    """Return the text that a pattern finds in a file name: its group `text`, its first group, or the whole match."""
    match = pattern.search(name)
    if match is None:
        raise LabelError("--label-pattern does not match its name")
    groups = match.groupdict()
    text = groups["text"] if "text" in groups else match.group(1 if match.re.groups else 0)
    if not text:
        raise LabelError("--label-pattern finds no text in its name")
    return text


def labels_from_names(files: list[str], pattern: str | None = None) -> tuple[list[Label], Problems]:
    """Return a label for every file whose name holds one, and the reason why the others have none."""
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
    """Tell whether the texts found in ten or more names are consecutive numbers."""
    numbers = sorted(int(label.text) for label in labels if label.text.isdecimal())
    return len(numbers) == len(labels) >= 10 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def read_labels(path: Path, folder: Path | None = None) -> tuple[list[Label], Problems]:
    """Read a labels file, `filename,text[,split]` in UTF-8; return the labels and the reasons why rows are left out.

    The output of `eval --csv` and `eval --json` is a labels file too. folder: the folder of images; file names may also
    be relative to the current folder.
    """
    rows = read_rows(path)
    labels: dict[str, Label] = {}
    problems: Problems = {}
    has_splits = any(row.get("split") for row in rows)
    for number, row in enumerate(rows, 2):
        file = file_in_folder(folder, PurePosixPath((row["filename"] or "").replace("\\", "/")).as_posix())
        try:
            label = label_from_row(row, file, has_splits)
        except LabelError as error:
            problems[file if row["filename"] else f"{path.name} row {number}"] = str(error)
            continue
        if labels.setdefault(file, label) != label:
            problems[file] = f"{path.name} gives it two different labels"
    return [label for file, label in labels.items() if file not in problems], problems


def file_in_folder(folder: Path | None, file: str) -> str:
    """Return a file name relative to `folder` if it is an absolute one, or one from the current folder, in `folder`."""
    path = Path(file)
    is_relative = not path.is_absolute() and ".." not in path.parts
    if folder is None or "\0" in file or (is_relative and os.path.exists(folder / file)):
        return file
    path, inside = Path(os.path.abspath(file)), os.path.abspath(folder)
    # `exists` comes last, so that nothing outside the folder is looked for.
    return path.relative_to(inside).as_posix() if path.is_relative_to(inside) and os.path.exists(path) else file


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file with a header, or of a file of JSON lines; CaptchaOcrError for any other file."""
    try:
        with open_regular(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as stream:
            lines = stream.readlines()
        if lines and lines[0].startswith("{"):
            return [row for line in lines if (row := row_of_json(line)) is not None]
        columns = lines[0].strip() if lines else ""
        separator = max(",;\t", key=columns.count)  # spreadsheets use the separator of the user's country
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
    """Return a line of `eval --json` as a row; None if it has no text: an error, or the summary."""
    found = json.loads(line)
    if not (isinstance(found, dict) and isinstance(found.get("path"), str) and isinstance(found.get("text"), str)):
        return None
    return {"filename": found["path"], "text": found["text"]}


def label_from_row(row: dict[str, str], file: str, has_splits: bool) -> Label:
    """Return the label in one row; LabelError if a value is missing or the file is outside the folder."""
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


def find_labels(
    images: Path, labels_file: Path | None = None, pattern: str | None = None, corrections: Path | None = None
) -> tuple[list[Label], Problems]:
    """Find the labels of the images below a folder, and the reasons why images have none; UsageError without any label.

    They come from the labels file, else from labels.csv in the folder, else from the names.
    corrections: a labels file whose rows replace other labels; a row with an empty text leaves its image out.
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
    """Find the labels before corrections."""
    if not images.is_dir():
        raise UsageError(f"{images} is not a folder; make images with: captcha-ocr generate")
    files = image_files(images)
    if not files:
        raise UsageError(f"{images} holds no PNG, JPEG, GIF, BMP or WEBP files")
    if labels_file is None and pattern is None and os.path.lexists(images / LABELS_FILE):
        labels_file = images / LABELS_FILE
    if labels_file is None:
        labels, problems = labels_from_names(files, pattern)
        if pattern is None and are_serial_numbers(labels):
            why = f"the names of the images in {images} hold serial numbers instead of texts"
            raise UsageError(f"{why}; name the texts with --label-pattern or labels.csv")
        return labels, problems
    if pattern is not None:
        raise UsageError("--labels and --label-pattern exclude each other")
    labels, problems = read_labels(labels_file, images)
    check_rows(labels_file, labels, problems, images, set(files))
    known = {label.file for label in labels} | set(problems)
    problems |= {file: f"{labels_file.name} has no row for it" for file in files if file not in known}
    return sorted(labels, key=lambda label: label.file), problems


def check_rows(table: Path, labels: list[Label], refused: Problems, images: Path, files: set[str]) -> None:
    """Raise UsageError if a labels file has rows, but none of them names one of the files below `images`."""
    named = [label.file for label in labels] + list(refused)
    if named and files.isdisjoint(named):
        example = f"the first row names {named[0]!r}, and the folder has {min(files, default='')!r}"
        raise UsageError(f"no row of {table} names an image below {images}: {example}")


class Selection(NamedTuple):
    """The labels to use, their alphabet and lengths, and the reasons why other files are left out."""

    labels: list[Label]
    charset: Charset
    lengths: Lengths
    problems: Problems


def select_labels(labels: list[Label], config: PrepareConfig) -> Selection:
    """Select the labels whose length and characters fit; UsageError if there is nothing to learn."""
    lengths = config.lengths or usual_lengths(len(label.text) for label in labels)
    problems = {label.file: reason for label in labels if (reason := why_unfit(label.text, lengths, config))}
    fit = [label for label in labels if label.file not in problems]
    if not fit:
        raise UsageError(f"no label can be learnt; {labels[0].file}: {problems[labels[0].file]}")
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
    if len(selected) > 1 and len({charset.normalize(label.text) for label in selected}) == 1:
        same = f"all {len(selected):,} images are labelled {selected[0].text!r}, so there is nothing to learn"
        raise UsageError(f"{same}; name the texts with --label-pattern or labels.csv")
    found = {len(label.text) for label in selected}
    return Selection(selected, charset, config.lengths or Lengths(min(found), max(found)), problems)


def why_unfit(text: str, lengths: Lengths, config: PrepareConfig) -> str | None:
    """Return the reason why a text cannot be learnt with any alphabet; None if it can."""
    unreadable = "".join(dict.fromkeys(character for character in text if not can_be_read(character)))
    if unreadable:
        return f"its text {text!r} has {unreadable!r}: {UNREADABLE}"
    if len(text) in lengths:
        return None
    why = f"which fewer than 1 in {RARE} texts have; --length keeps them"
    if config.lengths is not None:
        why = f"and --length is {lengths}"
    elif len(text) > MAX_LENGTH:
        why = f"and the maximum is {MAX_LENGTH}"
    return f"its text {text!r} has {counted(len(text), 'character')}, {why}"


def usual_lengths(lengths: Iterable[int]) -> Lengths:
    """Return the range of the lengths that at least 1 in `RARE` texts have; others may be typing errors."""
    counts = Counter(lengths)
    usual = [length for length, count in counts.items() if count * RARE >= counts.total() and length <= MAX_LENGTH]
    check(bool(usual), f"no label has {MAX_LENGTH} characters or less")
    return Lengths(min(usual), max(usual))
