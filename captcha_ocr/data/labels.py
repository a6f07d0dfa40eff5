"""The labels of a folder's images: from tables, text files, a pattern, file or folder names."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from captcha_ocr.charset import (
    how_they_differ,
    look_alike,
    resolve_alphabet,
    split_characters,
    standard_form,
)
from captcha_ocr.data.images import ImageFiles, find_images
from captcha_ocr.data.label_sources.file_names import FileNames, in_folder, without_extension
from captcha_ocr.data.label_sources.names import (
    HINT,
    NO_TEXT,
    NameReader,
    TextTest,
    describe_place,
    recur_in_folders,
)
from captcha_ocr.data.label_sources.tables import Row, excerpt, read_table, read_text
from captcha_ocr.errors import Advice, CaptchaOcrError, Command, LabelError, UsageError, check
from captcha_ocr.options.preparation import PrepareConfig, Split
from captcha_ocr.system.console import count_kinds

LABELS_FILE = "labels.csv"
OPTIONS_FILE = "generator.json"  # by `generate`
_TABLE_EXTENSIONS = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".xlsx", ".xls", ".ods")
# In either case; metadata as Hugging Face's datasets have it.
TABLES = (
    LABELS_FILE,
    "labels.tsv",
    "labels.json",
    "labels.jsonl",
    "metadata.jsonl",
    "metadata.csv",
)
_MANY_TEXT_FILES = 3  # more are no tables
_TO_CONVERT = (".avif", ".heic", ".heif", ".jxl", ".jp2", ".svg", ".ico", ".psd")
_SPLIT_NAMES: dict[Split, set[str]] = {  # the usual names, of folders and in tables
    "train": {"train", "training"},
    "val": {"val", "valid", "validation", "dev"},
    "test": {"test", "testing"},
}
_NO_TEXT_FOLDER = re.compile(
    r"(?:batch|part|set|folder|dir|group|class|new folder)[-_ ]*\(?(?:\d*|[a-z])\)?", re.IGNORECASE
)
_LEADS_OUT = re.compile(r"/|[A-Za-z]:|(.*/)?\.\.(/|\Z)|.*\0", re.DOTALL)  # a path, of Windows, too
# As YOLO writes them: a class, the middle and the sides
_BOX = re.compile(r"\d+(?: \d?\.\d+| [01]){4,5}")
_IMAGES_OF_A_TEXT = 5  # at most, on average, in folders named after texts of several characters
Problems = dict[str, str]  # file name -> the reason why it is left out


@dataclass(frozen=True)
class Label:
    """The text of the image `file`, a POSIX path relative to the folder of images, and its split if
    one is given.

    is_reading: whether the text comes from a table of a model's readings, which somebody may have
    corrected.
    """

    file: str
    text: str
    split: Split | None = None
    is_reading: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        # Some file systems decompose names: "é" becomes "e" and an accent.
        object.__setattr__(self, "text", standard_form(self.text))


class FoundLabels(NamedTuple):
    """The labels of some images, the reasons why others have none, the sources with their number,
    and files used.
    """

    labels: list[Label]
    problems: Problems
    sources: dict[str, int]
    used: frozenset[str] = frozenset()
    has_table: bool = False


@dataclass(frozen=True)
class Found:
    """What a folder holds.

    images: all of them. labels: of those that have one. problems: why files are left out. sources:
    where the labels come from, and others: kinds of files that are neither images nor labels; both
    with their number. has_table: whether labels come from a table. hints: what to do with other
    files.
    """

    images: list[str]
    labels: list[Label]
    problems: Problems
    sources: dict[str, int]
    others: dict[str, int]
    has_table: bool = False
    hints: tuple[str, ...] = ()

    @property
    def readings(self) -> int:
        """The number of labels from tables of a model's readings."""
        return sum(label.is_reading for label in self.labels)

    def rows(self) -> list[tuple[str, str]]:
        """Return what was found, for people: what is counted, and its kinds with their number."""
        splits = Counter[str](label.split for label in self.labels if label.split is not None)
        readings = {"a model's readings, to be checked": self.readings} if self.readings else {}
        kinds_of: dict[str, Mapping[str, int]] = {
            "labels from": self.sources,
            "among them": readings,
            "splits given": splits,
            "other files": self.others,
        }
        rows = [(name, count_kinds(kinds)) for name, kinds in kinds_of.items() if kinds]
        if self.labels:  # else the hints are part of the advice
            rows += [("not read", hint) for hint in self.hints]
        return rows

    def check(self) -> "Found":
        """Return this; UsageError if no image has a label."""
        if self.labels:
            return self
        file, reason = next(iter(self.problems.items()))
        raise UsageError("; ".join(["no image has a label", f"{file}: {reason}", *self.hints]))


def find_labels(
    images: Path,
    labels_file: Path | None = None,
    corrections: Path | None = None,
    config: PrepareConfig = PrepareConfig(),
) -> Found:
    """Find the images below a folder and their labels.

    UsageError without any image. `check()` asks for a label.

    The labels come from the labels file, else by the pattern of `config`, else from tables in the
    folder, else from text files beside the images, else from the names of the files, else from
    those of their folders.
    corrections: a labels file whose rows replace other labels; a row with an empty text leaves its
    image out.
    """
    if not images.is_dir():
        advice = Advice("make images with", Command("generate"))
        raise UsageError(f"{images} is not a folder", advice)
    both = labels_file is not None and config.label_pattern is not None
    check(not both, "`labels` and `label_pattern` exclude each other")
    files = find_images(images)
    if not files.images:
        others = f", but {count_kinds(files.kinds())}" if files.others else ""
        raise UsageError(f"{images} holds no PNG, JPEG, GIF, BMP, WEBP or TIFF files{others}")
    first = _find_first_labels(images, files, labels_file, config)
    labels, problems, sources, used, has_table = first
    if corrections is not None:
        corrected, refused = read_labels(corrections, images, files.images)
        _check_rows(corrections, corrected, refused, images, files.images)
        old = {label.file: label for label in labels}
        new = {label.file: label for label in corrected}
        name, changed, replaced = corrections.name, 0, old.keys() & new.keys()
        for file, label in new.items():
            before = old.get(file)
            new[file] = replace(label, split=before.split if before else None)
            changed += before is not None and before.text != label.text
        if replaced:
            name += f" (changes {changed:,} of {len(replaced):,} labels)"
        labels = [label for label in labels if label.file not in new and label.file not in refused]
        labels += new.values()
        problems = {file: reason for file, reason in problems.items() if file not in new} | refused
        sources = {**sources, name: len(new)}
    labels = _split_by_folders(sorted(labels, key=lambda label: label.file))
    unused = [file for file in files.others if file not in used]
    hints = tuple(_list_hints(images, unused, has_table))
    has_table = has_table or corrections is not None
    return Found(files.images, labels, problems, sources, files.kinds(used), has_table, hints)


def _list_hints(images: Path, others: list[str], has_table: bool) -> Iterator[str]:
    """Yield what to do with the files in a folder that are neither images nor labels."""
    text_files = [file for file in others if file.lower().endswith(".txt")]
    ignored = set(text_files) if len(text_files) > _MANY_TEXT_FILES else set()
    tables = [file for file in others if file.lower().endswith(_TABLE_EXTENSIONS)]
    table = next((file for file in tables if file not in ignored), None)
    if table is not None and not has_table:
        yield f"if {images / table} has the texts, name it with `labels`"
    suffixes = {PurePosixPath(file).suffix.lower() for file in others}
    kinds = sorted(suffixes.intersection(_TO_CONVERT))
    if kinds:
        yield f"convert {' and '.join(kinds)} to PNG to use these images"


def _find_first_labels(
    images: Path, files: ImageFiles, labels_file: Path | None, config: PrepareConfig
) -> FoundLabels:
    """Find the labels before corrections."""
    if config.label_pattern is not None:
        return labels_from_pattern(files.images, config.label_pattern)
    tables = [labels_file] if labels_file is not None else _find_tables(images, files)
    if tables:
        return _labels_from_tables(images, files, tables)
    text_of = _find_text_files(files)
    if text_of:
        return _labels_from_text_files(images, files, text_of)
    fits = _make_fit_test(config)
    named = labels_from_names(files.images, fits)
    if named.labels:
        return named
    return _labels_from_folders(files.images, fits) or named


def _find_tables(images: Path, files: ImageFiles) -> list[Path]:
    """Return the tables with a usual name in a folder, else those in the folders below it."""
    tables = [file for file in files.others if PurePosixPath(file).name.lower() in TABLES]
    at_top = [file for file in tables if "/" not in file]
    if at_top:
        tables = [min(at_top, key=lambda file: TABLES.index(file.lower()))]
    return [images / file for file in tables]


def _labels_from_tables(images: Path, files: ImageFiles, tables: list[Path]) -> FoundLabels:
    """Read the tables of a folder; an image without a row has no label."""
    labels: list[Label] = []
    problems: Problems = {}
    sources, all_files = {}, {*files.images, *files.others}
    for table in tables:
        rows, refused = read_labels(table, images, files.images)
        _check_rows(table, rows, refused, images, files.images)
        problems |= refused
        count = len(labels)
        for label in rows:
            if label.file in all_files:
                labels.append(label)
            else:
                problems[label.file] = f"{table.name} names it, but there is no such image"
        sources[in_folder(images, table) or table.name] = len(labels) - count
    known = {label.file for label in labels} | set(problems)
    name = tables[0].name
    problems |= {file: f"{name} has no row for it" for file in files.images if file not in known}
    used = {in_folder(images, table) or "" for table in tables} | {OPTIONS_FILE}
    return FoundLabels(labels, problems, sources, frozenset(used), has_table=True)


def read_labels(
    path: Path, folder: Path | None = None, files: Iterable[str] = ()
) -> tuple[list[Label], Problems]:
    """Read a table of labels; return the labels and the reasons why rows are left out.

    The output of `eval --csv` and `eval --json` is such a table, too. folder: the folder of images;
    names are relative to the table's folder, to it, or to the current folder. files: the images in
    it; a name in another Unicode form, or without its extension, means one of them.
    """
    rows = read_table(path)
    names = FileNames(folder, None if folder is None else in_folder(folder, path.parent), files)
    labels: dict[str, Label] = {}
    problems: Problems = {}
    has_splits = any(row.split for row in rows)
    for row in rows:
        file = names.find(row.filename) if row.filename else f"{path.name} row {row.number}"
        try:
            label = _label_from_row(row, file, has_splits)
        except LabelError as error:
            problems[file] = str(error)
            continue
        if labels.setdefault(file, label) != label:
            problems[file] = f"{path.name} gives it two different labels"
    return [label for file, label in labels.items() if file not in problems], problems


def _label_from_row(row: Row, file: str, has_splits: bool) -> Label:
    """Return the label in one row.

    LabelError if a value is missing or the file is outside the folder.
    """
    if row.problem is not None:
        raise LabelError(row.problem)
    if not row.filename:
        raise LabelError("the row has no file name")
    if _LEADS_OUT.match(file):
        raise LabelError("the file name leads out of the folder")
    if not row.text:
        raise LabelError("its label is empty")
    split = split_named(row.split)
    if has_splits and split is None:
        raise LabelError(f"its split is {row.split!r}; only train, val and test are known")
    return Label(file, row.text, split, row.is_reading)


def split_named(name: str) -> Split | None:
    """Return the split that a folder or a value means; None for any other name."""
    return next((split for split, names in _SPLIT_NAMES.items() if name.lower() in names), None)


def _check_rows(
    table: Path, labels: list[Label], refused: Problems, images: Path, files: list[str]
) -> None:
    """Raise UsageError if a labels file has rows, but none names one of the files."""
    named = [label.file for label in labels] + list(refused)
    if named and set(files).isdisjoint(named):
        nearest = next((file for file in files if look_alike(named[0], file)), files[0])
        both = f"the first row names {named[0]!r}, and the folder has {nearest!r}"
        example = both + how_they_differ(named[0], nearest)
        raise UsageError(f"no row of {table} names an image below {images}: {example}")


def labels_from_pattern(files: list[str], pattern: str) -> FoundLabels:
    """Return the label that a pattern finds in each file's name, with a slash in each path."""
    compiled = compile_pattern(pattern)
    labels, problems = [], {}
    for file in files:
        try:
            name = file if "/" in pattern else PurePosixPath(file).name
            labels.append(Label(file, _label_from_pattern(name, compiled)))
        except LabelError as error:
            problems[file] = str(error)
    return FoundLabels(labels, problems, {"`label_pattern`": len(labels)})


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of file names; UsageError if it is not a regular expression."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageError(
            f"`label_pattern` {excerpt(pattern)!r} is no regular expression: {error}"
        ) from None


def _label_from_pattern(name: str, pattern: re.Pattern[str]) -> str:
    """Return what a pattern finds in a name: its group `text`, its first group, or all."""
    match = pattern.search(name)
    if match is None:
        raise LabelError("`label_pattern` does not match its name")
    groups = match.groupdict()
    text = groups["text"] if "text" in groups else match[min(1, match.re.groups)]
    if not text:
        raise LabelError("`label_pattern` finds no text in its name")
    return text


def _find_text_files(files: ImageFiles) -> dict[str, str]:
    """Return, for each image that has one, the file that holds its text.

    It lies beside the image, a.txt, a.gt.txt or a.png.txt, or in a folder labels beside the folder
    images.
    """
    others, text_of = set(files.others), {}
    for image in files.images:
        stem = without_extension(image)
        elsewhere = re.sub(r"(^|/)images/", r"\1labels/", stem)
        names = [f"{stem}.txt", f"{stem}.gt.txt", f"{image}.txt", f"{elsewhere}.txt"]
        name = next((name for name in names if name in others), None)
        if name is not None:
            text_of[image] = name
    return text_of


def _labels_from_text_files(
    images: Path, files: ImageFiles, text_of: dict[str, str]
) -> FoundLabels:
    """Return the label in the text file of each image; an image without one has no label."""
    labels = []
    problems = {file: "it has no text file" for file in files.images if file not in text_of}
    owners = Counter(text_of.values())
    for file, name in text_of.items():
        try:
            lines = [line.strip() for line in read_text(images / name).splitlines() if line.strip()]
        except CaptchaOcrError as error:
            problems[file] = str(error)
            continue
        if owners[name] > 1:
            problems[file] = f"{name} may belong to any of {owners[name]} images"
        elif len(lines) == 1 and _BOX.fullmatch(lines[0]):
            problems[file] = f"{name} holds a box instead of a text"
        elif len(lines) == 1:
            labels.append(Label(file, lines[0]))
        else:
            problems[file] = f"{name} has {len(lines)} lines instead of a text"
    return FoundLabels(labels, problems, {"text files": len(labels)}, frozenset(text_of.values()))


def labels_from_names(files: list[str], allowed: TextTest | None = None) -> FoundLabels:
    """Return the label in each file's name, and the reason why others have none."""
    stems = [PurePosixPath(file).stem for file in files]
    if recur_in_folders(files, stems):
        reason = f"names recur in the folders, so they hold no texts; {HINT}"
        return FoundLabels([], dict.fromkeys(files, reason), {})
    reader = NameReader(stems, allowed)
    labels, problems, ways = [], {}, Counter[str]()
    for file, stem in zip(files, stems, strict=True):
        try:
            text = reader.find_text(stem)
        except LabelError as error:
            problems[file] = str(error)
            continue
        labels.append(Label(file, text))
        ways[f"file names, {describe_place(stem, text)}"] += 1
    return FoundLabels(labels, problems, dict(ways))


def _make_fit_test(config: PrepareConfig) -> TextTest | None:
    """Return a function that tells whether the given alphabet and lengths allow a text.

    None if neither is given.
    """
    if config.charset is None and config.lengths is None:
        return None
    known: set[str] | None = None
    if config.charset is not None:
        characters = resolve_alphabet(config.charset)
        if not config.case_sensitive:
            characters += characters.lower() + characters.upper()
        known = set(split_characters(characters))

    def fits(text: str) -> bool:
        characters = split_characters(standard_form(text))
        has_length = config.lengths is None or len(characters) in config.lengths
        return has_length and (known is None or known.issuperset(characters))

    return fits


def _labels_from_folders(files: list[str], allowed: TextTest | None = None) -> FoundLabels | None:
    """Return the name of each image's folder as its label.

    None unless all folders have names that can be texts.

    Names that many images share may be those of people, years or batches, unless the options allow
    all, or each is a character.
    """
    names = {file: PurePosixPath(file).parent.name for file in files}
    distinct = set(names.values())
    if len(distinct) < 2 or "" in distinct or any(map(split_named, distinct)):
        return None
    if any(NO_TEXT.fullmatch(name) or _NO_TEXT_FOLDER.fullmatch(name) for name in distinct):
        return None
    are_certain = all(map(allowed or (lambda text: len(text) == 1), distinct))
    if not are_certain and len(files) > _IMAGES_OF_A_TEXT * len(distinct):
        return None
    labels = [Label(file, name) for file, name in names.items()]
    return FoundLabels(labels, {}, {"folder names": len(files)})


def _split_by_folders(labels: list[Label]) -> list[Label]:
    """Give images the splits that the folders at the top name, if these name more than one."""
    if any(label.split for label in labels):
        return labels
    split_of: dict[str, Split | None] = {}
    for label in labels:
        folder, _, file = label.file.partition("/")
        split_of[label.file] = split_named(folder) if file else None
    if len(set(split_of.values()) - {None}) < 2:
        return labels
    return [replace(label, split=split_of[label.file]) for label in labels]
