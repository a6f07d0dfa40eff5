"""The command that reads: eval."""

import csv
import glob
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FILE,
    FOLDER,
    IMAGES,
    RUN,
    device_option,
    escape,
    json_option,
    length_option,
    max_bytes_option,
    next_command,
    option,
    report,
)
from captcha_ocr.config import EngineName, Lengths, ModelConfig
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError, in_one_line
from captcha_ocr.inference.model_folder import PRETRAINED, VARIABLE, default_model, find_model_folder
from captcha_ocr.system.parallel import rank_and_count
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.data.labels import Label
    from captcha_ocr.inference.decoding import Reading
    from captcha_ocr.recognizer import Recognizer
    from captcha_ocr.training.distributed import ProcessGroup


PNG_LINE = ("\udc89PNG", "\x89PNG")  # what a PNG file begins with; each format's next bytes hold a NUL


@main.command(name="eval")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@option(
    "--model",
    "model_folder",
    type=FOLDER,
    help=f"A model or run folder.  [default: {VARIABLE}, else {RUN}, else the package's own]",
)
@option("--labels", type=FILE, help="Score against this CSV with filename,text.")
@option("--charset", help="Read only these characters, or this named alphabet.")
@length_option("Characters a text: reading is narrowed to them.")
@option("--min-confidence", type=float, default=0.0, help="Leave unread what is less sure.")
@option("--engine", type=click.Choice(get_args(EngineName)), default="auto", help="auto: onnx where there is one.")
@max_bytes_option
@device_option
@json_option
@option("--csv", "as_csv", is_flag=True, help="A table of filename,text,confidence, least confident first.")
def evaluate(
    paths: tuple[str, ...],
    model_folder: Path | None,
    labels: Path | None,
    charset: str | None,
    lengths: Lengths | None,
    min_confidence: float,
    engine: EngineName,
    max_bytes: int,
    device: str,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Read captchas: files, folders, globs, or - for one image on standard input.

    Prints path, code and confidence, separated by tabs. With no PATH it asks for one after the
    other on a terminal, and elsewhere reads paths, one a line, from standard input, many at a time.

    Example: captcha-ocr eval data/samples --json
    """
    with deferred():
        from captcha_ocr.recognizer import Recognizer

    if as_csv and (as_json or labels is not None or rank_and_count()[1] > 1):
        raise UsageError("--csv goes with neither --json nor --labels, and is of one process")
    if rank_and_count()[1] > 1 and (("-" in paths) or not (paths or labels)):
        raise UsageError("the processes of torchrun share no standard input; name PATHs or --labels")
    if not 0 <= min_confidence <= 1:  # nor nan, which click's range admits
        raise UsageError("--min-confidence is a number from 0 to 1")
    if sys.stdin is None and not (paths or labels):
        raise UsageError("there is no PATH, and no standard input to read paths from")
    folder = find_model_folder(model_folder or default_model(RUN))
    with computing(folder, device, engine) as (chosen, processes):
        ends = None if lengths is None else (lengths.shortest, lengths.longest)
        recognizer = Recognizer(folder, chosen, engine, charset, ends, max_bytes)
        if processes.is_main:
            click.echo(f"model      {'the one in the package' if folder == PRETRAINED else folder}", err=True)
            click.echo(f"device     {recognizer.engine}", err=True)
        show = Show(as_json, min_confidence)
        if labels is not None:
            failed = score_files(recognizer, labels, paths, show, processes)
        elif not paths and sys.stdin.isatty() and not as_csv:
            failed = read_at_prompt(recognizer, show)
        else:
            sources = own_part(expand(paths or lines_of_stdin()), processes)
            results = read_paths(recognizer, sources)
            failed = show_table(results, show) if as_csv else sum(show(path, result) for path, result in results)
        show.tell_unread(processes)
        failed = sum(processes.gather(failed))  # torchrun ends all at the first that fails: so all end together
    if failed:
        sys.exit(1)


class Alone:
    """What `ProcessGroup` are where there is one, which torch is not needed for."""

    rank, world_size, is_main = 0, 1, True

    def gather(self, document: Any) -> list[Any]:
        return [document]


@contextmanager
def computing(folder: Path, device: str, engine: EngineName) -> "Iterator[tuple[str, Alone | ProcessGroup]]":
    """The device to compute on, and with whom, while it lasts; torch is imported only where it computes."""
    from captcha_ocr.recognizer import choose_engine

    if rank_and_count()[1] == 1 and choose_engine(folder, device, engine) == "onnx":
        yield device, Alone()
        return
    with deferred():
        from captcha_ocr.network.device import choose_device, enough_memory, keep_freed_memory
        from captcha_ocr.training.distributed import local_device, process_group
    chosen = choose_device(local_device(device))
    keep_freed_memory()
    with enough_memory(chosen, "to read with: free some, or take another --device"), process_group(chosen) as processes:
        yield str(chosen), processes


def lines_of_stdin() -> Iterator[str]:
    """The paths on standard input, one a line."""
    for line in sys.stdin or ():
        if "\0" in line or line.rstrip() in PNG_LINE:
            raise UsageError("standard input holds no paths; to read the image that it is: captcha-ocr eval -")
        if path := line.rstrip("\r\n"):
            yield path


def expand(paths: Iterable[str]) -> Iterator[str]:
    """The files that arguments mean: a folder's images, a glob's matches; a path that exists is no glob."""
    from captcha_ocr.data.images import image_files

    for path in paths:
        if os.path.isdir(path):
            found = image_files(Path(path))
            yield from (str(Path(path, file)) for file in found) if found else (path,)
        elif path != "-" and not os.path.exists(path) and glob.has_magic(path) and "\0" not in path:
            matches = sorted(glob.glob(path, recursive=True))
            yield from expand(tuple(matches)) if matches else (path,)
        else:
            yield path


def own_part(paths: Iterable[str], processes: "Alone | ProcessGroup") -> Iterator[str]:
    """Those of the paths that are this process's."""
    return islice(paths, processes.rank, None, processes.world_size)


def read_paths(recognizer: "Recognizer", paths: Iterator[str]) -> Iterator[tuple[str, "Reading | ImageError"]]:
    """Each path with what was read, `-` being the bytes on standard input."""
    from itertools import tee

    names, sources = tee(paths)
    most = 2 * recognizer.max_bytes  # of standard input, as of any open file: it could go on for ever
    contents = ((sys.stdin.buffer.read(most) if sys.stdin else b"") if path == "-" else path for path in sources)
    yield from zip(names, recognizer.read_all(contents), strict=True)


def read_at_prompt(recognizer: "Recognizer", show: "Show") -> int:
    """Ask for path after path until the end of input; every error is survived. Returns 0."""
    while True:
        try:
            path = input("image path (Ctrl-D ends): ").strip()
        except EOFError:
            click.echo()
            return 0
        for name, result in read_paths(recognizer, expand((path,) if path else ())):
            show(name, result)


class Show:
    """Prints results; those that are less sure than `least` it leaves unread, and counts them."""

    def __init__(self, as_json: bool, least: float) -> None:
        self.as_json, self.least = as_json, least
        self.read = self.unread = 0

    def is_sure(self, reading: "Reading") -> bool:
        """Whether a reading counts; each is asked for once."""
        sure = reading.confidence >= self.least
        self.read += sure
        self.unread += not sure
        return sure

    def __call__(self, path: str, result: "Reading | ImageError") -> int:
        """Print one result; returns 1 for an error."""
        if isinstance(result, ImageError):
            return self.error(path, result)
        self.reading(path, result, self.is_sure(result))
        return 0

    def reading(self, path: str, reading: "Reading", sure: bool) -> None:
        """Print one that was read; without its code where that is not sure."""
        code = reading.code if sure else None
        if self.as_json:
            click.echo(json.dumps({"path": path, "code": code, "confidence": reading.confidence}))
        else:
            click.echo(f"{escape(path)}\t{code or ''}\t{reading.confidence:.4f}")

    def error(self, path: str, error: ImageError) -> int:
        """Print an error, in plain output to stderr; returns 1."""
        reason = str(error).removeprefix(in_one_line(f"{path}: "))
        if self.as_json:
            click.echo(json.dumps({"path": path, "error": reason}))
        else:
            click.echo(f"{escape(path)}: {reason}", err=True)
        return 1

    def tell_unread(self, processes: "Alone | ProcessGroup") -> None:
        """Say, for all processes, how many were left unread."""
        counts = processes.gather([self.read, self.unread])
        read, unread = (sum(column) for column in zip(*counts, strict=True))
        if self.least and processes.is_main:
            click.echo(f"{unread:,} of {read + unread:,} left unread, being less sure than {self.least:g}", err=True)


def show_table(results: Iterable[tuple[str, "Reading | ImageError"]], show: Show) -> int:
    """Print results as CSV, the least confident first, and errors to stderr; returns how many there were."""
    failed, rows = 0, []
    for path, result in results:
        if isinstance(result, ImageError):
            failed += show.error(path, result)
        else:
            rows.append((path, result.code if show.is_sure(result) else "", result.confidence))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["filename", "text", "confidence"])
    writer.writerows((path, code, f"{sure:.4f}") for path, code, sure in sorted(rows, key=lambda row: row[2]))
    click.echo(table.getvalue(), nl=False)
    return failed


def score_files(
    recognizer: "Recognizer", labels_file: Path, paths: tuple[str, ...], show: Show, processes: "Alone | ProcessGroup"
) -> int:
    """Read the labelled files (those in `paths`, else all) and print the score; returns this process's failures."""
    from captcha_ocr.data.labels import read_labels
    from captcha_ocr.metrics import Scores, reliability_of, score_texts

    rows, problems = read_labels(labels_file)
    failed = 0
    for file, reason in problems.items() if processes.is_main else ():
        click.echo(f"not scored {escape(file)}: {reason}", err=True)
        failed += 1
    sources = expand(paths) if paths else (str(labels_file.parent / row.file) for row in rows)
    truths, codes, judged = [], [], []
    text_of = labelled_paths(labels_file, rows)
    for path, result in read_paths(recognizer, own_part(sources, processes)):
        text = text_of(path)
        if text is None:
            click.echo(f"not scored {escape(path)}: {labels_file.name} has no row for it", err=True)
            failed += 1
            continue
        if isinstance(result, ImageError):
            failed += show.error(path, result)
            continue
        sure = show.is_sure(result)
        if show.as_json:
            show.reading(path, result, sure)
        if sure:
            truths.append(recognizer.config.charset.normalize(text))
            codes.append(result.code)
            judged.append((result.confidence, codes[-1] == truths[-1]))
    unreadable = count_unreadable(recognizer.config, truths)
    parts = processes.gather([score_texts(truths, codes).counts(), unreadable, show.unread, judged])
    scores = sum((Scores.from_counts(part[0]) for part in parts), Scores(0, 0, Counter()))
    unreadable, unread = (sum(part[column] for part in parts) for column in (1, 2))
    if not scores.images:
        why = f"all {unread:,} that can be read are less sure than {show.least:g}" if unread else "none can be read"
        raise CaptchaOcrError(f"nothing to score: of the images named in {labels_file} {why}")
    if processes.is_main:
        warn_of_unreadable(recognizer.config, unreadable, scores.images)
        reliability = reliability_of(list(chain.from_iterable(part[3] for part in parts)))
        summary = {**scores.summary(), "unread": unread, **reliability.summary()}
        click.echo(json.dumps({"summary": summary}) if show.as_json else f"{scores}\n{reliability}")
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


@main.command()
@click.argument("images", type=FOLDER, default=IMAGES)
@option("--model", "model_folder", type=FOLDER, default=RUN, help="A model folder, or a run folder.")
@option("--labels", type=FILE, help="CSV with filename,text.  [default: labels.csv in the folder, else names]")
@option("--int8", is_flag=True, help="Compute in 8-bit whole numbers; says what that costs in accuracy.")
@max_bytes_option
@json_option
def export(images: Path, model_folder: Path, labels: Path | None, int8: bool, max_bytes: int, as_json: bool) -> None:
    """Put a model.onnx beside a model's weights: `eval` then starts at once, and needs no torch.

    It is compared with the model on up to 1,000 labelled IMAGES, and kept if it reads the same codes.

    Example: captcha-ocr export my-captchas --model runs/default
    """
    from dataclasses import asdict

    with deferred():
        from captcha_ocr.data.labels import find_labels
        from captcha_ocr.network import onnx_export as exporting

    found, _ = find_labels(images, labels, None)
    exported = exporting.export(find_model_folder(model_folder), images, found, int8, max_bytes)
    following = next_command("eval image.png", model_folder, RUN, "--model ")
    report(as_json, asdict(exported), str(exported), following)
