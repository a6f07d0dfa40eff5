"""Where the images of an audit come from: a labelled folder, a design, a command, or a Python function.

What is not a folder draws images for the audit: as many as it needs, of any seed, with any levels of its knobs.
"""

import io
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

from captcha_ocr.config import Lengths
from captcha_ocr.data.images import open_image
from captcha_ocr.data.label_sources.tables import to_csv
from captcha_ocr.data.labels import LABELS_FILE
from captcha_ocr.errors import ImageError, UsageError, check
from captcha_ocr.generation import folder as generated
from captcha_ocr.generation.designs.design import Design, parse_design
from captcha_ocr.generation.options import DrawingOptions
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.system.files import remove_files, write_atomic
from captcha_ocr.system.parallel import available_workers

ONE_S, START_S = 1.0, 29.0  # seconds that an image may take, and a command besides
FIRST_PART, PART = (
    10,
    100,
)  # images of one command; few at first, so that a broken one is found at once
MAX_FAILED = 1 / 3  # of the images of a generator; with more failures it is refused
MAX_FILE = 20_000_000  # bytes that a file of a generator may have
PLACEHOLDER = re.compile(r"\{(\w+)\}")
OWN = ("text", "out", "seed", "list", "folder", "levels")
DESIGN_FILE = "design.jsonl"

Levels = Mapping[str, Any]  # of knobs, by their names


class Source(Protocol):
    """Draws labelled images."""

    @property
    def name(self) -> str:
        """How a user calls it."""

    @property
    def charset(self) -> str | None:
        """The characters of the texts; None for those of the source."""

    @property
    def lengths(self) -> Lengths | None:
        """How many characters a text has; None for what the source says."""

    @property
    def definition(self) -> Path | None:
        """A file that may say how to draw."""

    def check(self, levels: Levels) -> None:
        """Refuse levels of knobs that cannot be drawn, as far as that can be told without drawing: UsageError."""

    def draw(self, folder: Path, images: int, seed: int, levels: Levels) -> int:
        """Write so many images and then labels.csv into a folder; return how many failed and were drawn again.

        Images of the same seed have the same texts, whatever the levels, as far as the levels allow. Nothing is drawn
        if labels.csv is there. UsageError if the source does not work.
        """


@dataclass(frozen=True)
class DesignSource:
    """Draws a design of ours: a named one, or a TOML file. Its knobs are fields, such as text.spacing."""

    name: str
    charset: str | None = None
    lengths: Lengths | None = None

    @property
    def definition(self) -> Path:
        """The design, if it is a file."""
        return Path(self.name)

    def check(self, levels: Levels) -> None:
        """Refuse what is no field of the design, and a value that the field cannot have."""
        self._with_levels(levels)

    def _with_levels(self, levels: Levels) -> Design:
        options = DrawingOptions(design=self.name, charset=self.charset, lengths=self.lengths)
        document = json.loads(plan_drawing(options).document)
        return parse_design(document, self.name).with_fields(levels)

    def draw(self, folder: Path, images: int, seed: int, levels: Levels) -> int:
        """Draw images with `generate`."""
        folder.mkdir(parents=True, exist_ok=True)
        design = folder.parent / f"{folder.name}-{DESIGN_FILE}"
        write_atomic(design, json.dumps(self._with_levels(levels).document).encode() + b"\n")
        options = DrawingOptions(count=images, design=str(design), seed=seed)
        return generated.generate(plan_drawing(options), folder).redrawn


@dataclass(frozen=True)
class CommandSource:
    """Draws with a command, without a shell: one image with {text} and {out}, or many with {list} and {folder}.

    words: with placeholders; {seed} is a number, and each knob has its name. {list} is a CSV file with the columns
    file, text and seed; the command writes each file into {folder}. option: how the user named it, for messages.
    """

    name: str
    words: tuple[str, ...]
    charset: str
    lengths: Lengths
    option: str = "--command"

    @classmethod
    def from_template(cls, template: str, charset: str, lengths: Lengths) -> "CommandSource":
        """Split a command as a shell does; UsageError if a placeholder is missing."""
        try:
            words = tuple(shlex.split(template))
        except ValueError as error:
            raise UsageError(
                f"--command {template!r} cannot be split into words: {error}"
            ) from None
        names = set(PLACEHOLDER.findall(template))
        fits = names & {*OWN} - {"seed"} in ({"text", "out"}, {"list", "folder"})
        check(
            fits and bool(words),
            f"--command {template!r} needs either {{text}} and {{out}} or {{list}} and {{folder}}",
        )
        return cls(template, words, charset, lengths)

    @classmethod
    def from_function(cls, place: str, charset: str, lengths: Lengths) -> "CommandSource":
        """Return a source that calls a Python function, `module:function(text, seed, **knobs)`, in another process."""
        check(
            re.fullmatch(r"[\w.]+:\w+", place) is not None,
            f"--call {place!r} is not module:function",
        )
        words = (
            sys.executable,
            "-m",
            "captcha_ocr.audit.caller",
            place,
            "{list}",
            "{folder}",
            "{levels}",
        )
        return cls(place, words, charset, lengths, "--call")

    @property
    def definition(self) -> Path | None:
        """The file of a Python function, if it is in this folder."""
        module = self.name.partition(":")[0]
        return Path(*module.split(".")).with_suffix(".py") if self.option == "--call" else None

    @property
    def takes_many(self) -> bool:
        """Whether one command draws many images."""
        return any("{list}" in word for word in self.words)

    def draw(self, folder: Path, images: int, seed: int, levels: Levels) -> int:
        """Draw images, those that fail again with another text."""
        if (folder / LABELS_FILE).exists():
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        texts = (
            (f"{number:06d}.png", text)
            for number, text in zip(count(), self.texts(seed), strict=False)
        )
        rows: list[tuple[str, str]] = []
        failed = 0
        while len(rows) < images:
            part = list(islice(texts, min(PART if rows else FIRST_PART, images - len(rows))))
            reasons = self.draw_part(folder, part, seed, levels)
            rows += [row for row in part if row[0] not in reasons]
            failed += len(reasons)
            if failed > MAX_FAILED * (failed + len(rows)):
                file, reason = next(iter(reasons.items()))
                whole = f"{failed} of {failed + len(rows)} images"
                raise UsageError(f"{self.option} {self.name} failed for {whole}; {file}: {reason}")
        write_table(folder / LABELS_FILE, ("filename", "text"), rows)
        return failed

    def check(self, levels: Levels) -> None:
        """Refuse a placeholder without a value: UsageError."""
        names = {name for word in self.words for name in PLACEHOLDER.findall(word)}
        unknown = sorted(names - levels.keys() - {*OWN})
        check(
            not unknown, f"{self.option} has {{{', '.join(unknown)}}}, which is no knob of --knobs"
        )

    def texts(self, seed: int) -> Iterator[str]:
        """Yield random texts, always the same ones for a seed."""
        rng = random.Random(f"texts-{seed}")
        while True:
            length = rng.randint(self.lengths.shortest, self.lengths.longest)
            yield "".join(rng.choices(self.charset, k=length))

    def draw_part(
        self, folder: Path, part: Sequence[tuple[str, str]], seed: int, levels: Levels
    ) -> dict[str, str]:
        """Draw some images; return the reasons why files are missing or no images. Those are removed."""
        rows = [(file, text, image_seed(seed, file)) for file, text in part]
        if self.takes_many:
            failures = [self.draw_many(folder, rows, levels)] * len(rows)
        else:
            with ThreadPoolExecutor(available_workers()) as pool:
                failures = list(pool.map(lambda row: self.draw_one(folder, row, levels), rows))
        reasons = {}
        for (file, _, _), failure in zip(rows, failures, strict=True):
            reason = reason_against(folder / file, failure)
            if reason is not None:
                reasons[file] = reason
        remove_files(folder / file for file in reasons)
        return reasons

    def draw_one(self, folder: Path, row: tuple[str, str, int], levels: Levels) -> str:
        """Draw one image; return why the command failed, or nothing."""
        file, text, seed = row
        return run(
            self.fill_in({"text": text, "out": str(folder / file), "seed": seed, **levels}),
            START_S + ONE_S,
        )

    def draw_many(self, folder: Path, rows: Sequence[tuple[str, str, int]], levels: Levels) -> str:
        """Draw many images; return why the command failed, or nothing."""
        with tempfile.TemporaryDirectory() as work:
            table = Path(work, "list.csv")
            write_table(table, ("file", "text", "seed"), rows)
            values = {"list": str(table), "folder": str(folder), "levels": json.dumps(dict(levels))}
            return run(
                self.fill_in({**values, "seed": rows[0][2], **levels}), START_S + ONE_S * len(rows)
            )

    def fill_in(self, values: Mapping[str, Any]) -> list[str]:
        """Return the words of the command with the values in their places: a value never becomes a word of its own."""
        return [
            PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), word)
            for word in self.words
        ]


def image_seed(seed: int, file: str) -> int:
    """Return the seed of an image, which depends on that of all images and on its number."""
    return seed * 1_000_000 + int(file.partition(".")[0])


def reason_against(path: Path, failure: str) -> str | None:
    """Return why a file of a generator cannot be used; None if it can. failure: why the command failed, if it did."""
    if not path.exists():
        return failure or "the command wrote no such file"
    try:
        open_image(path)
    except ImageError as error:
        return str(error)
    return None


def run(words: Sequence[str], seconds: float) -> str:
    """Run a command that may be broken; return why it failed, or nothing. What it started is killed with it."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be started: {error.strerror}") from None
        try:
            limit_files(process.pid)
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"the command took more than {seconds:.0f} s"
        finally:
            kill_group(process)
        output.seek(0, io.SEEK_END)
        output.seek(max(0, output.tell() - 2000))
        last = output.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    return "" if code == 0 else last or f"the command ended with {code}"


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command and what it left behind."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:  # Windows
            process.kill()
    process.wait()


def limit_files(pid: int) -> None:
    """Let a process that begins write no large files, where the system can do that."""
    if sys.platform == "linux":
        import resource

        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table as CSV."""
    write_atomic(path, to_csv([header, *rows]).encode())
