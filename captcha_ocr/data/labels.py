"""The labels of a folder's images: from tables, text files, a pattern, file or folder names."""

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from captcha_ocr.charset import (
    how_they_differ,
    resolve_alphabet,
    split_characters,
    standard_form,
)
from captcha_ocr.data.images import ImageFiles, find_images
from captcha_ocr.data.label_sources.names import (
    HINT,
    NO_TEXT,
    NameReader,
    TextTest,
    are_counted,
    describe_place,
    recur_in_folders,
)
from captcha_ocr.data.label_sources.tables import (
    FileNames,
    Row,
    excerpt,
    in_folder,
    read_table,
)
from captcha_ocr.data.recurrence import are_versions
from captcha_ocr.errors import Advice, CaptchaOcrError, Command, LabelError, UsageError, check
from captcha_ocr.options.preparation import PrepareConfig, Split
from captcha_ocr.system.console import count_kinds
from captcha_ocr.system.files import read_text

LABELS_FILE = "labels.csv"
OPTIONS_FILE = "generator.json"  # by `generate`
ANSWERS_FILE, ANSWERS_JOURNAL = "answers.csv", "answers.jsonl"  # of `label --blind`
_TABLE_EXTENSIONS = (
    *(".csv", ".tsv", ".json", ".jsonl", ".xml", ".manifest"),
    *(".xlsx", ".xls", ".ods", ".parquet", ".arrow"),
)
# In either case; metadata as Hugging Face's datasets have it.
TABLES = (
    *(LABELS_FILE, "labels.tsv", "labels.json", "labels.jsonl"),
    *("metadata.jsonl", "metadata.csv"),
    "label.txt",  # of PPOCRLabel
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
# As YOLO writes them: the number of a class, the middle and the sides; as Tesseract: a character,
# its sides and the page
_BOX = re.compile(r"\d+(?: \d?\.\d+| [01]){4,5}|\S(?= .*\d\d)(?: \d+){4} 0")
_BOXES = "holds boxes of YOLO or Tesseract instead of a text: export Pascal VOC, or write the text"
# Before a text, as ICDAR has them
_COORDINATES = re.compile(r"(?:-?\d+, *){4,8}|(?:-?\d+ ){4,8}(?=\")")
# What they are, quotes, or blanks between characters
_FRAMES = (
    re.compile(r"^[^\W\d_]{2,} *[:=] *"),
    re.compile(r"^[\"'`]|[\"'`]$"),
    re.compile(r"(?<!\S\S) (?=\S(?: |$))"),
)
_FEWEST_FRAMED = 3  # texts
_COUNTED = "the names count the images and hold no texts; write these with captcha-ocr label"
_IMAGES_OF_A_TEXT = 5  # at most, on average, in folders named after texts of several characters
Problems = dict[str, str]  # file name -> the reason why it is left out


@dataclass(frozen=True)
class Label:
    """The text of the image `file`, a POSIX path relative to the folder of images, and its split if
    one is given.

    confidence: of a text that comes from a table of a model's readings, which somebody may have
    corrected. moved_from: the name in a table that was made in another folder.
    """

    file: str
    text: str
    split: Split | None = None
    confidence: float | None = field(default=None, compare=False)
    moved_from: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Found:
    """What a folder holds.

    images: all of them. labels: of those that have one. problems: why files are left out. sources:
    where the labels come from, with their number. used: the files among these. has_table: whether
    labels come from a table. others: kinds of files that are neither images nor labels, with their
    number. hints: what to do with these files.
    """

    images: list[str]
    labels: list[Label]
    problems: Problems
    sources: dict[str, int]
    used: frozenset[str] = frozenset()
    has_table: bool = False
    others: dict[str, int] = field(default_factory=dict)
    hints: tuple[str, ...] = ()

    @property
    def readings(self) -> int:
        """The number of labels from tables of a model's readings."""
        return sum(label.confidence is not None for label in self.labels)

    def rows(self) -> list[tuple[str, str]]:
        """Return what was found, for people: what is counted, and its kinds with their number."""
        moved = [label.moved_from for label in self.labels if label.moved_from]
        counts: dict[str, Mapping[str, int]] = {
            "labels from": self.sources,
            "among them": {"a model's readings, to be checked": self.readings},
            "other folder": {f"in the table, such as {name}": len(moved) for name in moved[:1]},
            "splits given": Counter(label.split for label in self.labels if label.split),
            "other files": self.others,
        }
        rows = [(name, count_kinds(kinds)) for name, kinds in counts.items() if any(kinds.values())]
        splits = [label.split for label in self.labels if label.split]
        if not splits and are_versions({label.file: label.text for label in self.labels}):
            rows.append(("same text", "most texts have several images: a split has all or none"))
        if self.labels:  # else the hints are part of the advice
            rows += [("not read", hint) for hint in self.hints]
        return rows

    def check(self) -> "Found":
        """Return this; UsageError if no image has a label."""
        if self.labels:
            return self
        file, reason = next(iter(self.problems.items()))
        reasons = [
            *("no image has a label", f"{file}: {reason}", *self.hints),
            "adapt makes a model without labels, and label is a page to write them",
        ]
        raise UsageError("; ".join(reasons))


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
        raise UsageError(
            f"{images} is not a folder", Advice("make images with", Command("generate"))
        )
    check(
        labels_file is None or config.label_pattern is None,
        "`labels` and `label_pattern` exclude each other",
    )
    files = find_images(images)
    others = f", but {count_kinds(files.kinds())}" if files.others else ""
    check(
        bool(files.images),
        f"{images} holds no PNG, JPEG, GIF, BMP, WEBP or TIFF files{others}",
    )
    found = _find_first_labels(images, files, labels_file, config)
    if corrections is not None:
        found = _correct(found, *_read_own_labels(corrections, images, files), corrections.name)
    unused = [file for file in files.others if file not in found.used]
    return replace(
        found,
        labels=_split_by_folders(sorted(found.labels, key=lambda label: label.file)),
        has_table=found.has_table or corrections is not None,
        others=files.kinds(found.used),
        hints=tuple(_list_hints(images, replace(files, others=unused), found.has_table)),
    )


def _find_first_labels(
    images: Path, files: ImageFiles, labels_file: Path | None, config: PrepareConfig
) -> Found:
    if config.label_pattern is not None:
        return labels_from_pattern(files.images, config.label_pattern)
    tables = [labels_file] if labels_file is not None else _find_tables(images, files)
    if tables:
        return _labels_from_tables(images, files, tables)
    if in_text_files := _labels_from_text_files(images, files):
        return in_text_files
    fits = _make_fit_test(config)
    named = labels_from_names(files.images, fits, config.charset is not None)
    return named if named.labels else _labels_from_folders(files.images, fits) or named


def _correct(found: Found, corrected: list[Label], refused: Problems, table: str) -> Found:
    """Replace labels by those of a table; they keep their splits."""
    splits = {label.file: label.split for label in found.labels}
    new = {label.file: replace(label, split=splits.get(label.file)) for label in corrected}
    replaced = [label for label in found.labels if label.file in new]
    changed = sum(label.text != new[label.file].text for label in replaced)
    name = f"{table} (changes {changed:,} of {len(replaced):,} labels)" if replaced else table
    kept = [label for label in found.labels if label.file not in new | refused]
    problems = {file: reason for file, reason in found.problems.items() if file not in new}
    return replace(
        found,
        labels=[*kept, *new.values()],
        problems=problems | refused,
        sources={**found.sources, name: len(new)},
    )


def _list_hints(images: Path, files: ImageFiles, has_table: bool) -> Iterator[str]:
    tables = [file for file in files.others if file.lower().endswith(_TABLE_EXTENSIONS)]
    lists = [file for file in files.others if file.lower().endswith(".txt")]
    tables += lists if len(lists) <= _MANY_TEXT_FILES else []
    if tables and not has_table:
        way = "save them as a CSV with the columns filename,text, and name that with `labels`"
        with suppress(UsageError):
            labels, _ = read_labels(images / tables[0], images, files.images)
            if len(labels) > 1 or len(tables) <= _MANY_TEXT_FILES:  # else a file for each image
                way = "name it with `labels`"
        yield f"if {images / tables[0]} has the texts, {way}"
    kinds = {PurePosixPath(file).suffix.lower() for file in files.others}.intersection(_TO_CONVERT)
    if kinds:
        yield f"convert {' and '.join(sorted(kinds))} to PNG to use these images"


def _find_tables(images: Path, files: ImageFiles) -> list[Path]:
    """Return the tables with a usual name in a folder, else those in the folders below it."""
    tables = [file for file in files.others if PurePosixPath(file).name.lower() in TABLES]
    at_top = [file for name in TABLES for file in tables if file.lower() == name]
    return [images / file for file in at_top[:1] or tables]


def _labels_from_tables(images: Path, files: ImageFiles, tables: list[Path]) -> Found:
    """Read the tables of a folder; an image without a row has no label."""
    labels: list[Label] = []
    problems: Problems = {}
    sources: dict[str, int] = {}
    all_files = {*files.images, *files.others}
    for table in tables:
        rows, refused = _read_own_labels(table, images, files)
        present = {label.file: label for label in rows if label.file in all_files}
        labels += present.values()
        problems |= refused | {
            label.file: f"{table.name} names it, but there is no such image"
            for label in rows
            if label.file not in present
        }
        sources[in_folder(images, table) or table.name] = len(present)
    missing = set(files.images).difference(problems, (label.file for label in labels))
    problems |= dict.fromkeys(sorted(missing), f"{tables[0].name} has no row for it")
    return Found(
        images=files.images,
        labels=labels,
        problems=problems,
        sources=sources,
        used=frozenset({OPTIONS_FILE, *sources}),
        has_table=True,
    )


def _read_own_labels(table: Path, images: Path, files: ImageFiles) -> tuple[list[Label], Problems]:
    """Read a table of labels; UsageError if it has rows, but none names an image of the folder."""
    labels, refused = read_labels(table, images, files.images)
    named = [label.file for label in labels] + list(refused)
    if named and set(files.images).isdisjoint(named):
        check(bool(labels), f"{table} holds no label: {named[0]}: {refused.get(named[0])}")
        nearest = max(files.images, key=lambda file: bool(how_they_differ(named[0], file)))
        raise UsageError(
            f"no row of {table} names an image below {images}: the first row names {named[0]!r}, "
            f"and the folder has {nearest!r}{how_they_differ(named[0], nearest)}"
        )
    return labels, refused


def read_labels(
    path: Path, folder: Path | None = None, files: Iterable[str] = ()
) -> tuple[list[Label], Problems]:
    """Read a table of labels; return the labels and the reasons why rows are left out.

    The output of `eval --csv` and `eval --json` is such a table, too. folder: the folder of images;
    names are relative to the table's folder, to it, or to the current folder. files: the images in
    it; a name in another Unicode form, or without its extension, means one of them.
    """
    names = FileNames(folder, None if folder is None else in_folder(folder, path.parent), files)
    rows = read_table(path, lambda name: names.find_moved(name) in names.files)
    is_moved = names.files.isdisjoint(names.find(row.filename) for row in rows)
    find = names.find_moved if is_moved else names.find
    labels: dict[str, Label] = {}
    problems: Problems = {}
    has_splits = any(row.split for row in rows)
    for row in rows:
        file = find(row.filename) if row.filename else f"{path.name} row {row.number}"
        origin = row.filename if is_moved and file in names.files else None
        label = Label(file, standard_form(row.text), split_named(row.split), row.confidence, origin)
        problem = _find_problem(row, label, has_splits)
        if problem is None and labels.setdefault(file, label) != label:
            problem = f"{path.name} gives it two different labels"
        if problem is not None:
            problems[file] = problem
    return _remove_frames([labels[file] for file in labels if file not in problems]), problems


def _remove_frames(labels: list[Label]) -> list[Label]:
    """Return labels without what stands around or in all texts: "AB12", text: AB12, A B 1 2."""
    for frame in _FRAMES:
        if len(labels) >= _FEWEST_FRAMED and all(frame.search(label.text) for label in labels):
            labels = [replace(label, text=frame.sub("", label.text)) for label in labels]
    return labels


def _find_problem(row: Row, label: Label, has_splits: bool) -> str | None:
    """Return why a row is no label: a value is missing, or the file is outside the folder."""
    problems = {
        "the row has no file name": not row.filename,
        "the file name leads out of the folder": _LEADS_OUT.match(label.file),
        "its label is empty": not row.text,
        f"its split is {row.split!r}; only train, val and test are known": (
            has_splits and label.split is None
        ),
    }
    return row.problem or next((text for text, applies in problems.items() if applies), None)


def split_named(name: str) -> Split | None:
    """Return the split that a folder or a value means; None for any other name."""
    return next((split for split, names in _SPLIT_NAMES.items() if name.lower() in names), None)


def _label_each(
    files: list[str],
    find_text: Callable[[str], str],
    source: str,
    used: frozenset[str] = frozenset(),
) -> Found:
    """Return the labels of files, and the reasons for those where `find_text` raises an error."""
    labels: list[Label] = []
    problems: Problems = {}
    for file in files:
        try:
            labels.append(Label(file, standard_form(find_text(file))))
        except CaptchaOcrError as error:
            problems[file] = str(error)
    return Found(files, labels, problems, {source: len(labels)}, used)


def labels_from_pattern(files: list[str], pattern: str) -> Found:
    """Return the label that a pattern finds in each file's name, with a slash in each path.

    It is the group `text` of the pattern, its first group, or all that it matches. UsageError if
    the pattern is no regular expression.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise UsageError(
            f"`label_pattern` {excerpt(pattern)!r} is no regular expression: {error}"
        ) from None

    group = "text" if "text" in compiled.groupindex else min(1, compiled.groups)

    def find_text(file: str) -> str:
        match = compiled.search(file if "/" in pattern else PurePosixPath(file).name)
        text = match[group] if match else ""
        check(bool(text), "`label_pattern` finds no text in its name", LabelError)
        return text

    return _label_each(files, find_text, "`label_pattern`")


def _labels_from_text_files(images: Path, files: ImageFiles) -> Found | None:
    """Return the label in the text file of each image; None if no image has one.

    It lies beside the image, a.txt, a.gt.txt, gt_a.txt or a.png.txt, or in a folder labels beside
    the image or the folder images. Or a program that draws boxes has put an a.json or a.xml there,
    or an a.xml into a folder Annotations beside that of the images.
    """
    other_files, text_of = set(files.others), dict[str, str]()
    for image in files.images:
        stem = posixpath.splitext(image)[0]
        names = (
            re.sub("[^/]*/([^/]*)$", r"Annotations/\1.xml", stem),
            *(f"{stem}.xml", f"{stem}.json", f"{stem}.box"),
            re.sub(r"(^|/)images/", r"\1labels/", stem) + ".txt",
            *(re.sub("[^/]+$", form, stem) for form in (r"labels/\g<0>.txt", r"gt_\g<0>.txt")),
            *(f"{image}.txt", f"{stem}.gt.txt", f"{stem}.txt"),
        )
        text_of.update((image, name) for name in names if name in other_files)  # the last counts
    if not text_of:
        return None
    owners = Counter(text_of.values())

    def find_text(file: str) -> str:
        check(file in text_of, "it has no text file", LabelError)
        name = text_of[file]
        check(owners[name] == 1, f"{name} may belong to any of {owners[name]} images", LabelError)
        if name.endswith((".txt", ".box")):
            lines = filter(None, map(str.strip, read_text(images / name).splitlines()))
            texts = [_COORDINATES.sub("", line, 1) for line in lines]
        else:
            texts = [row.text for row in read_table(images / name)]
        check(not any(map(_BOX.fullmatch, texts)), f"{name} {_BOXES}", LabelError)
        check(len(texts) == 1, f"{name} has {len(texts)} texts instead of one", LabelError)
        return texts[0]

    found = _label_each(files.images, find_text, "text files", frozenset(owners))
    found = replace(found, labels=_remove_frames(found.labels))
    has_lists = any(name.endswith((".txt", ".box")) for name in owners)
    # One and the same text in all boxes names what is in them.
    return found if has_lists or len({label.text for label in found.labels}) > 1 else None


def labels_from_names(
    files: list[str], allowed: TextTest | None = None, joins: bool = True
) -> Found:
    """Return the label in each file's name, and the reason why others have none.

    allowed, joins: as `fits` and `joins` of `NameReader`.
    """
    stems = {file: PurePosixPath(file).stem for file in files}
    recur = recur_in_folders(files, list(stems.values()))
    count = allowed is None and are_counted(list(stems.values()))
    reader, ways = NameReader(list(stems.values()), allowed, joins), Counter[str]()

    def find_text(file: str) -> str:
        check(not recur, f"names recur in the folders, so they hold no texts; {HINT}", LabelError)
        check(not count, _COUNTED, LabelError)
        text = reader.find_text(stems[file])
        ways[f"file names, {describe_place(stems[file], text)}"] += 1
        return text

    return replace(_label_each(files, find_text, ""), sources=dict(ways))


def _make_fit_test(config: PrepareConfig) -> TextTest | None:
    """Return a function that tells whether the given alphabet and lengths allow a text.

    None if neither is given.
    """
    if config.charset is None and config.lengths is None:
        return None
    alphabet = resolve_alphabet(config.charset or "")
    if not config.case_sensitive:
        alphabet += alphabet.lower() + alphabet.upper()
    known = set(split_characters(alphabet))

    def fits(text: str) -> bool:
        characters = split_characters(standard_form(text))
        is_known = config.charset is None or known.issuperset(characters)
        return is_known and (config.lengths is None or len(characters) in config.lengths)

    return fits


def _labels_from_folders(files: list[str], allowed: TextTest | None = None) -> Found | None:
    """Return the name of each image's folder as its label.

    None unless all folders have names that can be texts.

    Names that many images share may be those of people, years or batches, unless the options allow
    all, or each is a character.
    """
    distinct = {PurePosixPath(file).parent.name for file in files}
    have_no_text = any(
        split_named(name) or NO_TEXT.fullmatch(name) or _NO_TEXT_FOLDER.fullmatch(name)
        for name in distinct
    )
    are_certain = all(map(allowed or (lambda text: len(text) == 1), distinct))
    are_likely = are_certain or len(files) <= _IMAGES_OF_A_TEXT * len(distinct)
    if len(distinct) < 2 or "" in distinct or have_no_text or not are_likely:
        return None
    return _label_each(files, lambda file: PurePosixPath(file).parent.name, "folder names")


def _split_by_folders(labels: list[Label]) -> list[Label]:
    """Give images the splits that the folders at the top name, if these name more than one."""
    splits = [split_named(label.file.rpartition("/")[0].partition("/")[0]) for label in labels]
    if any(label.split for label in labels) or len({*splits} - {None}) < 2:
        return labels
    return [replace(label, split=split) for label, split in zip(labels, splits, strict=True)]


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the journal of answers: file, seconds (None if unknown), and more.

    None without the file. A line that was cut short, when the disk was full, is left out.
    """
    documents = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        with suppress(ValueError):
            documents.append(json.loads(line))
    return documents
