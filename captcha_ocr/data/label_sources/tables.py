"""Read tables of file names and texts that people and other programs write: CSV, JSON, lists; find
the images that a table means by its file names.
"""

import ast
import csv
import io
import json
import os
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from captcha_ocr.data.label_sources.boxes import FILE_NAME, parse_xml, read_boxes
from captcha_ocr.errors import UsageError
from captcha_ocr.system.files import read_text

_COLUMN_NAMES = {  # the usual names of a column, in one word
    "filename": {
        *("filename", "filepath", "file", "path"),
        *("image", "imagename", "imagepath", "images", "img", "id", "name"),
    },
    "text": {
        *("text", "label", "labels", "word", "words", "transcription", "code", "captcha"),
        *("solution", "answer", "target", "groundtruth", "gt"),
    },
    "split": {"split", "subset", "set"},
    "confidence": {"confidence"},  # in a table that `eval` wrote
}
# A line of a list, but not a file name that begins with #
_COMMENT = re.compile(r"^[ \t]*(?:#(?!\S*\.\w{3,4}\b)|//).*", re.MULTILINE)
_WORD = re.compile(r"[^\W_][\w-]*")
_ASSIGNED = re.compile(r"\s+(?:=|->|=>|:)\s+|:\s+")  # between a file name and its text
_NEARLY_ALL = 0.9  # of the rows: a column that names images
_UPLOAD = re.compile(r"[0-9a-f]{8}-(?=.)")  # before a file name, by Label Studio
_AROUND_PATH = re.compile(r".*\?d=|[?#].*")  # in a URL
# Ends of names of other columns with texts
_OTHER_TEXTS = ("text", "transcript", "solution", "answer", "correction")
_WEAK_NAMES = {"id", "name"}  # of a column of numbers, beside one of file names
_INVISIBLE = "\u200b\u200e\u200f\ufeff"  # that chat programs and spreadsheets add
_EXCEL_SEPARATOR = re.compile(r"\A\s*sep=[,;\t]\s*\n")  # a first line for Excel
# ="0012" and '0012: how people make a spreadsheet keep zeros
_EXCEL_TEXT = re.compile(r'\A(?:="(.*)"|\'(?=[\d=+-])(.*))\Z')
_FORMULA = ("=", "+", "-", "@")  # how a text begins that a spreadsheet computes
_MAX_EXCERPT = 100  # characters of foreign text in a message


@dataclass(frozen=True)
class Row:
    """A row of a table: a file name, its text and its split, or the reason why the row cannot be
    used.

    confidence: 0 to 1, in a table that has them, as those of `eval`; 0 if it is no number.
    """

    number: int
    filename: str = ""
    text: str = ""
    split: str = ""
    problem: str | None = None
    confidence: float | None = None


def excerpt(text: str) -> str:
    """Return the beginning of a text, for a message."""
    return text if len(text) <= _MAX_EXCERPT else text[:_MAX_EXCERPT] + "…"


def read_table(path: Path, is_image: Callable[[str], object] = FILE_NAME.fullmatch) -> list[Row]:
    """Read the rows of a table; UsageError, with its first line, if it is not understood.

    CSV with commas, semicolons or tabs, with a header (see COLUMNS) or rows of a file name and a
    text; a file name, a blank and a text a line; JSON: a list of objects, an object a line, or one
    object {file name: text}; files with boxes (boxes.py). `eval --csv` and `eval --json` write such
    tables. is_image: whether a name means an image; that tells columns of other names.
    """
    text = read_text(path)
    try:
        content = _parse(text)
        boxes = list(read_boxes(content))
        if boxes:
            return [Row(number, file, text) for number, (file, text) in enumerate(boxes, 1)]
        return list(_read_csv(text, is_image) if content is None else _read_json(content, is_image))
    except (ValueError, TypeError, RecursionError, csv.Error, ElementTree.ParseError) as error:
        raise UsageError(f"{path} cannot be read as a labels file: {error}") from None


def _parse(text: str) -> Any:
    """Return the content of XML, JSON, JSON a line, PPOCRLabel or Python; None for other lines."""
    start = text.lstrip()[:1]
    if start == "<":
        return parse_xml(ElementTree.fromstring(text))
    if start not in ("{", "["):
        if "\t[{" not in text:
            return None
        # PPOCRLabel: a file name and its boxes a line
        pairs = (line.split("\t", 1) for line in filter(None, text.splitlines()))
        return [{"file": file, "boxes": json.loads(boxes)} for file, boxes in pairs]
    try:
        return json.loads(text, object_pairs_hook=_refuse_repetition)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Extra data"):
            lines = io.StringIO(text, newline=None)
            return [json.loads(line) for line in lines if line.strip()]
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(text)
        raise


def _read_json(content: Any, is_image: Callable[[str], object]) -> Iterator[Row]:
    """Yield the rows of a JSON document; results of `eval` without a text are left out."""
    documents = content if isinstance(content, list) else [content]
    if isinstance(content, dict) and not _has_columns(list(content)):
        nested = [value for value in content.values() if isinstance(value, (dict, list))]
        lists = [value for value in content.values() if isinstance(value, list)]
        if len(lists) == 1 and all(isinstance(item, dict) for item in lists[0]):
            documents = lists[0]  # {"images": [{…}, {…}]}
        elif nested:
            raise ValueError(
                "it has neither rows nor boxes that are understood: save it as CSV, Pascal VOC, "
                "or as Label Studio or Labelme do"
            )
        elif not _find_columns(list(content)):
            content.pop("summary", None)
            documents = [{"filename": name, "text": text} for name, text in content.items()]
    if all(isinstance(row, (list, tuple)) and {*map(type, row)} <= {str, int} for row in documents):
        rows = [(number, list(map(str, row))) for number, row in enumerate(documents, 1)]
        yield from _read_rows(rows, "", is_image)
        return
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict):
            raise ValueError(f"item {number} is no JSON object")
        fields = list(document.values())
        values = {column: fields[place] for column, place in _find_columns(list(document)).items()}
        if not {"error", "summary"} & document.keys() and values.get("text", "") is not None:
            yield _make_row(number, values)


def _refuse_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object.

    ValueError if it has a key twice, of which the json module would keep the last.
    """
    document: dict[str, Any] = {}
    for key, value in pairs:
        if document.setdefault(key, value) != value:
            raise ValueError(f"it gives {excerpt(key)!r} twice, with different values")
    return document


def _find_columns(names: Sequence[str]) -> dict[str, int]:
    """Return the place of each column whose name is known.

    ValueError if two of them mean the same.
    """
    columns: dict[str, int] = {}
    words = [re.sub(r"[\s_-]", "", name.lower()) for name in names]
    for column, known in _COLUMN_NAMES.items():
        places = [place for place, word in enumerate(words) if word in known]
        places = [place for place in places if words[place] not in _WEAK_NAMES] or places
        exact = [place for place in places if words[place] == column]
        if len(places) > 1 and len(exact) != 1:
            both = " and ".join(repr(names[place]) for place in places)
            raise ValueError(f"its columns {both} both mean the {column}")
        if places:
            columns[column] = (exact or places)[0]
    for name, word in zip(names, words, strict=True):
        # A class beside the text, or a text beside its correction
        is_known = "text" not in columns or word in _COLUMN_NAMES["text"]
        if word.endswith(_OTHER_TEXTS) and not is_known:
            both = f"{names[columns['text']]!r} and {name!r}"
            raise ValueError(f"its columns {both} may both hold the texts: remove one of them")
    return columns


def _make_row(number: int, values: dict[str, Any]) -> Row:
    """Return the row of a table's values; texts that are no texts are its problem."""
    words = {}
    confidence = _parse_confidence(values.pop("confidence", None))
    for column, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            problem = f"its {column} is no text: {excerpt(str(value))}"
            return Row(number, excerpt(str(values.get("filename", ""))), problem=problem)
        words[column] = "" if value is None else str(value).strip().strip(_INVISIBLE).strip()
    return Row(number, **words, confidence=confidence)


def _parse_confidence(value: Any) -> float | None:
    """Return a confidence from 0 to 1; larger ones are percentages, as of Tesseract.

    What is neither is 0.
    """
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    if number > 1:
        number /= 100
    return number if 0 <= number <= 1 else 0.0


def to_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as a document of CSV."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def readings_to_csv(readings: Iterable[tuple[Any, ...]], more: Iterable[str] = ()) -> str:
    """Return file names, texts and confidences as CSV, the least confident first.

    more: the names of further columns.
    """
    rows = sorted(readings, key=lambda row: row[2])
    lines = (
        (path, mark_text(text), f"{confidence:.4f}", *others)
        for path, text, confidence, *others in rows
    )
    return to_csv([("filename", "text", "confidence", *more), *lines])


def mark_text(text: str) -> str:
    """Return a text as a field of CSV that `read_table` returns unchanged."""
    return f'="{text}"' if _EXCEL_TEXT.match(text) or text.startswith(_FORMULA) else text


def _read_csv(text: str, is_image: Callable[[str], object]) -> Iterator[Row]:
    """Yield the rows of a CSV document, or of lines with a file name, a blank and a text."""
    comments = map(_WORD.findall, _COMMENT.findall(text))
    text = _COMMENT.sub("", _EXCEL_SEPARATOR.sub("\n", text))
    stripped = [line.strip() for line in io.StringIO(text, newline=None)]
    first = next(filter(None, stripped), "")
    separator = max(",;\t|", key=first.count)  # spreadsheets use that of the user's country
    if separator in first:
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True
        )
        lines = [(reader.line_num, list(map(str.strip, line))) for line in reader]
    else:
        separator = " "
        lines = [
            (number, _ASSIGNED.sub(" ", line, 1).split()) for number, line in enumerate(stripped, 1)
        ]
        widths = {len(fields) for _, fields in lines if fields}
        has_three = len(first.split()) > 2 and _has_columns(first.split())
        if len(widths) > 1 and not has_three:  # some texts have blanks
            lines = [(number, [*fields[:1], " ".join(fields[1:])]) for number, fields in lines]
    rows = [(number, fields) for number, fields in lines if any(fields)]
    width = len(rows[0][1]) if rows else 0
    heads = [(0, head) for head in comments if len(head) == width and _has_columns(head)]
    yield from _read_rows(heads[:1] + rows, separator, is_image)


def _has_columns(names: Sequence[str]) -> bool:
    with suppress(ValueError):
        return {"filename", "text"} <= _find_columns(names).keys()
    return False


def _read_rows(
    rows: list[tuple[int, list[str]]], separator: str, is_image: Callable[[str], object]
) -> Iterator[Row]:
    """Yield the rows of a table, with or without a header."""
    head = rows[0][1] if rows else []
    columns = _find_columns(head)
    has_header = {"filename", "text"} <= columns.keys()
    if not has_header:
        places = _find_file_columns([row[: len(head)] for _, row in rows[1:] or rows], is_image)
        texts = [columns.get("text", 1 - places[0])] if len(places) == 1 else []
        if not texts or (len(head) != 2 and "text" not in columns):
            raise ValueError(
                "it needs a first line with filename,text (and, if wanted, split), or rows of a "
                f"file name and a text; its first line is {excerpt(separator.join(head))!r}"
            )
        columns |= {"filename": places[0], "text": texts[0]}
        is_named = FILE_NAME.fullmatch(head[places[0]]) or is_image(head[places[0]])
        has_header = separator != " " and not is_named
    for number, fields in rows[has_header:]:
        if len(fields) > len(head):
            yield Row(
                number,
                fields[columns["filename"]],
                problem=f"it has {len(fields)} fields instead of {len(head)}: "
                f"put a text that contains {separator!r} in quotes",
            )
        else:
            fields = [*fields, *[""] * (len(head) - len(fields))]
            values = {column: fields[place] for column, place in columns.items()}
            values["text"] = _EXCEL_TEXT.sub(r"\1\2", values["text"])
            yield _make_row(number, values)


def _find_file_columns(rows: list[list[str]], is_image: Callable[[str], object]) -> list[int]:
    """Return the places of the columns in which nearly all rows name images."""
    for test in (FILE_NAME.fullmatch, is_image):
        shares = [
            sum(map(bool, map(test, column))) / len(rows)
            for column in zip_longest(*rows, fillvalue="")
        ]
        places = [place for place, share in enumerate(shares) if share >= _NEARLY_ALL]
        if places:
            return places
    return []


def in_folder(folder: Path, path: Path) -> str | None:
    """Return a path relative to a folder, as POSIX; None if it lies elsewhere."""
    whole, inside = Path(os.path.abspath(path)), os.path.abspath(folder)
    return whole.relative_to(inside).as_posix() if whole.is_relative_to(inside) else None


class FileNames:
    """The names of the images in a folder, as tables write them.

    beside: the table's folder, relative to it.
    """

    def __init__(self, folder: Path | None, beside: str | None, files: Iterable[str]) -> None:
        self.folder, self.files = folder, set(files)
        self.beside = None if beside == "." else beside
        composed = {unicodedata.normalize("NFC", file): file for file in self.files}
        stems = [posixpath.splitext(name)[0] for name in composed]
        by_stem = dict(zip(stems, composed.values(), strict=True))
        unique = {stem: by_stem[stem] for stem, count in Counter(stems).items() if count == 1}
        self.file_of = unique | composed

    def find(self, name: str) -> str:
        """Return the file that a name means; the name, with slashes, if there is none.

        An absolute name, or one from the current folder, may lead into the folder.
        """
        plain = PurePosixPath(name.replace("\\", "/")).as_posix()
        for path in (name if self.beside is None else f"{self.beside}/{plain}", plain):
            composed = unicodedata.normalize("NFC", path)
            if path in self.files or composed in self.file_of:
                return path if path in self.files else self.file_of[composed]
        if self.folder is None:
            return plain
        inside = in_folder(self.folder, Path(plain))
        # `exists` comes last, so that nothing outside the folder is looked for.
        return plain if inside is None or not os.path.exists(plain) else inside

    def find_moved(self, name: str) -> str:
        """Return the image whose name is the end of another folder's or program's; else what it
        means by itself.

        Label Studio puts a mark before names.
        """
        parts = unquote(_AROUND_PATH.sub("", name.replace("\\", "/"))).split("/")
        ends = ["/".join(parts[start:]) for start in range(len(parts))]
        ends.append(_UPLOAD.sub("", parts[-1]))
        return next((self.file_of[end] for end in ends if end in self.file_of), self.find(name))
