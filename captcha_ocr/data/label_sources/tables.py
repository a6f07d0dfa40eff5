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
from itertools import chain, zip_longest
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from captcha_ocr.data.label_sources.boxes import FILE_NAME, join_texts, parse_xml, read_boxes
from captcha_ocr.data.label_sources.names import FEW_VALUES, make_text_test
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
    # In a table that `eval` wrote, or another reader
    "confidence": {"confidence", "conf", "score", "probability", "prob", "certainty"},
}
# In names of columns without texts
_NO_TEXTS = re.compile(
    "size|byte|width|height|length|time|date|count|index|seed|hash|md5|sha|ur[il]|user|author"
    "|id$|^[xy]|box|attributes"
)
_DOCUMENT = re.compile(r"""[\[{]+\s*["']""")  # of JSON or Python, in a cell
_TITLE_ROWS = 5  # the header is in one of them
# A line of a list, but not a file name that begins with #
_COMMENT = re.compile(r"^[ \t]*(?:#(?!\S*\.\w{3,4}\b)|//).*", re.MULTILINE)
_END_COMMENT = re.compile(
    r"""^([ \t]*+[^\s,;|"]++[ \t,;|]++[^\r\n"]*?[^\s,;|"])"""  # two fields or more
    r"[ \t]++(?:#(?!\S*\.\w{3,4}\b)|//)[^\r\n]*",
    re.MULTILINE,
)
_WORD = re.compile(r"[^\W_][\w-]*")
_ASSIGNED = re.compile(r"\s+(?:=|->|=>|:)\s+|:\s+")  # between a file name and its text
_NEARLY_ALL = 0.9  # of the rows: a column that names images
_UPLOAD = re.compile(r"[0-9a-f]{8}-(?=.)")  # before a file name, by Label Studio
_AROUND_PATH = re.compile(r".*\?d=|[?#].*")  # in a URL
# Ends of names of other columns with the same
_OTHER_NAMES = {
    "text": ("text", "transcript", "solution", "answer", "correction"),
    "confidence": ("confidence", "score"),
}
_RARE_KEY = 100  # one that fewer than 1 in 100 objects have is no column
_FIRST_ROWS = 1000  # that tell which column names images
# Between the words of a column's name, and before it, as in Answer.text
_AROUND_WORDS = re.compile(r".*\.|[\s_-]")
_INVISIBLE = "\u200b\u200e\u200f\ufeff"  # that chat programs and spreadsheets add
_EXCEL_SEPARATOR = re.compile(r"\A\s*sep=[,;\t]\s*\n")  # a first line for Excel
# ="0012" and '0012: how people make a spreadsheet keep zeros
_EXCEL_TEXT = re.compile(r'\A(?:="(.*)"|\'(?=[\d=+-])(.*))\Z')
# A text that a spreadsheet computes, or that seems to end in a comment
_FORMULA = re.compile(r"[=+@-]|.*[ \t](?:#|//)")
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
        rows, separator = _split_lines(text) if content is None else (_list_rows(content), ",")
        return list(_read_rows(rows, separator, is_image))
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


def _list_rows(content: Any) -> list[tuple[int, Sequence[Any]]]:
    """Return the rows of a JSON document, those of objects below a header of their keys."""
    rows: Any = list(read_boxes(content)) or content
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        if _has_columns(list(rows)):
            rows = [rows]
        elif len(lists) == 1 and all(isinstance(item, dict) for item in lists[0]):
            rows = lists[0]  # {"images": [{…}, {…}]}
        elif all(isinstance(value, dict) for value in rows.values()):
            rows = [{"filename": name, **value} for name, value in rows.items()]
        else:
            rows = list(rows.items())  # {file name: text}
    kinds = set(map(type, rows))
    if kinds == {dict}:
        counts = Counter(chain.from_iterable(rows))
        head = [name for name, count in counts.items() if _RARE_KEY * count >= len(rows)]
        values = ([row.get(name) for name in head] for row in rows)
        return [(0, head), *enumerate(values, 1)]
    if not kinds <= {list, tuple}:
        raise ValueError("its items are neither all objects nor all lists")
    return list(enumerate(rows, 1))


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
    words = [_AROUND_WORDS.sub("", name.lower()) for name in names]
    for column, known in _COLUMN_NAMES.items():
        # A class beside the text, or a text beside its correction
        ends = _OTHER_NAMES.get(column, ())
        places = [n for n, word in enumerate(words) if word in known or word.endswith(ends)]
        exact = [place for place in places if words[place] == column]
        if len(places) > 1 and (len(exact) != 1 or not known.issuperset(words[n] for n in places)):
            both = " and ".join(repr(names[place]) for place in places)
            raise ValueError(f"its columns {both} both mean the {column}: remove one of them")
        if places:
            columns[column] = (exact or places)[0]
    return columns


def _make_row(number: int, values: dict[str, Any]) -> Row:
    """Return the row of a table's values; texts that are no texts are its problem."""
    words = {}
    confidence = _parse_confidence(values.pop("confidence", None))
    for column, value in values.items():
        if isinstance(value, str) and _DOCUMENT.match(value):
            with suppress(ValueError):
                value = _parse(value)
        if isinstance(value, (list, dict)):
            value = join_texts(value) or value
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, (str, int, type(None))):
            return Row(
                number,
                excerpt(str(values["filename"])),
                problem=f"its {column} is no text: {excerpt(str(value))}",
            )
        words[column] = "" if value is None else str(value).strip().strip(_INVISIBLE).strip()
    return Row(number, **words, confidence=confidence)


def _parse_confidence(value: Any) -> float | None:
    """Return a confidence from 0 to 1; larger ones are percentages, as of Tesseract.

    What is neither is 0.
    """
    with suppress(TypeError, ValueError):
        number = float(value)
        share = number / 100 if number > 1 else number
        return share if 0 <= share <= 1 else 0.0
    return None if value is None else 0.0


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
    return f'="{text}"' if _EXCEL_TEXT.match(text) or _FORMULA.match(text) else text


def _split_lines(text: str) -> tuple[list[tuple[int, list[str]]], str]:
    """Return the rows of a CSV document, or of lines with a file name, a blank and a text; and what
    separates their fields.
    """
    comments = map(_WORD.findall, _COMMENT.findall(text))
    text = _COMMENT.sub("", _EXCEL_SEPARATOR.sub("\n", text))
    text = _END_COMMENT.sub(r"\1", text)
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
    rows = [
        (number, [_EXCEL_TEXT.sub(r"\1\2", field) for field in fields])
        for number, fields in lines
        if any(fields)
    ]
    first_row = rows[0][1] if rows else []
    heads = [head for head in comments if len(head) == len(first_row) and _has_columns(head)]
    return [*((0, head) for head in heads[:1]), *rows], separator


def _has_columns(names: Sequence[str]) -> bool:
    with suppress(ValueError):
        return {"filename", "text"} <= _find_columns(names).keys()
    return False


def _read_rows(
    rows: Sequence[tuple[int, Sequence[Any]]], separator: str, is_image: Callable[[str], object]
) -> Iterator[Row]:
    """Yield the rows of a table, with or without a header, which may stand below a title."""
    starts = (n for n, row in enumerate(rows[:_TITLE_ROWS]) if _has_columns([*map(str, row[1])]))
    rows = rows[next(starts, 0) :]
    head = list(map(str, rows[0][1])) if rows else []
    names = list(head)
    body = [fields[: len(head)] for _, fields in rows[1:] or rows]
    content = list(zip_longest(*body[:_FIRST_ROWS], fillvalue=""))
    places = _find_file_columns(content, is_image)
    has_images = any(FILE_NAME.fullmatch(name) or is_image(name) for name in head)
    has_header = _has_columns(head) or (separator != " " and not has_images)
    if len(places) == 1:
        names[places[0]] = "filename"
        if len(head) == 2 and not has_header:
            names[1 - places[0]] = "text"
    columns = _find_columns(names)
    if has_header and len(places) == 1 and "text" not in columns:
        columns |= _find_texts(names, content, columns)
    if not {"filename", "text"} <= columns.keys():
        raise ValueError(
            "it needs a first line with filename,text (and, if wanted, split), or rows of a file "
            "name and a text: save it as such a CSV, and boxes as Pascal VOC or JSON; its first "
            f"line is {excerpt(separator.join(head))!r}"
        )
    for number, fields in rows[has_header:]:
        field_at = dict(enumerate(fields))
        values = {column: field_at.get(place) for column, place in columns.items()}
        if len(fields) > len(head):
            yield Row(
                number,
                str(values["filename"]),
                problem=f"it has {len(fields)} fields instead of {len(head)}: "
                f"put a text that contains {separator!r} in quotes",
            )
        elif any(values.values()):  # else the summary of `eval --json`
            yield _make_row(number, values)


def _find_texts(
    names: Sequence[str], content: Sequence[Sequence[Any]], known: dict[str, int]
) -> dict[str, int]:
    """Return the place of the only column whose values can be texts, as that of `text`.

    ValueError if there are several.
    """
    places = [place for place in range(len(content)) if place not in known.values()]
    if len(names) > 2:
        places = [place for place in places if _may_be_texts(names[place], content[place])]
    if len(places) > 1:
        words = " and ".join(repr(names[place]) for place in places)
        raise ValueError(f"its columns {words} may all hold the texts: name the right one 'text'")
    return {"text": places[0]} if places else {}


def _may_be_texts(name: str, column: Sequence[Any]) -> bool:
    values = [str(value) for value in column if isinstance(value, (str, int)) and value != ""]
    are_many = FEW_VALUES * len(set(values)) > len(values)
    is_other = _NO_TEXTS.search(name.lower()) is not None
    return are_many and not is_other and any(map(make_text_test(values, 3), values))


def _find_file_columns(
    columns: list[tuple[Any, ...]], is_image: Callable[[str], object]
) -> list[int]:
    """Return the places of the columns in which nearly all of the first rows name images."""
    for test in (FILE_NAME.fullmatch, is_image):
        named = [list(map(bool, map(test, map(str, column)))) for column in columns]
        if places := [place for place, column in enumerate(named) if fmean(column) >= _NEARLY_ALL]:
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
        stems = Counter(posixpath.splitext(name)[0] for name in composed)
        by_stem = {posixpath.splitext(name)[0]: file for name, file in composed.items()}
        unique = {stem: file for stem, file in by_stem.items() if stems[stem] == 1}
        self.file_of = unique | composed | dict(zip(self.files, self.files, strict=True))

    def find(self, name: str) -> str:
        """Return the file that a name means; the name, with slashes, if there is none.

        An absolute name, or one from the current folder, may lead into the folder.
        """
        plain = PurePosixPath(name.replace("\\", "/")).as_posix()
        file = self._look_up([name if self.beside is None else f"{self.beside}/{plain}", plain])
        if file is not None or self.folder is None:
            return file or plain
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
        return self._look_up([*ends, _UPLOAD.sub("", parts[-1])]) or self.find(name)

    def _look_up(self, names: Iterable[str]) -> str | None:
        """Return the first image that has a name, or has it with another extension of images."""
        for name in names:
            composed = unicodedata.normalize("NFC", name)
            stem = posixpath.splitext(composed)[0] if FILE_NAME.fullmatch(name) else name
            for form in (name, composed, stem):
                if form in self.file_of:
                    return self.file_of[form]
        return None
