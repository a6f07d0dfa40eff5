"""How eval prints what it has read, and the labels that it scores its readings against."""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from captcha_ocr.charset import shorten, split_characters
from captcha_ocr.cli.wording import escape, note, with_flags, word_command
from captcha_ocr.errors import Advice, CaptchaOcrError, Command, ImageError, UsageError, in_one_line
from captcha_ocr.options.adapting import FEWEST_IMAGES
from captcha_ocr.options.declaration import words
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.system.console import in_groups
from captcha_ocr.system.files import write_atomic

if TYPE_CHECKING:
    from captcha_ocr.data.labels import Label, Problems
    from captcha_ocr.inference.decoding import Decoder, Reading
    from captcha_ocr.recognizer import Recognizer

Result: TypeAlias = tuple[str, "Reading | ImageError"]
# Of the texts read with less confidence fewer than half are right, if the model knows the design.
_UNSURE = 0.5
_LEAST_LENGTH = 2  # of a text; what is no captcha is often read as one character
_MAX_DOUBTED = 100  # images that are looked at for a reason


class Printer:
    """Prints results, and counts them and the errors.

    It leaves out the texts of readings with too little confidence. options: which those are, and
    whether results of sums are printed.
    """

    def __init__(self, as_json: bool, options: ReadingOptions, decoder: "Decoder") -> None:
        from captcha_ocr.inference.traits import Tally

        self.as_json, self.decoder = as_json, decoder
        self.min_confidence, self.solve_sums = options.min_confidence, options.solve_sums
        self.total = self.unread = self.unsure = self.short = self.failed = 0
        self.tally = Tally(decoder.characters)

    def accept(self, path: str, reading: "Reading") -> "Reading":
        """Count a reading, once, and return it without its text if it is not confident enough."""
        self.total += 1
        self.unsure += reading.confidence < _UNSURE
        self.short += len(reading.characters) < _LEAST_LENGTH
        self.tally.add(reading, path)
        if reading.confidence < self.min_confidence:
            self.unread += 1
            return replace(reading, text="", characters=())
        return reading

    def accept_all(self, results: Iterable[Result]) -> "Iterator[tuple[str, Reading]]":
        """Yield what `accept` returns for each image that can be read; print the errors."""
        for path, result in results:
            if isinstance(result, ImageError):
                self.print_error(path, result)
            else:
                yield path, self.accept(path, result)

    @property
    def is_unsure(self) -> bool:
        """Whether most images were read with little confidence."""
        return self.unsure > self.total / 2

    def find_doubts(self) -> tuple[str, ...]:
        """Return what most images are not fit for, if little was read of them."""
        from captcha_ocr.data.images import survey

        if max(self.unsure, self.short) <= self.total / 2:
            return ()
        images = chain.from_iterable(self.tally.examples.values())
        return survey(islice(images, _MAX_DOUBTED)).doubts

    def print_all(self, results: Iterable[Result]) -> None:
        """Print results as they come."""
        for path, reading in self.accept_all(results):
            self.print_reading(path, reading)

    def print_table(self, results: Iterable[Result], out: Path | None = None) -> None:
        """Print results as CSV, or write them to `out`, the least confident first."""
        from captcha_ocr.data.label_sources.tables import readings_to_csv

        rows = [
            (path, reading.text, reading.confidence, *self._columns_beside(reading))
            for path, reading in self.accept_all(results)
        ]
        table = readings_to_csv(rows, ["result"] * self.solve_sums)
        if out is None:
            click.echo(table, nl=False)
            return
        write_atomic(out, table.encode("utf-8", "surrogateescape"))
        to_do = "; correct them, then delete the column confidence" if rows else ""
        click.echo(f"{out}: {len(rows):,} readings, least confident first{to_do}", err=True)

    def print_reading(self, path: str, reading: "Reading") -> None:
        """Print one reading."""
        if not self.as_json:
            columns = reading.text, f"{reading.confidence:.4f}", *self._columns_beside(reading)
            click.echo("\t".join([escape(path), *columns]))
            return
        row = {
            "path": path,
            "text": reading.text or None,
            "confidence": reading.confidence,
            "characters": list(map(asdict, reading.characters)) or None,
        }
        if self.solve_sums:
            row["result"] = reading.result
        click.echo(json.dumps(row, ensure_ascii=False))

    def _columns_beside(self, reading: "Reading") -> list[str]:
        """Return the columns after the confidence: the result of a sum, if results are wanted."""
        result = reading.result if self.solve_sums else None
        return ["" if result is None else str(result)] * self.solve_sums

    def print_error(self, path: str, error: ImageError) -> None:
        """Print an error, in plain output to stderr."""
        self.failed += 1
        reason = with_flags(str(error).removeprefix(in_one_line(f"{path}: ")))
        if os.path.isdir(path):  # the images of a folder that has some come one by one
            reason = "the folder holds no images"
        if self.as_json:
            click.echo(json.dumps({"path": path, "error": reason}, ensure_ascii=False))
        else:
            click.echo(f"{escape(path)}: {reason}", err=True)

    def print_counts(self) -> None:
        """Print how many images --min-confidence left unread."""
        if self.min_confidence:
            counts = f"{self.unread:,} of {self.total:,} left unread"
            click.echo(f"{counts}, with a confidence below {self.min_confidence:g}", err=True)

    def print_traits(self, recognizer: "Recognizer", given: ReadingOptions) -> None:
        """Print what most of the texts have in common, and the options that read only such texts.

        Nothing if they are too few or too short to tell, or no others could be read.
        """
        from captcha_ocr.data.images import describe_mixture
        from captcha_ocr.inference.traits import ANY_FORM

        traits, options = self.tally.find_traits(), dict[str, object]()
        if traits is None or traits.lengths.longest < _LEAST_LENGTH:
            return
        mixture = describe_mixture(chain.from_iterable(self.tally.examples.values()))
        if mixture:
            note(f"mixed      {mixture}")
        lengths = recognizer.fitted_by(self.tally).decoder.lengths
        if given.lengths is None and lengths != self.decoder.lengths:
            options["lengths"] = lengths
        if given.charset is None and set(traits.charset) < self.decoder.characters:
            options |= {"charset": traits.charset, "fold_case": traits.fold_case}
        if options:
            part = self.tally.measure_fit(replace(traits, lengths=lengths))
            kind = "texts" if self.tally.find_form() == ANY_FORM else "sums"
            note(
                f"in common  {kind} of {lengths} of the characters {shorten(traits.charset)}, "
                f"{part:.0%} of what was read; to read only such: {shlex.join(words(options))}"
            )


def what_to_do(paths: tuple[str, ...], labels: Path | None, reading: ReadingOptions) -> str:
    """Say how to get a model for images of which the one in the package is not sure.

    labels: a table of their labels, or the folder that has them.
    """
    from captcha_ocr.data.labels import LABELS_FILE, find_labels

    folders = [*filter(os.path.isdir, (*paths, labels or ""))]
    images = folders[0] if folders else str(labels.parent if labels else "IMAGES")
    table = labels if labels is not None and labels.is_file() else None
    what, commands = "label some", [Command("label", (images,))]
    with suppress(CaptchaOcrError):
        found = find_labels(Path(images), table)
        if len(found.images) >= FEWEST_IMAGES:
            what = f"adapt a model to these images, or {what}"
            commands.insert(0, Command("adapt", (images,)))
        if (labels or found.has_table) and len(found.labels) > found.readings:
            usual = os.path.realpath(os.path.join(images, LABELS_FILE))
            is_other = table is not None and os.path.realpath(table) != usual
            options: dict[str, object] = {"labels": table} if is_other else {}
            what = "train on these labels"
            commands = [Command("prepare", (images,), options), Command("train")]
    if reading.charset is None and reading.lengths is None:
        what = f"say what to expect (--charset, --length), or {what}"
    why = f"most confidences are below {_UNSURE:g}: the model may not know this kind of image"
    return f"not sure   {why}; {what}: {', '.join(map(word_command, commands))}"


def warn_of_unreadable(config: ModelConfig, truths: list[str]) -> None:
    """Print how many labels the model can never read, for their length or their characters."""
    charset, lengths = config.charset, config.lengths
    readable = sum(
        len(split_characters(text)) in lengths and not charset.unknown_characters(text)
        for text in truths
    )
    if readable < len(truths):
        counts = f"{len(truths) - readable:,} of {len(truths):,} labels are always counted as wrong"
        known = f"texts of {lengths} of the characters {charset}"
        click.echo(f"{counts}: this model reads {known}", err=True)


def labels_to_score(
    labels_file: Path, folders: Iterable[Path], told: ReadingOptions
) -> "tuple[Path, list[Label], Problems]":
    """Read a labels file whose names are relative to one of these folders, or a labelled folder.

    It is the first that has most of the images. told: its characters and lengths decide which part
    of a file name is the text. Return the folder, the labels, and why rows are left out.
    UsageError if no folder has any of the images.
    """
    from captcha_ocr.data.images import find_images
    from captcha_ocr.data.labels import find_labels, read_labels

    if labels_file.is_dir():
        config = PrepareConfig(charset=told.charset, lengths=told.lengths)
        return labels_file, find_labels(labels_file, config=config).check().labels, {}
    tried: list[tuple[int, Path, list[Label], Problems]] = []
    for folder in dict.fromkeys(folders):
        rows, problems = read_labels(labels_file, folder, find_images(folder).images)
        here = sum((folder / row.file).exists() for row in rows)
        tried.append((here, folder, rows, problems))
        if here == len(rows) and not problems:
            break  # no other folder has more; each is searched and the table read again
    here, folder, rows, problems = max(tried, key=lambda attempt: attempt[0])
    if here == 0 and (rows or problems):
        command = Command("eval", ("FOLDER",), {"labels": labels_file})
        advice = Advice("name the folder of images", command)
        places = " or ".join(str(place.resolve()) for _, place, _, _ in tried)
        why = "" if rows else f": {in_groups(problems)[0]}"
        raise UsageError(f"{labels_file} names no image in {places}{why}", advice)
    return folder, rows, problems


def labelled_paths(folder: str | Path, rows: "list[Label]") -> Callable[[str], str | None]:
    """Return a function from a path to its label.

    It looks for the path in the folder of the images, elsewhere for a name that is unique there.
    """
    folder = os.path.abspath(folder)
    by_path = {os.path.join(folder, os.path.normpath(row.file)): row.text for row in rows}
    by_name: dict[str, set[str]] = {}
    for row in rows:
        by_name.setdefault(os.path.basename(row.file), set()).add(row.text)

    def look_up(path: str) -> str | None:
        path, texts = os.path.abspath(path), by_name.get(os.path.basename(path), set())
        if Path(path).is_relative_to(folder):
            return by_path.get(path)
        return next(iter(texts)) if len(texts) == 1 else None

    return look_up
