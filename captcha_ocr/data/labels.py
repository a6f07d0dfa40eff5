"""The labels of a folder's images: from a table, text files, a pattern, file names or folder names."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from captcha_ocr.charset import (
    characters_of,
    how_they_differ,
    look_alike,
    split_characters,
    standard_form,
)
from captcha_ocr.config import PrepareConfig, Split
from captcha_ocr.data.file_names import FileNames, in_folder, without_extension
from captcha_ocr.data.images import ImageFiles, find_images
from captcha_ocr.data.names import HINT, NO_TEXT, NameReader, Test, recur_in_folders, way_of
from captcha_ocr.data.tables import Row, excerpt, read_table, read_text
from captcha_ocr.errors import CaptchaOcrError, LabelError, UsageError, check
from captcha_ocr.system.console import command_line, count_kinds

LABELS_FILE = "labels.csv"
OPTIONS_FILE = "generator.json"  # by `generate`
TABLE_EXTENSIONS = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".xlsx", ".xls", ".ods")
# In either case; metadata as Hugging Face's datasets have it.
TABLES = (
    LABELS_FILE,
    "labels.tsv",
    "labels.json",
    "labels.jsonl",
    "metadata.jsonl",
    "metadata.csv",
)
MANY_TEXT_FILES = 3  # more are no tables
TO_CONVERT = (".avif", ".heic", ".heif", ".jxl", ".jp2", ".svg", ".ico", ".psd")
SPLITS_OF: dict[Split, set[str]] = {  # the usual names, of folders and in tables
    "train": {"train", "training"},
    "val": {"val", "valid", "validation", "dev"},
    "test": {"test", "testing"},
}
NO_TEXT_FOLDER = re.compile(
    r"(?:batch|part|set|folder|dir|group|class|new folder)[-_ ]*\(?(?:\d*|[a-z])\)?", re.IGNORECASE
)
LEADS_OUT = re.compile(r"/|[A-Za-z]:|(.*/)?\.\.(/|\Z)|.*\0", re.DOTALL)  # a path, of Windows, too
BOX = re.compile(
    r"\d+(?: \d?\.\d+| [01]){4,5}"
)  # as YOLO writes them: a class, the middle and the sides
IMAGES_OF_A_TEXT = 5  # at most, on average, in folders named after texts of several characters
Problems = dict[str, str]  # file name -> the reason why it is left out


@dataclass(frozen=True)
class Label:
    """The text of the image `file`, a POSIX path relative to the folder of images, and its split if one is given.

    is_reading: whether the text comes from a table of a model's readings, which somebody may have corrected.
    """

    file: str
    text: str
    split: Split | None = None
    is_reading: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        # Some file systems decompose names: "é" becomes "e" and an accent.
        object.__setattr__(self, "text", standard_form(self.text))


class FoundLabels(NamedTuple):
    """The labels of some images, the reasons why others have none, the sources with their number, and files used."""

    labels: list[Label]
    problems: Problems
    sources: dict[str, int]
    used: frozenset[str] = frozenset()
    has_table: bool = False


@dataclass(frozen=True)
class Found:
    """What a folder holds.

    images: all of them. labels: of those that have one. problems: why files are left out. sources: where the labels
    come from, and others: kinds of files that are neither images nor labels; both with their number. has_table: whether
    labels come from a table. hints: what to do with other files.
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
        splits: Mapping[str, int] = Counter(
            label.split for label in self.labels if label.split is not None
        )
        readings = {"a model's readings, to be checked": self.readings} if self.readings else {}
        kinds_of = {
            "labels from": self.sources,
            "among them": readings,
            "splits given": splits,
            "other files": self.others,
        }
        rows = [(name, count_kinds(kinds)) for name, kinds in kinds_of.items() if kinds]
        return rows + [
            ("not read", hint) for hint in self.hints if self.labels
        ]  # else they are part of the advice

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
    """Find the images below a folder and their labels; UsageError without any image. `check()` asks for a label.

    The labels come from the labels file, else by the pattern of `config`, else from tables in the folder, else from
    text files beside the images, else from the names of the files, else from those of their folders.
    corrections: a labels file whose rows replace other labels; a row with an empty text leaves its image out.
    """
    check(
        images.is_dir(), f"{images} is not a folder; make images with: {command_line('generate')}"
    )
    both = labels_file is not None and config.label_pattern is not None
    check(not both, "--labels and --label-pattern exclude each other")
    files = find_images(images)
    if not files.images:
        others = f", but {count_kinds(files.kinds())}" if files.others else ""
        raise UsageError(f"{images} holds no PNG, JPEG, GIF, BMP, WEBP or TIFF files{others}")
    labels, problems, sources, used, has_table = find_first_labels(
        images, files, labels_file, config
    )
    if corrections is not None:
        corrected, refused = read_labels(corrections, images, files.images)
        check_rows(corrections, corrected, refused, images, files.images)
        split_of = {label.file: label.split for label in labels}
        new = {label.file: replace(label, split=split_of.get(label.file)) for label in corrected}
        kept = [label for label in labels if label.file not in new and label.file not in refused]
        problems = {file: reason for file, reason in problems.items() if file not in new} | refused
        replaced = [label for label in labels if label.file in new]
        changed = sum(label.text != new[label.file].text for label in replaced)
        name = corrections.name + (
            f" (changes {changed:,} of {len(replaced):,} labels)" if replaced else ""
        )
        labels, sources = [*kept, *new.values()], {**sources, name: len(new)}
    labels = split_by_folders(sorted(labels, key=lambda label: label.file))
    unused = [file for file in files.others if file not in used]
    hints = tuple(hints_on(images, unused, has_table))
    has_table = has_table or corrections is not None
    return Found(files.images, labels, problems, sources, files.kinds(used), has_table, hints)


def hints_on(images: Path, others: list[str], has_table: bool) -> Iterator[str]:
    """Yield what to do with the files in a folder that are neither images that are read nor labels."""
    text_files = [file for file in others if file.lower().endswith(".txt")]
    ignored = set(text_files) if len(text_files) > MANY_TEXT_FILES else set()
    table = next(
        (
            file
            for file in others
            if file.lower().endswith(TABLE_EXTENSIONS) and file not in ignored
        ),
        None,
    )
    if table is not None and not has_table:
        yield f"if {images / table} has the texts, name it with --labels"
    kinds = sorted(
        {suffix for file in others if (suffix := PurePosixPath(file).suffix.lower()) in TO_CONVERT}
    )
    if kinds:
        yield f"convert {' and '.join(kinds)} to PNG to use these images"


def find_first_labels(
    images: Path, files: ImageFiles, labels_file: Path | None, config: PrepareConfig
) -> FoundLabels:
    """Find the labels before corrections."""
    if config.label_pattern is not None:
        return labels_from_pattern(files.images, config.label_pattern)
    tables = [labels_file] if labels_file is not None else tables_in(images, files)
    if tables:
        return labels_from_tables(images, files, tables)
    text_of = text_files(files)
    if text_of:
        return labels_from_text_files(images, files, text_of)
    found = labels_from_names(files.images, fits(config))
    return found if found.labels else labels_from_folders(files.images, fits(config)) or found


def tables_in(images: Path, files: ImageFiles) -> list[Path]:
    """Return the tables with a usual name in a folder, else those in the folders below it."""
    tables = [file for file in files.others if PurePosixPath(file).name.lower() in TABLES]
    at_top = min(
        (file for file in tables if "/" not in file),
        key=lambda file: TABLES.index(file.lower()),
        default=None,
    )
    return [images / file for file in ([at_top] if at_top else tables)]


def labels_from_tables(images: Path, files: ImageFiles, tables: list[Path]) -> FoundLabels:
    """Read the tables of a folder; an image without a row has no label."""
    labels: list[Label] = []
    problems: Problems = {}
    sources, all_files = {}, {*files.images, *files.others}
    for table in tables:
        found, refused = read_labels(table, images, files.images)
        check_rows(table, found, refused, images, files.images)
        gone = {
            label.file: f"{table.name} names it, but there is no such image"
            for label in found
            if label.file not in all_files
        }
        found, problems = (
            [label for label in found if label.file not in gone],
            problems | refused | gone,
        )
        labels += found
        sources[in_folder(images, table) or table.name] = len(found)
    known = {label.file for label in labels} | set(problems)
    name = tables[0].name
    problems |= {file: f"{name} has no row for it" for file in files.images if file not in known}
    used = frozenset({OPTIONS_FILE, *(in_folder(images, table) or "" for table in tables)})
    return FoundLabels(labels, problems, sources, used, has_table=True)


def read_labels(
    path: Path, folder: Path | None = None, files: Iterable[str] = ()
) -> tuple[list[Label], Problems]:
    """Read a table of labels; return the labels and the reasons why rows are left out.

    The output of `eval --csv` and `eval --json` is such a table, too. folder: the folder of images; names are relative
    to the table's folder, to it, or to the current folder. files: the images in it; a name in another Unicode form, or
    without its extension, means one of them.
    """
    rows = read_table(path)
    names = FileNames(folder, None if folder is None else in_folder(folder, path.parent), files)
    labels: dict[str, Label] = {}
    problems: Problems = {}
    has_splits = any(row.split for row in rows)
    for row in rows:
        file = names.find(row.filename) if row.filename else f"{path.name} row {row.number}"
        try:
            label = label_from_row(row, file, has_splits)
        except LabelError as error:
            problems[file] = str(error)
            continue
        if labels.setdefault(file, label) != label:
            problems[file] = f"{path.name} gives it two different labels"
    return [label for file, label in labels.items() if file not in problems], problems


def label_from_row(row: Row, file: str, has_splits: bool) -> Label:
    """Return the label in one row; LabelError if a value is missing or the file is outside the folder."""
    if row.problem is not None:
        raise LabelError(row.problem)
    if not row.filename:
        raise LabelError("the row has no file name")
    if LEADS_OUT.match(file):
        raise LabelError("the file name leads out of the folder")
    if not row.text:
        raise LabelError("its label is empty")
    split = split_named(row.split)
    if has_splits and split is None:
        raise LabelError(f"its split is {row.split!r}; only train, val and test are known")
    return Label(file, row.text, split, row.is_reading)


def split_named(name: str) -> Split | None:
    """Return the split that a folder or a value means; None for any other name."""
    return next((split for split, names in SPLITS_OF.items() if name.lower() in names), None)


def check_rows(
    table: Path, labels: list[Label], refused: Problems, images: Path, files: list[str]
) -> None:
    """Raise UsageError if a labels file has rows, but none of them names one of the files below `images`."""
    named = [label.file for label in labels] + list(refused)
    if named and set(files).isdisjoint(named):
        nearest = next((file for file in files if look_alike(named[0], file)), files[0])
        both = f"the first row names {named[0]!r}, and the folder has {nearest!r}"
        example = both + how_they_differ(named[0], nearest)
        raise UsageError(f"no row of {table} names an image below {images}: {example}")


def labels_from_pattern(files: list[str], pattern: str) -> FoundLabels:
    """Return the label that a pattern finds in each file's name, or in its path if the pattern has a slash."""
    compiled = compile_pattern(pattern)
    labels, problems = [], {}
    for file in files:
        try:
            labels.append(
                Label(
                    file,
                    label_from_pattern(
                        file if "/" in pattern else PurePosixPath(file).name, compiled
                    ),
                )
            )
        except LabelError as error:
            problems[file] = str(error)
    return FoundLabels(labels, problems, {"--label-pattern": len(labels)})


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a --label-pattern; UsageError if it is not a regular expression."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageError(
            f"--label-pattern {excerpt(pattern)!r} is no regular expression: {error}"
        ) from None


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


def text_files(files: ImageFiles) -> dict[str, str]:
    """Return, for each image that has one, the file that holds its text.

    It lies beside the image, a.txt, a.gt.txt or a.png.txt, or in a folder labels beside the folder images.
    """
    others = set(files.others)
    found = {}
    for image in files.images:
        stem = without_extension(image)
        elsewhere = re.sub(r"(^|/)images/", r"\1labels/", stem)
        names = [f"{stem}.txt", f"{stem}.gt.txt", f"{image}.txt", f"{elsewhere}.txt"]
        names = [name for name in names if name in others]
        if names:
            found[image] = names[0]
    return found


def labels_from_text_files(images: Path, files: ImageFiles, text_of: dict[str, str]) -> FoundLabels:
    """Return the label in the text file of each image; an image without one has no label."""
    labels, problems = (
        [],
        {file: "it has no text file" for file in files.images if file not in text_of},
    )
    owners = Counter(text_of.values())
    for file, name in text_of.items():
        try:
            lines = [line.strip() for line in read_text(images / name).splitlines() if line.strip()]
        except CaptchaOcrError as error:
            problems[file] = str(error)
            continue
        if owners[name] > 1:
            problems[file] = f"{name} may belong to any of {owners[name]} images"
        elif len(lines) == 1 and BOX.fullmatch(lines[0]):
            problems[file] = f"{name} holds a box instead of a text"
        elif len(lines) == 1:
            labels.append(Label(file, lines[0]))
        else:
            problems[file] = f"{name} has {len(lines)} lines instead of a text"
    return FoundLabels(labels, problems, {"text files": len(labels)}, frozenset(text_of.values()))


def labels_from_names(files: list[str], allowed: Test | None = None) -> FoundLabels:
    """Return the label in each file's name, and the reason why others have none."""
    stems = [PurePosixPath(file).stem for file in files]
    if recur_in_folders(files, stems):
        return FoundLabels(
            [],
            dict.fromkeys(files, f"names recur in the folders, so they hold no texts; {HINT}"),
            {},
        )
    reader = NameReader(stems, allowed)
    labels, problems, ways = [], {}, Counter[str]()
    for file, stem in zip(files, stems, strict=True):
        try:
            text = reader.text_of(stem)
        except LabelError as error:
            problems[file] = str(error)
            continue
        labels.append(Label(file, text))
        ways[f"file names, {way_of(stem, text)}"] += 1
    return FoundLabels(labels, problems, dict(ways))


def fits(config: PrepareConfig) -> Test | None:
    """Return a function that tells whether the given alphabet and lengths allow a text; None if neither is given."""
    if config.charset is None and config.lengths is None:
        return None
    given = None if config.charset is None else characters_of(config.charset)
    both = (
        ""
        if given is None
        else given
        if config.case_sensitive
        else given + given.lower() + given.upper()
    )
    known = None if given is None else set(split_characters(both))

    def fits_both(text: str) -> bool:
        characters = split_characters(standard_form(text))
        return (known is None or known.issuperset(characters)) and (
            config.lengths is None or len(characters) in config.lengths
        )

    return fits_both


def labels_from_folders(files: list[str], allowed: Test | None = None) -> FoundLabels | None:
    """Return the name of each image's folder as its label; None unless all folders have names that can be texts.

    Names that many images share may be those of people, years or batches, unless the options allow all, or each is a
    character.
    """
    names = {file: PurePosixPath(file).parent.name for file in files}
    distinct = set(names.values())
    no_texts = [
        name for name in distinct if NO_TEXT.fullmatch(name) or NO_TEXT_FOLDER.fullmatch(name)
    ]
    if len(distinct) < 2 or "" in distinct or no_texts or any(map(split_named, distinct)):
        return None
    are_certain = (
        all(map(allowed, distinct)) if allowed else all(len(name) == 1 for name in distinct)
    )
    if not are_certain and len(files) > IMAGES_OF_A_TEXT * len(distinct):
        return None
    return FoundLabels(
        [Label(file, name) for file, name in names.items()], {}, {"folder names": len(files)}
    )


def split_by_folders(labels: list[Label]) -> list[Label]:
    """Give images the splits that the folders at the top are named after, if they name more than one."""
    split_of = {
        label.file: split_named(PurePosixPath(label.file).parts[0])
        for label in labels
        if "/" in label.file
    }
    if any(label.split for label in labels) or len(set(split_of.values()) - {None}) < 2:
        return labels
    return [replace(label, split=split_of.get(label.file)) for label in labels]
