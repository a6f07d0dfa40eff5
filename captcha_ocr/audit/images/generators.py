"""What draws images for an audit: a design, a command, or a Python function.

Each draws as many as the audit needs, of any seed, with any levels of its knobs.
"""

import io
import json
import math
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from captcha_ocr.data.images import open_image
from captcha_ocr.data.label_sources.tables import to_csv
from captcha_ocr.data.labels import LABELS_FILE
from captcha_ocr.data.prepare import ProgressCallback
from captcha_ocr.errors import ImageError, UsageError, check
from captcha_ocr.generation import folder as generated
from captcha_ocr.generation.designs.design import Design, parse_design
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import remove_files, write_atomic
from captcha_ocr.system.processors import available_workers

MAX_FILE = 20_000_000  # bytes that a file of a generator may have
_IMAGE_S, _START_S = 1.0, 29.0  # seconds that an image may take, and a command besides
_FIRST_PART = 10  # images of the first command: few, so that a broken one is found at once
_PART = 100  # images of each further command
_FEWEST = 500  # images that are drawn, however long they take
_MARK = "CAPTCHA_OCR_AUDIT"  # in the environment of all that a command starts
_MAX_FAILED = 1 / 3  # of the images of a generator; with more failures it is refused
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_RESERVED = {"text", "out", "seed", "list", "folder", "levels"}  # placeholders that are no knobs

Levels = Mapping[str, Any]  # of knobs, by their names


@dataclass
class DesignGenerator:
    """Draws a design: a named one, or a TOML file. Its knobs are fields, such as text.spacing.

    charset, lengths: of the texts; None for what the design says. failures: images so far that were
    illegible and drawn again.
    """

    name: str
    charset: str | None = None
    lengths: Lengths | None = None
    failures: int = 0

    def check(self, levels: Levels) -> Design:
        """Return the design at these levels.

        UsageError for a knob that is no field of it, and for a value that the field cannot have.
        """
        options = DrawingOptions(design=self.name, charset=self.charset, lengths=self.lengths)
        document = plan_drawing(options).document
        check(bool(document), f"`design` {self.name} is many designs; an audit is of one")
        return parse_design(json.loads(document), self.name).with_fields(levels)

    def draw(
        self,
        folder: Path,
        images: int,
        seed: int,
        levels: Levels,
        show: ProgressCallback = lambda done, total: None,
        seconds: float = math.inf,
    ) -> None:
        """Draw images with `generate`, all of them: it is fast."""
        folder.mkdir(parents=True, exist_ok=True)
        design = folder.parent / f"{folder.name}-design.jsonl"
        write_atomic(design, json.dumps(self.check(levels).document).encode() + b"\n")
        options = DrawingOptions(count=images, design=str(design), seed=seed)
        self.failures += generated.generate(plan_drawing(options), folder, progress=show).redrawn


class _Row(NamedTuple):
    file: str
    text: str
    seed: int


@dataclass
class CommandGenerator:
    """Draws with a command, without a shell.

    It draws one image with {text} and {out}, or many with {list} and {folder}. words: with
    placeholders; {seed} is a number, and each knob has its name. {list} is a CSV file with the
    columns file, text and seed; the command writes each file into {folder}. field: the option that
    names it, `command` or `call`. failures: images so far that could not be drawn, and were drawn
    again with another text.
    """

    name: str
    words: tuple[str, ...]
    charset: str
    lengths: Lengths
    field: str = "command"
    failures: int = 0

    @classmethod
    def from_template(cls, template: str, charset: str, lengths: Lengths) -> "CommandGenerator":
        """Split a command into words as a shell does; UsageError if a placeholder is missing."""
        try:
            words = tuple(shlex.split(template))
        except ValueError as error:
            raise UsageError(
                f"`command` {template!r} cannot be split into words: {error}"
            ) from None
        names = set(_PLACEHOLDER.findall(template)) & _RESERVED - {"seed"}
        check(
            names in ({"text", "out"}, {"list", "folder"}),
            f"`command` {template!r} needs either {{text}} and {{out}} or {{list}} and {{folder}}",
        )
        return cls(template, words, charset, lengths)

    @classmethod
    def from_function(cls, place: str, charset: str, lengths: Lengths) -> "CommandGenerator":
        """Return a generator that calls a Python function in another process.

        place: `module:function`, of a function (text, seed, **knobs).
        """
        check(
            re.fullmatch(r"[\w.]+:\w+", place) is not None,
            f"`call` {place!r} is not module:function",
        )
        module = "captcha_ocr.audit.images.call_function"
        words = (sys.executable, "-m", module, place, "{list}", "{folder}", "{levels}")
        return cls(place, words, charset, lengths, "call")

    def check(self, levels: Levels) -> None:
        """Refuse a placeholder without a value: UsageError."""
        names = set(_PLACEHOLDER.findall(" ".join(self.words)))
        unknown = ", ".join(sorted(names - levels.keys() - _RESERVED))
        check(not unknown, f"`{self.field}` has {{{unknown}}}, which is no knob of `knobs`")

    def draw(
        self,
        folder: Path,
        images: int,
        seed: int,
        levels: Levels,
        show: ProgressCallback = lambda done, total: None,
        seconds: float = math.inf,
    ) -> None:
        """Write so many images and then labels.csv into a folder; fewer if they take more seconds.

        Images of the same seed have the same texts, as far as the levels allow. Nothing is drawn if
        labels.csv is there. UsageError if the command does not work.
        """
        if (folder / LABELS_FILE).exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        rows = self._rows(seed)
        drawn: list[_Row] = []
        failed, end = 0, time.monotonic() + seconds
        while len(drawn) < images and (len(drawn) < _FEWEST or time.monotonic() < end):
            part = _PART if drawn else _FIRST_PART
            todo = list(islice(rows, min(part, images - len(drawn))))
            reasons = self._draw_part(folder, todo, levels)
            drawn += [row for row in todo if row.file not in reasons]
            failed += len(reasons)
            tried = failed + len(drawn)
            show(len(drawn), images)
            if failed > _MAX_FAILED * tried:
                file, reason = next(iter(reasons.items()))
                raise UsageError(
                    f"`{self.field}` {self.name} failed for {failed} of {tried} images;"
                    f" {file}: {reason}"
                )
        table = to_csv([("filename", "text"), *((row.file, row.text) for row in drawn)])
        write_atomic(folder / LABELS_FILE, table.encode())
        self.failures += failed

    def _rows(self, seed: int) -> Iterator[_Row]:
        """Yield files with random texts, always the same ones for a seed."""
        rng = random.Random(f"texts-{seed}")
        for number in count():
            length = rng.randint(self.lengths.shortest, self.lengths.longest)
            text = "".join(rng.choices(self.charset, k=length))
            yield _Row(f"{number:06d}.png", text, seed * 1_000_000 + number)

    def _draw_part(self, folder: Path, rows: Sequence[_Row], levels: Levels) -> dict[str, str]:
        """Draw some images; return the reasons why files are missing or no images.

        Those files are removed.
        """
        groups = [[row] for row in rows]
        if any("{list}" in word for word in self.words):
            groups = [list(rows)]
        reasons: dict[str, str] = {}
        with ThreadPoolExecutor(available_workers()) as pool:
            try:
                for problems in pool.map(lambda group: self._call(folder, group, levels), groups):
                    reasons |= problems
            finally:  # after an error the end would wait for commands that hang
                pool.shutdown(wait=False, cancel_futures=True)
                _kill_started()
        remove_files(folder / file for file in reasons)
        return reasons

    def _call(self, folder: Path, rows: Sequence[_Row], levels: Levels) -> dict[str, str]:
        """Draw images with one command; return the reasons why files are missing or no images.

        Values take the places of their names: none becomes a word of its own.
        """
        with tempfile.TemporaryDirectory() as work:
            table = Path(work, "list.csv")
            table.write_text(to_csv([_Row._fields, *rows]), "utf-8")
            file, text, seed = rows[0]
            values = {"text": text, "out": folder / file, "seed": seed, "list": table}
            values |= {"folder": folder, "levels": json.dumps(dict(levels)), **levels}
            words = [
                _PLACEHOLDER.sub(lambda place: str(values.get(place[1], place[0])), word)
                for word in self.words
            ]
            failure = _run(words, _START_S + _IMAGE_S * len(rows))
        reasons = {}
        for row in rows:
            try:
                open_image(folder / row.file)
            except ImageError as error:
                reasons[row.file] = str(error) if (folder / row.file).exists() else failure
        return reasons


ImageGenerator = DesignGenerator | CommandGenerator


def _kill_started() -> None:
    """Kill what commands have started and what left their sessions, on Linux."""
    mark = f"{_MARK}={os.getpid()}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)


def _run(words: Sequence[str], seconds: float) -> str:
    """Run a command that may be broken; return why it may have failed.

    It may write no large files, where the system can do that. What it started is killed with it.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, _MARK: str(os.getpid())},
            )
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be started: {error.strerror}") from None
        try:
            if sys.platform == "linux":
                import resource  # Linux alone has prlimit

                with suppress(ProcessLookupError):
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"the command took more than {seconds:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(0, output.seek(0, io.SEEK_END) - 2000))
        last = output.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    if code == 0:
        return "the command wrote no such file"
    return last or f"the command ended with {code}"
