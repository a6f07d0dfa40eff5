"""The labels of a folder while a person writes them: on the disk before they are acknowledged.

`labels.csv` has the columns filename, text and split, as `prepare` reads them. An image that nobody
can read has a row without a text, so that it is not shown again. A table that is a symbolic link
stays one: what it leads to is written.
"""

import csv
import os
import random
import threading
import time
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from captcha_ocr.charset import standard_form
from captcha_ocr.data.images import find_images
from captcha_ocr.data.label_sources.tables import FileNames, Row, mark_text, read_table, to_csv
from captcha_ocr.data.labels import LABELS_FILE, TABLES, split_named
from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.options.model import MAX_LENGTH
from captcha_ocr.options.preparation import Split
from captcha_ocr.system.files import read_text, write_atomic

SEED = 0
SHARE_HELD_OUT = 5  # one image of so many is drawn at random, and no model learns from it,
_MOST_HELD_OUT = 100  # up to so many: half test, half validate
_SETTLING_S = 1.0  # a table that changed later than that may be half written
_COLUMNS = ("filename", "text", "split")


class Conflict(CaptchaOcrError):
    """A label was given for an image that another tab or another program changed meanwhile."""


@dataclass(frozen=True)
class Entry:
    """What is known of an image; text: None if it has no label yet, empty if nobody can read it.

    version: how often it changed.
    """

    number: int
    file: str
    split: Split
    text: str | None = None
    version: int = 0


class LabelStore:
    """The images of a folder by number, in the order of their names, and their labels.

    The caller holds the lock of the folder (`writing_to`). answers: a table to write instead of
    the folder's labels.csv. drawn: the numbers of all images, in a random order. UsageError if the
    folder holds no images, or if the table has more than labels.
    """

    def __init__(self, folder: Path, answers: Path | None = None) -> None:
        names = find_images(folder).images
        check(bool(names), f"{folder} holds no images")
        self.is_blind = answers is not None
        for name in TABLES:
            is_hidden = name != LABELS_FILE and answers is None and (folder / name).exists()
            check(not is_hidden, f"{folder} has labels in {name}: save them as {LABELS_FILE} first")
        # A table can name a file without blanks at its ends, and with bytes that are text.
        files = [name for name in names if name == name.strip() and name.isprintable()]
        self.left_out = sorted({*names}.difference(files))
        table = answers or folder / LABELS_FILE
        self.folder = folder
        self.table = Path(os.path.realpath(table)) if table.is_symlink() else table
        self.drawn = random.Random(SEED).sample(range(len(files)), len(files))
        held_out = self.drawn[::SHARE_HELD_OUT][:_MOST_HELD_OUT]
        splits: dict[int, Split] = dict(zip(held_out, cycle(("test", "val"))))
        self.entries = [
            Entry(number, file, splits.get(number, "train")) for number, file in enumerate(files)
        ]
        self.other_rows: list[tuple[str, str, str]] = []  # of files that are no images here
        self.undoable: list[tuple[int, str | None, str]] = []  # image, text before and after
        self.stamp: tuple[int, ...] | None = None
        self.lock = threading.Lock()  # of the table
        self._load()

    def entry(self, number: int) -> Entry:
        """Return what is known of an image; UsageError if there is no such number."""
        check(0 <= number < len(self.entries), f"there is no image {number}")
        return self.entries[number]

    def save(self, number: int, text: str, version: int) -> Entry:
        """Write the label of an image, empty if nobody can read it; on return it is on the disk.

        Conflict if the image changed since `version`, or another program changed the table.
        UsageError if the text cannot be a label. CaptchaOcrError if the disk is full: the older
        table is complete.
        """
        text = standard_form(text.strip())
        check(
            len(text) <= MAX_LENGTH and text.isprintable(),
            f"a label has at most {MAX_LENGTH} printable characters",
        )
        with self.lock:
            before = self.entry(number)
            check(
                before.version == version,
                f"{before.file} was labelled elsewhere meanwhile",
                Conflict,
            )
            entry = self._write(number, text)
            self.undoable.append((number, before.text, text))
        return entry

    def undo(self) -> Entry:
        """Take the last label back, and return its image.

        UsageError if there is none, Conflict if it has changed.
        """
        with self.lock:
            check(bool(self.undoable), "there is nothing to undo")
            number, text, written = self.undoable[-1]
            if self.entries[number].text != written:
                self.undoable.clear()  # what came before it may have changed, too
                raise Conflict(f"{self.entries[number].file} was labelled elsewhere meanwhile")
            entry = self._write(number, text)
            self.undoable.pop()
        return entry

    def format_table(self, entries: list[Entry]) -> bytes:
        """Return the table of these entries as CSV."""
        rows = [
            (entry.file, mark_text(entry.text), entry.split)
            for entry in entries
            if entry.text is not None
        ]
        return to_csv([_COLUMNS, *rows, *self.other_rows]).encode()

    def _write(self, number: int, text: str | None) -> Entry:
        self._check_unchanged()
        before = self.entries[number]
        entry = replace(before, text=text, version=before.version + 1)
        entries = [*self.entries[:number], entry, *self.entries[number + 1 :]]
        table = self.format_table(entries)
        write_atomic(self.table, table, confirm=self._check_unchanged)
        stamp = self._read_stamp()
        # What another program has appended since is read before the next label
        self.stamp = stamp if stamp is not None and stamp[-1] == len(table) else None
        self.entries = entries
        return entry

    def _check_unchanged(self) -> None:
        """Raise Conflict if another program changed the table, and read it once it is settled."""
        stamp = self._read_stamp()
        if stamp == self.stamp:
            return
        age_s = _SETTLING_S if stamp is None else time.time() - stamp[0] / 1e9
        check(
            not 0 <= age_s < _SETTLING_S,
            f"another program is writing {self.table}; save again in a moment",
            Conflict,
        )
        self._load()
        raise Conflict(f"another program changed {self.table}; it was read again")

    def _load(self) -> None:
        """Read the table; UsageError if it has what would be lost."""
        stamp, rows = self._read_stamp(), []
        if stamp is not None:
            header = next(csv.reader(read_text(self.table).splitlines()), [])
            columns = tuple(name.strip().lower() for name in header)
            check(
                columns in ((), _COLUMNS[:2], _COLUMNS),
                f"{self.table} has other columns than filename,text,split: name it otherwise, "
                "and start again",
            )
            rows = read_table(self.table) if columns else []
        names = FileNames(self.folder, None, [entry.file for entry in self.entries])
        labels: dict[str, Row] = {}
        other_rows = []
        for row in rows:
            place = f"{self.table} row {row.number}"
            check(row.problem is None, f"{place}: {row.problem}")
            is_split = not row.split or split_named(row.split) is not None
            check(is_split, f"{place}: split must be train, val or test, not {row.split!r}")
            file = names.find(row.filename)
            if file not in names.files:
                other_rows.append((row.filename, mark_text(row.text), row.split or "train"))
                continue
            is_new = labels.setdefault(file, row).text == row.text
            check(is_new, f"{self.table} gives {row.filename} two texts; delete one of the rows")
        has_splits = any(split_named(row.split) in ("val", "test") for row in rows)
        for number, before in enumerate(self.entries):
            text, split = None, before.split
            if before.file in labels:
                text = labels[before.file].text
                if has_splits:
                    split = split_named(labels[before.file].split) or split
            version = before.version + (text != before.text)
            self.entries[number] = Entry(number, before.file, split, text, version)
        self.other_rows, self.stamp = other_rows, stamp

    def _read_stamp(self) -> tuple[int, ...] | None:
        """Return what changes when another program writes the table; None if there is no table.

        It is the time of the last change, in ns, the inode and the size.
        """
        try:
            status = os.stat(self.table)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.table} cannot be read: {error.strerror}") from None
        return status.st_mtime_ns, status.st_ino, status.st_size
