"""How eval prints what it has read."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from captcha_ocr.cli.reporting import escape
from captcha_ocr.cli.wording import with_flags, word_command
from captcha_ocr.errors import Command, ImageError, in_one_line

if TYPE_CHECKING:
    from captcha_ocr.inference.decoding import Reading

Result: TypeAlias = tuple[str, "Reading | ImageError"]
# Of the texts read with less confidence fewer than half are right, if the model knows the design.
UNSURE = 0.5


class Printer:
    """Prints results; it leaves out and counts the texts of readings with too little confidence."""

    def __init__(self, as_json: bool, min_confidence: float) -> None:
        self.as_json, self.min_confidence = as_json, min_confidence
        self.read = self.unread = self.unsure = 0
        self.models: Counter[str] = Counter()

    def accepts(self, reading: "Reading") -> bool:
        """Tell whether a reading is confident enough, and count it; call it once for each."""
        accepted = reading.confidence >= self.min_confidence
        self.read += accepted
        self.unread += not accepted
        self.unsure += reading.confidence < UNSURE
        self.models[reading.model] += accepted
        return accepted

    @property
    def is_unsure(self) -> bool:
        """Whether most images were read with little confidence."""
        return self.unsure > (self.read + self.unread) / 2

    def __call__(self, path: str, result: "Reading | ImageError") -> int:
        """Print one result; returns 1 for an error."""
        if isinstance(result, ImageError):
            return self.print_error(path, result)
        self.print_reading(path, result, self.accepts(result))
        return 0

    def print_all(self, results: Iterable[Result]) -> int:
        """Print results as they come; returns the number of errors."""
        return sum(self(path, result) for path, result in results)

    def print_reading(self, path: str, reading: "Reading", accepted: bool) -> None:
        """Print one reading, without its text unless it is accepted."""
        if not self.as_json:
            text = reading.text if accepted else ""
            click.echo(f"{escape(path)}\t{text}\t{reading.confidence:.4f}")
            return
        row: dict[str, Any] = {"path": path, "text": None, "confidence": reading.confidence}
        row |= {"characters": None, "model": reading.model or None}
        if accepted:
            row["text"] = reading.text
            row["characters"] = list(map(asdict, reading.characters))
        click.echo(json.dumps(row, ensure_ascii=False))

    def print_error(self, path: str, error: ImageError) -> int:
        """Print an error, in plain output to stderr; returns 1."""
        reason = with_flags(str(error).removeprefix(in_one_line(f"{path}: ")))
        if os.path.isdir(path):  # the images of a folder that has some come one by one
            reason = "the folder holds no images"
        if self.as_json:
            click.echo(json.dumps({"path": path, "error": reason}, ensure_ascii=False))
        else:
            click.echo(f"{escape(path)}: {reason}", err=True)
        return 1

    def print_models(self) -> None:
        """Print how many images each of the models in the package has read."""
        counts = ", ".join(
            f"{model} {count:,}" for model, count in sorted(self.models.items()) if model and count
        )
        if counts:
            click.echo(f"read by    {counts}", err=True)

    def print_counts(self) -> None:
        """Print how many images --min-confidence left unread."""
        if self.min_confidence:
            counts = f"{self.unread:,} of {self.read + self.unread:,}"
            below = f"with a confidence below {self.min_confidence:g}"
            click.echo(f"{counts} left unread, {below}", err=True)


def what_to_do(paths: tuple[str, ...], labels: Path | None, is_narrowed: bool) -> str:
    """Say how to get a model for images of which the one in the package is not sure.

    labels: a table of their labels. is_narrowed: whether reading was told characters or lengths.
    """
    from captcha_ocr.data.labels import LABELS_FILE

    images = next(filter(os.path.isdir, paths), str(labels.parent) if labels else "IMAGES")
    table = os.path.join(images, LABELS_FILE)
    first = "Train on" if is_narrowed else "Say what to expect (--charset, --length), or train on"
    options: dict[str, object] = {}
    if labels is not None and os.path.realpath(labels) != os.path.realpath(table):
        options["labels"] = labels
    preparation = word_command(Command("prepare", (images,), options))
    commands = [preparation, word_command(Command("train"))]
    if labels or os.path.exists(table):
        what = "these labels"
    else:
        draft = word_command(Command("eval", (images,), {"out": table}))
        commands.insert(0, f"{draft} (correct its texts, delete its column confidence)")
        what = "fifty labels or more"
    why = f"most confidences are below {UNSURE:g}: the model may not know this kind of image"
    return f"not sure   {why}. {first} {what}: {', '.join(commands)}"


def print_table(results: Iterable[Result], printer: Printer, out: Path | None = None) -> int:
    """Print results as CSV, or write them to `out`, the least confident first.

    Return the number of errors.
    """
    from captcha_ocr.data.label_sources.tables import mark_text, to_csv
    from captcha_ocr.system.files import write_atomic

    failed, rows = 0, []
    for path, result in results:
        if isinstance(result, ImageError):
            failed += printer.print_error(path, result)
        else:
            rows.append((path, result.text if printer.accepts(result) else "", result.confidence))
    rows.sort(key=lambda row: row[2])
    lines = ((path, mark_text(text), f"{confidence:.4f}") for path, text, confidence in rows)
    table = to_csv([("filename", "text", "confidence"), *lines])
    if out is None:
        click.echo(table, nl=False)
        return failed
    write_atomic(out, table.encode("utf-8", "surrogateescape"))
    to_do = "; correct them, then delete the column confidence"
    click.echo(
        f"{out}: {len(rows):,} readings, least confident first{to_do if rows else ''}", err=True
    )
    return failed
