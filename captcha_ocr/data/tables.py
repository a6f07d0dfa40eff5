"""Read tables of file names and texts that people and other programs write: CSV, JSON, lists."""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from captcha_ocr.errors import UsageError
from captcha_ocr.system.files import open_regular

MARKS = {  # byte-order mark -> encoding; the mark of UTF-32 begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
COLUMNS = {  # the usual names of a column, in one word
    "filename": {
        "filename",
        "filepath",
        "file",
        "path",
        "image",
        "imagename",
        "imagepath",
        "images",
    }
    | {"img", "id", "name"},
    "text": {
        "text",
        "label",
        "labels",
        "word",
        "words",
        "transcription",
        "code",
        "captcha",
        "solution",
        "answer",
    }
    | {"target", "groundtruth", "gt"},
    "split": {"split", "subset", "set"},
    "confidence": {"confidence"},  # in a table that `eval` wrote
}
FILE_NAME = re.compile(r"\S.*\.(png|jpe?g|jpe|jfif|gif|bmp|webp|tiff?)", re.IGNORECASE)
MORE_TEXT = (
    "text",
    "transcript",
    "solution",
    "answer",
    "correction",
)  # ends of names of other columns with texts
WEAK = {"id", "name"}  # of a column of numbers, beside one of file names
INVISIBLE = "\u200b\u200e\u200f\ufeff"  # that chat programs and spreadsheets add
EXCEL_SEPARATOR = re.compile(r"\s*sep=([,;\t])\s*\n")  # a first line for Excel
EXCEL_TEXT = re.compile(
    r'="(.*)"|\'(?=[\d=+-])(.*)'
)  # ="0012" and '0012: how people make a spreadsheet keep zeros
Key = TypeVar("Key")
MAX_EXCERPT = 100  # characters of foreign text in a message


@dataclass(frozen=True)
class Row:
    """A row of a table: a file name, its text and its split, or the reason why the row cannot be used.

    is_reading: whether the table has a column of confidences, as those of `eval`.
    """

    number: int
    filename: str = ""
    text: str = ""
    split: str = ""
    problem: str | None = None
    is_reading: bool = False


def excerpt(text: str) -> str:
    """Return the beginning of a text, for a message."""
    return text if len(text) <= MAX_EXCERPT else text[:MAX_EXCERPT] + "…"


def encoding_of(start: bytes, default: str = "utf-8") -> str:
    """Return the encoding that the byte-order mark at the start of a file names; the default without a mark."""
    return next((encoding for mark, encoding in MARKS.items() if start.startswith(mark)), default)


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, or in the encoding of its byte-order mark; UsageError for any other file."""
    try:
        with open_regular(path) as stream:
            data = stream.read()
        text = data.decode(encoding_of(data))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        what = (
            "is a spreadsheet: save it as CSV"
            if data.startswith(b"PK")
            else f"is not text in UTF-8 ({error.reason})"
        )
        raise UsageError(f"{path} {what}; save it as text in UTF-8") from None
    if "\0" in text:
        raise UsageError(f"{path} is no text, or UTF-16 without its mark; save it as text in UTF-8")
    return text


def read_table(path: Path) -> list[Row]:
    """Read the rows of a table; UsageError, with its first line, if it is not understood.

    CSV with commas, semicolons or tabs, with a header (see COLUMNS) or rows of a file name and a text; a file name, a
    blank and a text a line; JSON: a list of objects, an object a line, or one object {file name: text}. `eval --csv`
    and `eval --json` write such tables.
    """
    text = read_text(path)
    try:
        rows = list(rows_of_json(text) if text.lstrip()[:1] in ("{", "[") else rows_of_csv(text))
    except (ValueError, RecursionError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as a labels file: {error}") from None
    return rows


def rows_of_json(text: str) -> Iterator[Row]:
    """Yield the rows of a JSON document, or of a document a line; results of `eval` without a text are left out."""
    try:
        found = json.loads(text, object_pairs_hook=without_repetition)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        found = [json.loads(line) for line in io.StringIO(text, newline=None) if line.strip()]
    lists = (
        [value for value in found.values() if isinstance(value, list)]
        if isinstance(found, dict)
        else []
    )
    if len(lists) == 1 and all(isinstance(item, dict) for item in lists[0]):
        found = lists[0]  # {"images": [{…}, {…}]}
    if isinstance(found, dict) and not columns_of({key: key for key in found}):
        found = [
            {"filename": name, "text": value} for name, value in found.items() if name != "summary"
        ]
    for number, document in enumerate(found if isinstance(found, list) else [found], 1):
        if not isinstance(document, dict):
            raise ValueError(f"item {number} is no JSON object")
        keys = columns_of({key: key for key in document})
        values = {column: document[key] for column, key in keys.items()}
        if not {"error", "summary"} & document.keys() and values.get("text", "") is not None:
            yield row_of(number, values)


def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; ValueError if it has a key twice, of which the json module would keep the last."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise ValueError(f"it gives {excerpt(key)!r} twice, with different values")
    return found


def columns_of(names: Mapping[Key, str]) -> dict[str, Key]:
    """Return the key of each column whose name is known; ValueError if two of them mean the same."""
    columns: dict[str, Key] = {}
    normal = {key: re.sub(r"[\s_-]", "", name.lower()) for key, name in names.items()}
    for column, known in COLUMNS.items():
        found = [key for key, name in normal.items() if name in known]
        found = [key for key in found if normal[key] not in WEAK] or found
        exact = [key for key in found if normal[key] == column]
        if len(found) > 1 and len(exact) != 1:
            raise ValueError(
                f"its columns {' and '.join(repr(names[key]) for key in found)} both mean the {column}"
            )
        if found:
            columns[column] = (exact or found)[0]
    others = [
        key
        for key, name in normal.items()
        if name.endswith(MORE_TEXT) and name not in COLUMNS["text"]
    ]
    if "text" in columns and others:  # a class beside the text, or a text beside its correction
        both = f"{names[columns['text']]!r} and {names[others[0]]!r}"
        raise ValueError(f"its columns {both} may both hold the texts: remove one of them")
    return columns


def row_of(number: int, values: dict[str, Any]) -> Row:
    """Return the row of a table's values; texts that are no texts are its problem."""
    words = {}
    is_reading = values.pop("confidence", None) is not None
    for column, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            return Row(
                number,
                excerpt(str(values.get("filename", ""))),
                problem=f"its {column} is no text: {excerpt(str(value))}",
            )
        words[column] = "" if value is None else str(value).strip().strip(INVISIBLE).strip()
    return Row(number, **words, is_reading=is_reading)


def csv_of(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as a document of CSV."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def marked(text: str) -> str:
    """Return a text as a field of CSV that `unmarked` returns unchanged."""
    return f'="{text}"' if EXCEL_TEXT.fullmatch(text) else text


def unmarked(field: str) -> str:
    """Return the text in a field of CSV, without the marks that keep a spreadsheet from changing it."""
    found = EXCEL_TEXT.fullmatch(field)
    return (found[1] or found[2] or "") if found else field


def rows_of_csv(text: str) -> Iterator[Row]:
    """Yield the rows of a CSV document, or of lines with a file name, a blank and a text."""
    text = EXCEL_SEPARATOR.sub("\n", text, count=1) if EXCEL_SEPARATOR.match(text) else text
    stripped = [line.strip() for line in io.StringIO(text, newline=None)]
    first = next(filter(None, stripped), "")
    separator = max(",;\t", key=first.count)  # spreadsheets use the separator of the user's country
    if separator in first:
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True
        )
        lines = [(reader.line_num, [field.strip() for field in line]) for line in reader]
    else:
        lines = [(number, line.split(None, 1)) for number, line in enumerate(stripped, 1)]
    lines = [(number, fields) for number, fields in lines if any(fields)]
    columns, has_header = columns_of_first(lines[0][1] if lines else [])
    if not columns:
        wanted = "a first line with filename,text (and, if wanted, split), or rows of a file name and a text"
        raise ValueError(f"it needs {wanted}; its first line is {excerpt(first)!r}")
    width = len(lines[0][1])
    for number, fields in lines[has_header:]:
        if len(fields) > width:
            why = f"it has {len(fields)} fields instead of {width}: put a text that contains {separator!r} in quotes"
            yield Row(number, fields[columns["filename"]], problem=why)
        else:
            fields += [""] * (width - len(fields))
            values = {column: fields[place] for column, place in columns.items()}
            yield row_of(number, {**values, "text": unmarked(values["text"])})


def columns_of_first(fields: list[str]) -> tuple[dict[str, int], bool]:
    """Return the place of each column by the first line of a table, and whether that line is a header."""
    columns = columns_of(dict(enumerate(fields)))
    if {"filename", "text"} <= columns.keys():
        return columns, True
    files = [place for place, field in enumerate(fields) if FILE_NAME.fullmatch(field)]
    if len(fields) == 2 and len(files) == 1:
        return {"filename": files[0], "text": 1 - files[0]}, False
    return {}, False
