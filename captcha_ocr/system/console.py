"""Lines for people, and progress on stderr: a bar on a terminal, a line every half minute
elsewhere.
"""

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

_PROGRAM = "captcha-ocr"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_MAX_NAMED = 3  # files with the same reason; the others are counted
_SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_NOTES = 0.5


def say(line: str, quiet: bool = False) -> None:
    """Write one line to stderr, above the progress bar if there is one, unless `quiet` is set."""
    if not quiet and sys.stderr is not None:
        from tqdm import tqdm  # a reader is installed without it

        tqdm.write(line, file=sys.stderr)


def command_line(*words: str) -> str:
    """Return a command of this program that works as it stands in a shell in this folder.

    It starts with the program's name, or with the path by which the program was started if its name
    starts none or another. After `make`, for example, it is only in `.venv/bin`.
    """
    program = sys.argv[0]
    started, named = shutil.which(program), shutil.which(_PROGRAM)
    is_named = started is not None and named is not None and os.path.samefile(started, named)
    if started is None or Path(program).name != _PROGRAM or is_named:
        program = _PROGRAM
    return shlex.join([program, *words])


def duration(seconds: float) -> str:
    """Format seconds: `42 s`, `6 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def counted(number: int, noun: str) -> str:
    """Format a number and its noun: `1 epoch`, `2 epochs`, `1,000 processes`."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


class Table:
    """The form of every table: the names of its columns in one line, then rows.

    All is flush right.
    """

    def __init__(self, widths: dict[str, int]) -> None:
        self.widths = widths

    @property
    def header(self) -> str:
        """The names of the columns."""
        return self.row(*self.widths)

    def row(self, *cells: object) -> str:
        """Format one row."""
        return "".join(
            f"{cell!s:>{width}}" for cell, width in zip(cells, self.widths.values(), strict=True)
        ).rstrip()


def in_groups(problems: Mapping[str, str]) -> list[str]:
    """Describe why files are left out, one line for each reason: its first files and their number.

    Reasons that differ in what they quote are one; the first is shown.
    """
    groups: dict[str, tuple[str, list[str]]] = {}
    for file, reason in sorted(problems.items()):
        groups.setdefault(_QUOTED.sub("", reason), (reason, []))[1].append(file)
    lines = []
    for reason, files in sorted(groups.values(), key=lambda group: -len(group[1])):
        named = ", ".join(files[:_MAX_NAMED])
        if len(files) > _MAX_NAMED:
            named += f" and {len(files) - _MAX_NAMED:,} more"
        lines.append(f"{named}: {reason}")
    return lines


def count_kinds(kinds: Mapping[str, int]) -> str:
    """Describe kinds with their number."""
    return ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """The progress of some work on images: `show` prints the count, `note` a text beside it."""

    def __init__(self, name: str, quiet: bool = False) -> None:
        self.name, self.quiet, self.text = name, quiet, ""
        self.started = self.last_line = self.last_note = time.monotonic()
        # Images done at the first `show`, which do not count in the rate
        self.first: int | None = None
        self.bar: Any = None

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, done: int, total: int) -> None:
        """Show that `done` of `total` images are done."""
        if self.quiet or sys.stderr is None:
            return
        if self.first is None:
            self.first, self.started = done, time.monotonic()
        if sys.stderr.isatty():
            if self.bar is None:
                from tqdm import tqdm

                self.bar = tqdm(
                    desc=self.name,
                    initial=done,
                    total=total,
                    unit=" images",
                    leave=False,
                    file=sys.stderr,
                    dynamic_ncols=True,
                )
            self.bar.update(done - self.bar.n)
        elif done > self.first and time.monotonic() - self.last_line > _SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            rate = (done - self.first) / (self.last_line - self.started)
            left = f"{rate:,.0f} images/s, {duration((total - done) / rate)} left"
            say(f"{self.name}: {done:,} of {total:,}, {left} {self.text}".rstrip())

    def note(self, text: object) -> None:
        """Show the text of an object beside the bar, or in the next line.

        Not too often, since that of metrics makes a device wait.
        """
        now = time.monotonic()
        if self.quiet or now - self.last_note < SECONDS_BETWEEN_NOTES:
            return
        self.last_note, self.text = now, str(text)
        if self.bar is not None:
            self.bar.set_postfix_str(self.text, refresh=False)
