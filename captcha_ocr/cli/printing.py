"""How eval prints what it has read, and the labels that it scores its readings against."""

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from captcha_ocr.charset import shorten, split_characters
from captcha_ocr.cli.wording import escape, note, with_flags, word_command
from captcha_ocr.errors import Advice, Command, ImageError, UsageError, in_one_line
from captcha_ocr.options.adapting import FEWEST_IMAGES
from captcha_ocr.options.declaration import words
from captcha_ocr.options.model import ModelConfig
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


class Printer:
    """Prints results, and counts them and the errors.

    It leaves out the texts of readings with too little confidence. options: which those are, and
    whether results of sums are printed.
    """

    def __init__(self, as_json: bool, options: ReadingOptions, decoder: "Decoder") -> None:
        from captcha_ocr.inference.traits import Tally

        self.as_json, self.decoder = as_json, decoder
        self.min_confidence, self.solve_sums = options.min_confidence, options.solve_sums
        self.total = self.unread = self.unsure = self.failed = 0
        self.models: Counter[str] = Counter()
        self.tally = Tally(decoder.characters)

    def accepts(self, path: str, reading: "Reading") -> bool:
        """Tell whether a reading is confident enough, and count it; call it once for each."""
        accepted = reading.confidence >= self.min_confidence
        self.total += 1
        self.unread += not accepted
        self.unsure += reading.confidence < _UNSURE
        self.models[reading.model] += accepted
        self.tally.add(reading, path)
        return accepted

    @property
    def is_unsure(self) -> bool:
        """Whether most images were read with little confidence."""
        return self.unsure > self.total / 2

    def print_all(self, results: Iterable[Result]) -> None:
        """Print results as they come."""
        for path, result in results:
            if isinstance(result, ImageError):
                self.print_error(path, result)
            else:
                self.print_reading(path, result, self.accepts(path, result))

    def print_table(self, results: Iterable[Result], out: Path | None = None) -> None:
        """Print results as CSV, or write them to `out`, the least confident first."""
        from captcha_ocr.data.label_sources.tables import readings_to_csv

        rows = []
        for path, result in results:
            if isinstance(result, ImageError):
                self.print_error(path, result)
            else:
                text = result.text if self.accepts(path, result) else ""
                more = self._columns_beside(result, bool(text))
                rows.append((path, text, result.confidence, *more))
        table = readings_to_csv(rows, ["result"] * self.solve_sums)
        if out is None:
            click.echo(table, nl=False)
            return
        write_atomic(out, table.encode("utf-8", "surrogateescape"))
        to_do = "; correct them, then delete the column confidence" if rows else ""
        click.echo(f"{out}: {len(rows):,} readings, least confident first{to_do}", err=True)

    def print_reading(self, path: str, reading: "Reading", accepted: bool) -> None:
        """Print one reading, without its text unless it is accepted."""
        if not self.as_json:
            text = reading.text if accepted else ""
            beside = self._columns_beside(reading, accepted)
            click.echo("\t".join([escape(path), text, f"{reading.confidence:.4f}", *beside]))
            return
        row: dict[str, Any] = {"path": path, "text": None, "confidence": reading.confidence}
        row |= {"characters": None, "model": reading.model or None}
        if accepted:
            row |= {"text": reading.text, "characters": list(map(asdict, reading.characters))}
        if self.solve_sums:
            row["result"] = reading.result if accepted else None
        click.echo(json.dumps(row, ensure_ascii=False))

    def _columns_beside(self, reading: "Reading", accepted: bool) -> list[str]:
        """Return the columns after the confidence: the result of a sum, if results are wanted."""
        if not self.solve_sums:
            return []
        result = reading.result if accepted else None
        return ["" if result is None else str(result)]

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
        """Print how many images each of the models in the package has read, and how many
        --min-confidence left unread.
        """
        counts = ", ".join(
            f"{model} {count:,}" for model, count in sorted(self.models.items()) if model and count
        )
        if counts:
            note(f"read by    {counts}")
        if self.min_confidence:
            counts = f"{self.unread:,} of {self.total:,} left unread"
            click.echo(f"{counts}, with a confidence below {self.min_confidence:g}", err=True)

    def print_traits(self, recognizer: "Recognizer", given: ReadingOptions) -> None:
        """Print what most of the texts have in common, and the options that read only such texts.

        Nothing if they are too few to tell, or no others could be read.
        """
        from captcha_ocr.data.images import describe_mixture
        from captcha_ocr.inference.traits import ANY_FORM

        traits, options = self.tally.find_traits(), dict[str, object]()
        if traits is None:
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
            known = f"{kind} of {lengths} of the characters {shorten(traits.charset)}"
            line = f"{known}, {part:.0%} of what was read"
            note(f"in common  {line}; to read only such: {shlex.join(words(options))}")


def what_to_do(paths: tuple[str, ...], labels: Path | None, reading: ReadingOptions) -> str:
    """Say how to get a model for images of which the one in the package is not sure.

    labels: a table of their labels.
    """
    from captcha_ocr.data.images import find_images
    from captcha_ocr.data.labels import LABELS_FILE

    images = next(filter(os.path.isdir, paths), str(labels.parent) if labels else "IMAGES")
    table = os.path.join(images, LABELS_FILE)
    what, commands = "label some", ["label"]
    if os.path.isdir(images) and len(find_images(Path(images)).images) >= FEWEST_IMAGES:
        what, commands = "adapt a model to these images, or label some", ["adapt", "label"]
    options: dict[str, object] = {}
    if labels is not None or os.path.exists(table):
        what, commands = "train on these labels", ["prepare"]
        is_usual = labels is None or os.path.realpath(labels) == os.path.realpath(table)
        options["labels"] = None if is_usual else labels
    ways = [word_command(Command(command, (images,), options)) for command in commands]
    if commands == ["prepare"]:
        ways.append(word_command(Command("train")))
    if reading.charset is None and reading.lengths is None:
        what = f"say what to expect (--charset, --length), or {what}"
    why = f"most confidences are below {_UNSURE:g}: the model may not know this kind of image"
    return f"not sure   {why}; {what}: {', '.join(ways)}"


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
    labels_file: Path, folders: Iterable[Path]
) -> "tuple[Path, list[Label], Problems]":
    """Read a labels file whose names are relative to one of these folders, or a labelled folder.

    It is the first in which all of the images are, else the one that has most of them. Return it,
    the labels, and why rows are left out. UsageError if no folder has any of the images.
    """
    from captcha_ocr.data.images import find_images
    from captcha_ocr.data.labels import find_labels, read_labels

    if labels_file.is_dir():
        return labels_file, find_labels(labels_file).check().labels, {}
    tried: list[tuple[int, Path, list[Label], Problems]] = []
    for folder in dict.fromkeys(folders):
        rows, problems = read_labels(labels_file, folder)
        here = sum((folder / row.file).exists() for row in rows)
        if here < len(rows) + len(problems):  # names in another form, or of another folder
            rows, problems = read_labels(labels_file, folder, find_images(folder).images)
            here = sum((folder / row.file).exists() for row in rows)
        tried.append((here, folder, rows, problems))
        if 0 < here == len(rows):
            break
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
