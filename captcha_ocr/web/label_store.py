"""The labels of a folder of images while a person writes them: on the disk before they are acknowledged.

`labels.csv` has the columns filename, text and split, as `prepare` reads them. An image that nobody can read has a row
without a text, so that it is not shown again.
"""

import csv
import os
import random
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from captcha_ocr.charset import standard_form
from captcha_ocr.config import MAX_LENGTH, Split
from captcha_ocr.data.images import find_images
from captcha_ocr.data.label_sources.file_names import FileNames
from captcha_ocr.data.label_sources.tables import Row, mark_text, read_table, read_text, to_csv
from captcha_ocr.data.labels import LABELS_FILE, TABLES, split_named
from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.system.files import write_atomic

HELD_OUT = 100  # images drawn at random before all others: half of them validate, half test
SHARE_HELD_OUT = 1 / 3  # of the images of a small folder
SEED = 0


def fits_table(file: str) -> bool:
    """Tell whether a table can name a file: not if it begins or ends with a blank, or has bytes that are no text."""
    return file == file.strip() and file.isprintable()


class Conflict(CaptchaOcrError):
    """A label was given for an image that changed meanwhile, by another tab or another program."""


@dataclass(frozen=True)
class Entry:
    """What is known of an image; text: None if it has no label yet, empty if nobody can read it.

    version: how often it changed.
    """

    file: str
    split: Split
    text: str | None = None
    version: int = 0


class LabelStore:
    """The images of a folder by number, in the order of their names, and their labels.

    The caller holds the lock of the folder (`writing_to`). answers: a table to write instead of the folder's
    labels.csv; then all images come in a random order. UsageError if the folder holds no images, or if the table has
    more than labels.
    """

    def __init__(self, folder: Path, answers: Path | None = None) -> None:
        files = find_images(folder).images
        check(bool(files), f"{folder} holds no images")
        hidden = next(
            (name for name in TABLES if name != LABELS_FILE and (folder / name).exists()), None
        )
        check(
            hidden is None or answers is not None,
            f"{folder} has labels in {hidden}: save them as {LABELS_FILE} first",
        )
        self.left_out = [file for file in files if not fits_table(file)]
        files = [file for file in files if fits_table(file)]
        self.folder, self.table, self.has_answers = (
            folder,
            answers or folder / LABELS_FILE,
            answers is not None,
        )
        held_out = self.held_out(len(files))
        self.first = (
            random.Random(SEED).sample(range(len(files)), len(files)) if answers else held_out
        )  # shown first
        split_of: dict[int, Split] = {
            number: ("val", "test")[place % 2] for place, number in enumerate(held_out)
        }
        self.entries = [
            Entry(file, split_of.get(number, "train")) for number, file in enumerate(files)
        ]
        self.number_of = {file: number for number, file in enumerate(files)}
        self.names = FileNames(folder, None, files)
        self.others: list[tuple[str, str, str]] = []  # rows of files that are no images here
        self.undoable: list[tuple[int, str | None, str]] = []  # image, text before and after
        self.stamp: tuple[int, int] | None = None
        self.lock = threading.Lock()  # of the table
        self.load()

    @staticmethod
    def held_out(count: int) -> list[int]:
        """Return the numbers of the images that validate and test, in a random order that depends on `count` alone."""
        return random.Random(SEED).sample(
            range(count), min(HELD_OUT, round(count * SHARE_HELD_OUT))
        )

    def load(self) -> None:
        """Read the table; UsageError if it has what would be lost."""
        stamp = self.stamp_of_table()
        rows = [] if stamp is None else self.read_rows()
        labels: dict[int, Row] = {}
        others = []
        for row in rows:
            number = self.number_of.get(self.names.find(row.filename))
            if number is None:
                others.append((row.filename, row.text, row.split))
                continue
            is_new = labels.setdefault(number, row).text == row.text
            check(is_new, f"{self.table} gives {row.filename} two texts; delete one of the rows")
        has_splits = any(split_named(row.split) in ("val", "test") for row in rows)
        for number, before in enumerate(self.entries):
            label = labels.get(number)
            text = None if label is None else label.text
            split = split_named(label.split) if label is not None and has_splits else None
            version = before.version + (text != before.text)
            self.entries[number] = Entry(before.file, split or before.split, text, version)
        self.others, self.stamp = others, stamp

    def read_rows(self) -> list[Row]:
        """Return the rows of the table; UsageError if it has other columns than filename, text and split."""
        header = next(csv.reader(read_text(self.table).splitlines()), [])
        fits = [name.strip().lower() for name in header] in (
            ["filename", "text"],
            ["filename", "text", "split"],
        )
        check(
            fits,
            f"{self.table} has other columns than filename,text,split: name it otherwise, and start again",
        )
        rows = read_table(self.table)
        for row in rows:
            check(row.problem is None, f"{self.table} row {row.number}: {row.problem}")
            fits = not row.split or split_named(row.split) is not None
            check(
                fits,
                f"{self.table} row {row.number}: split must be train, val or test, not {row.split!r}",
            )
        return rows

    def save(self, number: int, text: str, version: int) -> Entry:
        """Write the label of an image, empty if nobody can read it; on return it is on the disk.

        Conflict if the image changed since `version`, or another program changed the table. UsageError if the text
        cannot be a label. CaptchaOcrError if the disk is full: the older table is complete.
        """
        text = standard_form(text.strip())
        check(
            len(text) <= MAX_LENGTH and text.isprintable(),
            f"a label has at most {MAX_LENGTH} printable characters",
        )
        with self.lock:
            before = self.entry(number)
            if before.version != version:
                raise Conflict(f"{before.file} was labelled elsewhere meanwhile")
            entry = self.write(number, text)
            self.undoable.append((number, before.text, text))
        return entry

    def undo(self) -> Entry:
        """Take the last label back, and return its image; UsageError if there is none, Conflict if it has changed."""
        with self.lock:
            check(bool(self.undoable), "there is nothing to undo")
            number, text, written = self.undoable[-1]
            if self.entries[number].text != written:
                self.undoable.clear()  # what came before it may have changed, too
                raise Conflict(f"{self.entries[number].file} was labelled elsewhere meanwhile")
            entry = self.write(number, text)
            self.undoable.pop()
        return entry

    def entry(self, number: int) -> Entry:
        """Return what is known of an image; UsageError if there is no such number."""
        check(0 <= number < len(self.entries), f"there is no image {number}")
        return self.entries[number]

    def write(self, number: int, text: str | None) -> Entry:
        """Write the table with one text changed."""
        if self.stamp_of_table() != self.stamp:
            self.load()
            raise Conflict(f"another program changed {self.table}; it was read again")
        before = self.entries[number]
        changed = replace(before, text=text, version=before.version + 1)
        entries = [*self.entries[:number], changed, *self.entries[number + 1 :]]
        write_atomic(self.table, self.document(entries))
        self.entries, self.stamp = entries, self.stamp_of_table()
        return changed

    def document(self, entries: list[Entry]) -> bytes:
        """Return the table as CSV."""
        own = (
            (each.file, mark_text(each.text), each.split)
            for each in entries
            if each.text is not None
        )
        others = ((file, mark_text(text), split or "train") for file, text, split in self.others)
        return to_csv([("filename", "text", "split"), *own, *others]).encode()

    def stamp_of_table(self) -> tuple[int, int] | None:
        """Return what changes when another program writes the table: its time and inode; None if there is none."""
        try:
            status = os.stat(self.table)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.table} cannot be read: {error.strerror}") from None
        return status.st_mtime_ns, status.st_ino
