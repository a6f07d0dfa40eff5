"""The command that reads: eval."""

import csv
import glob
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from captcha_ocr.cli.group import (
    FILE,
    FOLDER,
    RUN,
    device_option,
    escape,
    json_option,
    length_option,
    main,
    option,
)
from captcha_ocr.config import Lengths, ModelConfig
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError
from captcha_ocr.signals import importing
from captcha_ocr.workers import rank_and_count

if TYPE_CHECKING:
    from captcha_ocr.labels import Label
    from captcha_ocr.processes import Processes
    from captcha_ocr.reading import Reading
    from captcha_ocr.recognizer import Recognizer


@main.command(name="eval")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@option("--model", "model_folder", type=FOLDER, default=RUN, help="A model folder, or a run folder.")
@option("--labels", type=FILE, help="Score against this CSV with filename,text.")
@option("--charset", help="Read only these characters, or this named alphabet.")
@length_option("Characters a text: reading is narrowed to them.")
@device_option
@json_option
@option("--csv", "as_csv", is_flag=True, help="A table of filename,text,confidence, least confident first.")
def evaluate(
    paths: tuple[str, ...],
    model_folder: Path,
    labels: Path | None,
    charset: str | None,
    lengths: Lengths | None,
    device: str,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Read captchas: files, folders, globs, or - for one image on standard input.

    Prints path, code and confidence, separated by tabs. With no PATH it asks for one after the
    other on a terminal, and elsewhere reads paths, one a line, from standard input, 128 at a time.

    Example: captcha-ocr eval data/samples --json
    """
    with importing():
        from captcha_ocr.device import choose_device, choose_precision, enough_memory, keep_freed_memory
        from captcha_ocr.processes import joined, local_device
        from captcha_ocr.recognizer import Recognizer

    if as_csv and (as_json or labels is not None or rank_and_count()[1] > 1):
        raise UsageError("--csv goes with neither --json nor --labels, and is of one process")
    if rank_and_count()[1] > 1 and (("-" in paths) or not (paths or labels)):
        raise UsageError("the processes of torchrun share no standard input; name PATHs or --labels")
    if sys.stdin is None and not (paths or labels):
        raise UsageError("there is no PATH, and no standard input to read paths from")
    chosen = choose_device(local_device(device))
    keep_freed_memory()
    with enough_memory(chosen, "to read with: free some, or take another --device"), joined(chosen) as processes:
        recognizer = Recognizer.load(
            model_folder, str(chosen), charset, None if lengths is None else (lengths.shortest, lengths.longest)
        )
        if processes.first:
            click.echo(f"device     {processes.describe(choose_precision('auto', processes.device))}", err=True)
        if labels is not None:
            failed = score_files(recognizer, labels, paths, as_json, processes)
        elif not paths and sys.stdin.isatty() and not as_csv:
            failed = read_at_prompt(recognizer, as_json)
        else:
            lines = (line.rstrip("\r\n") for line in sys.stdin or ())
            sources = own_part(expand(paths or (line for line in lines if line)), processes)
            results = read_paths(recognizer, sources)
            failed = show_table(results) if as_csv else sum(show(path, result, as_json) for path, result in results)
        failed = sum(processes.gather(failed))  # torchrun ends all at the first that fails: so all end together
    if failed:
        sys.exit(1)


def expand(paths: Iterable[str]) -> Iterator[str]:
    """The files that arguments mean: a folder's images, a glob's matches; a path that exists is no glob."""
    from captcha_ocr.images import image_files

    for path in paths:
        if os.path.isdir(path):
            found = image_files(Path(path))
            yield from (str(Path(path, file)) for file in found) if found else (path,)
        elif path != "-" and not os.path.exists(path) and glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))
            yield from expand(tuple(matches)) if matches else (path,)
        else:
            yield path


def own_part(paths: Iterable[str], processes: "Processes") -> Iterator[str]:
    """Those of the paths that are this process's."""
    return islice(paths, processes.rank, None, processes.count)


def read_paths(recognizer: "Recognizer", paths: Iterator[str]) -> Iterator[tuple[str, "Reading | ImageError"]]:
    """Each path with what was read, `-` being the bytes on standard input."""
    from itertools import tee

    names, sources = tee(paths)
    contents = ((sys.stdin.buffer.read() if sys.stdin else b"") if path == "-" else path for path in sources)
    yield from zip(names, recognizer.read_all(contents), strict=True)


def read_at_prompt(recognizer: "Recognizer", as_json: bool) -> int:
    """Ask for path after path until the end of input; every error is survived. Returns 0."""
    while True:
        try:
            path = input("image path (Ctrl-D ends): ").strip()
        except EOFError:
            click.echo()
            return 0
        for name, result in read_paths(recognizer, expand((path,) if path else ())):
            show(name, result, as_json)


def show(path: str, result: "Reading | ImageError", as_json: bool) -> int:
    """Print one result, in plain output an error to stderr; returns 1 for an error."""
    if isinstance(result, ImageError):
        reason = str(result).removeprefix(f"{path}: ")
        if as_json:
            click.echo(json.dumps({"path": path, "error": reason}))
        else:
            click.echo(f"{escape(path)}: {reason}", err=True)
        return 1
    if as_json:
        click.echo(json.dumps({"path": path, "code": result.code, "confidence": result.confidence}))
    else:
        click.echo(f"{escape(path)}\t{result.code}\t{result.confidence:.4f}")
    return 0


def show_table(results: Iterable[tuple[str, "Reading | ImageError"]]) -> int:
    """Print results as CSV, the least confident first, and errors to stderr; returns how many there were."""
    failed, rows = 0, []
    for path, result in results:
        if isinstance(result, ImageError):
            failed += show(path, result, False)
        else:
            rows.append((path, result.code, result.confidence))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["filename", "text", "confidence"])
    writer.writerows((path, code, f"{sure:.4f}") for path, code, sure in sorted(rows, key=lambda row: row[2]))
    click.echo(table.getvalue(), nl=False)
    return failed


def score_files(
    recognizer: "Recognizer", labels_file: Path, paths: tuple[str, ...], as_json: bool, processes: "Processes"
) -> int:
    """Read the labelled files (those in `paths`, else all) and print the score; returns this process's failures."""
    from captcha_ocr.labels import read_labels
    from captcha_ocr.metrics import Scores, score_texts

    rows, problems = read_labels(labels_file)
    failed = 0
    for file, reason in problems.items() if processes.first else ():
        click.echo(f"not scored {escape(file)}: {reason}", err=True)
        failed += 1
    sources = expand(paths) if paths else (str(labels_file.parent / row.file) for row in rows)
    truths, codes = [], []
    text_of = labelled_paths(labels_file, rows)
    for path, result in read_paths(recognizer, own_part(sources, processes)):
        text = text_of(path)
        if text is None:
            click.echo(f"not scored {escape(path)}: {labels_file.name} has no row for it", err=True)
            failed += 1
            continue
        if as_json or isinstance(result, ImageError):
            failed += show(path, result, as_json)
        if not isinstance(result, ImageError):
            truths.append(recognizer.config.charset.normalize(text))
            codes.append(result.code)
    parts = processes.gather([score_texts(truths, codes).counts(), count_unreadable(recognizer.config, truths)])
    scores = sum((Scores.from_counts(counts) for counts, _ in parts), Scores(0, 0, Counter()))
    if not scores.images:
        raise CaptchaOcrError(f"no image named in {labels_file} could be read")
    if processes.first:
        warn_of_unreadable(recognizer.config, sum(count for _, count in parts), scores.images)
        click.echo(json.dumps({"summary": scores.summary()}) if as_json else str(scores))
    return failed


def count_unreadable(config: ModelConfig, truths: list[str]) -> int:
    """How many of the true texts the model cannot but misread, by their length or their characters."""
    return sum(len(text) not in config.lengths or bool(config.charset.unknown_characters(text)) for text in truths)


def warn_of_unreadable(config: ModelConfig, unreadable: int, total: int) -> None:
    """Say how many texts the model cannot but misread, if there are any."""
    if unreadable:
        click.echo(
            f"{unreadable:,} of {total:,} labels count as wrong whatever is read: this model reads texts of "
            f"{config.lengths} of the characters {config.charset}",
            err=True,
        )


def labelled_paths(labels_file: Path, rows: "list[Label]") -> Callable[[str], str | None]:
    """A look-up from a path to its text: by the place beside the labels file; elsewhere, by a unique name."""
    folder = os.path.abspath(labels_file.parent)
    by_place = {os.path.join(folder, os.path.normpath(row.file)): row.text for row in rows}
    by_name: dict[str, set[str]] = {}
    for row in rows:
        by_name.setdefault(os.path.basename(row.file), set()).add(row.text)

    def look_up(path: str) -> str | None:
        place, texts = os.path.abspath(path), by_name.get(os.path.basename(path), set())
        if Path(place).is_relative_to(folder):
            return by_place.get(place)
        return next(iter(texts)) if len(texts) == 1 else None

    return look_up
