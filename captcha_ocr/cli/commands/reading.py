"""The commands that read: eval, export."""

import glob
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FILE,
    FOLDER,
    IMAGES,
    MODEL,
    RUN,
    add_options,
    charset_option,
    device_option,
    engine_option,
    escape,
    json_option,
    length_option,
    max_bytes_option,
    option,
    quiet_option,
    read_command,
    reading_model_option,
    report,
    threads_option,
)
from captcha_ocr.cli.printing import Printer, Result, print_table, what_to_do
from captcha_ocr.cli.scoring import labelled_paths, labels_to_score, warn_of_unreadable
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError, check, in_one_line
from captcha_ocr.inference.model_folder import (
    PRETRAINED,
    default_model,
    describe_model,
    find_model_folder,
)
from captcha_ocr.options.model import EngineName, Lengths
from captcha_ocr.system.console import command_line
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.recognizer import Recognizer

PNG_LINE = (
    "\udc89PNG",
    "\x89PNG",
)  # the first line of a PNG; the other formats have a NUL in theirs


@main.command(name="eval")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@reading_model_option
@option("--labels", type=FILE, help="CSV with filename,text to score the readings against.")
@charset_option("Read only these characters, or those of this named alphabet.")
@length_option("Read only texts with this many characters.")
@option("--fold-case", is_flag=True, help="Read both cases of a letter as one.")
@option("--min-confidence", type=float, default=0.0, help="Print no text below this confidence.")
@engine_option
@add_options(max_bytes_option, device_option, threads_option, quiet_option, json_option)
@option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print a table filename,text,confidence, least confident first.",
)
@option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the table of --csv to this file.",
)
def evaluate(
    paths: tuple[str, ...],
    model_folder: Path | None,
    labels: Path | None,
    charset: str | None,
    lengths: Lengths | None,
    fold_case: bool,
    min_confidence: float,
    engine: EngineName,
    max_bytes: int,
    device: str,
    threads: int | None,
    quiet: bool,
    as_json: bool,
    as_csv: bool,
    out: Path | None,
) -> None:
    """Read captchas from files, folders, globs, or - for one image on standard input.

    Prints path, text and confidence, separated by tabs. Without PATH it asks for paths on a terminal; elsewhere it
    reads paths from standard input, one a line.

    Example: captcha-ocr eval data/samples --json
    """
    as_csv = as_csv or out is not None
    check(
        not (as_csv and (as_json or labels is not None)),
        "--csv and --out go with neither --json nor --labels",
    )
    if out is not None:  # before the reading, which may take hours
        check(out.parent.is_dir(), f"--out {out}: {out.parent} is not a folder")
        check(not os.path.lexists(out), f"--out {out} exists; remove it, or choose another file")
    check(
        0 <= min_confidence <= 1, "--min-confidence must be a number from 0 to 1"
    )  # nan passes click's range
    check(
        sys.stdin is not None or bool(paths or labels),
        "there is no PATH, and no standard input to read paths from",
    )
    folder = find_model_folder(model_folder or default_model(RUN))
    length = None if lengths is None else (lengths.shortest, lengths.longest)
    with deferred():
        from captcha_ocr.recognizer import Recognizer
    with memory_errors(folder, device, engine):
        recognizer = Recognizer(
            folder, device, engine, charset, length, max_bytes, threads, fold_case
        )
        if not quiet:
            click.echo(f"model      {describe_model(folder)}", err=True)
            click.echo(f"device     {recognizer.engine}", err=True)
        printer = Printer(as_json, min_confidence)
        # Results that are printed as they come to the terminal show the progress themselves.
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        hidden = quiet or (is_terminal and not as_csv and labels is None)
        if labels is not None:
            failed = score_files(recognizer, labels, paths, printer, hidden, fold_case)
        elif not paths and sys.stdin.isatty() and not as_csv:
            failed = read_at_prompt(recognizer, printer)
        else:
            sources = list(expand(paths, quiet)) if paths else expand(lines_of_stdin(), quiet)
            results = with_progress(read_paths(recognizer, iter(sources)), sources, hidden)
            failed = (
                print_table(results, printer, out)
                if as_csv
                else sum(printer(*result) for result in results)
            )
        if not quiet:
            printer.print_models()
        printer.print_counts()
        if folder == PRETRAINED and printer.is_unsure and not quiet:
            click.echo(
                what_to_do(paths, labels, charset is not None or lengths is not None), err=True
            )
    if failed:
        sys.exit(1)


@contextmanager
def memory_errors(folder: Path, device: str, engine: EngineName) -> Iterator[None]:
    """Report that memory runs out on a torch device; torch is imported only where it computes."""
    from captcha_ocr.recognizer import choose_engine

    if choose_engine(folder, device, engine) == "onnx":
        yield
        return
    with deferred():
        from captcha_ocr.network.device import choose_device, enough_memory
        from captcha_ocr.system.memory import keep_freed_memory
    keep_freed_memory()
    with enough_memory(choose_device(device), "to read with: free some, or take another --device"):
        yield


def lines_of_stdin() -> Iterator[str]:
    """Yield the paths on standard input, one a line, in the encoding of the terminal or of a byte-order mark."""
    from captcha_ocr.data.label_sources.tables import detect_encoding

    if isinstance(sys.stdin, io.TextIOWrapper) and isinstance(sys.stdin.buffer, io.BufferedReader):
        encoding = detect_encoding(sys.stdin.buffer.peek(4)[:4], sys.stdin.encoding)
        sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape", newline=None)
    for line in sys.stdin or ():
        if "\0" in line or line.rstrip() in PNG_LINE:
            raise UsageError(
                f"standard input holds no paths; to read an image from it: {command_line('eval', '-')}"
            )
        path = line.rstrip("\r\n")
        if (
            path := path if os.path.lexists(path) else path.strip().strip('"')
        ):  # Windows copies paths in quotes
            yield path


def expand(paths: Iterable[str], quiet: bool = False) -> Iterator[str]:
    """Yield the files that arguments mean: a folder's images, a glob's matches; a path that exists is no glob.

    What a folder holds is printed to stderr unless `quiet` is set.
    """
    for path in paths:
        if os.path.isdir(path):
            from captcha_ocr.data.images import find_images
            from captcha_ocr.data.labels import OPTIONS_FILE, TABLES
            from captcha_ocr.system.console import count_kinds

            found = find_images(Path(path))
            others = count_kinds(found.kinds(used={OPTIONS_FILE, *TABLES}))
            more = f"; other files {others}" if others else ""
            if found.images and not quiet:
                click.echo(f"{'images':11}{len(found.images):,} in {escape(path)}{more}", err=True)
            yield from (str(Path(path, file)) for file in found.images) if found.images else (path,)
        elif path != "-" and not os.path.exists(path) and glob.has_magic(path) and "\0" not in path:
            matches = sorted(glob.glob(path, recursive=True))
            yield from expand(tuple(matches), quiet) if matches else (path,)
        else:
            yield path


def with_progress(
    results: Iterator[Result], sources: Iterable[str], quiet: bool
) -> Iterator[Result]:
    """Yield results, and show on a terminal how many of the sources are read if that number is known."""
    if quiet or not isinstance(sources, list) or sys.stderr is None or not sys.stderr.isatty():
        yield from results
        return
    from captcha_ocr.system.console import ProgressBar

    with ProgressBar("read") as bar:
        for number, result in enumerate(results, 1):
            bar.show(number, len(sources))
            yield result


def read_paths(recognizer: "Recognizer", paths: Iterator[str]) -> Iterator[Result]:
    """Yield each path with its reading; `-` is the image on standard input."""
    names, sources = tee(paths)
    limit = (
        2 * recognizer.max_bytes
    )  # standard input may be endless, and base64 is a third longer than its image
    contents = (
        (sys.stdin.buffer.read(limit) if sys.stdin else b"") if path == "-" else path
        for path in sources
    )
    yield from zip(names, recognizer.read_all(contents), strict=True)


def read_at_prompt(recognizer: "Recognizer", printer: "Printer") -> int:
    """Ask for one path after another until the end of input, and continue after every error. Returns 0."""
    while True:
        try:
            path = input("image path (Ctrl-D ends): ").strip()
        except EOFError:
            click.echo()
            return 0
        for name, result in read_paths(recognizer, expand((path,) if path else ())):
            printer(name, result)


def score_files(
    recognizer: "Recognizer",
    labels_file: Path,
    paths: tuple[str, ...],
    printer: Printer,
    quiet: bool,
    fold_case: bool,
) -> int:
    """Read the labelled files (those in `paths`, else all) and print the score; returns the number of failures."""
    from captcha_ocr.scores import score_confidences, score_texts
    from captcha_ocr.system.console import in_groups

    sources = list(expand(paths, quiet)) if paths else []
    folders = [
        Path(path) if os.path.isdir(path) else Path(path).parent for path in (*paths, *sources)
    ]
    folder, rows, problems = labels_to_score(labels_file, [labels_file.parent, *folders])
    sources = sources or [str(folder / row.file) for row in rows]
    failed, truths, texts, judged = 0, [], [], []
    label_of = labelled_paths(folder, rows)
    for path, result in with_progress(read_paths(recognizer, iter(sources)), sources, quiet):
        label = label_of(path)
        if label is None:
            problems[path] = f"{labels_file.name} has no row for it"
        elif isinstance(result, ImageError):
            failed += printer.print_error(path, result)
        else:
            accepted = printer.accepts(result)
            if printer.as_json:
                printer.print_reading(path, result, accepted)
            if accepted:
                truth, text = recognizer.config.charset.normalize(label), result.text
                truths.append(truth.casefold() if fold_case else truth)
                texts.append(text.casefold() if fold_case else text)
                judged.append((result.confidence, texts[-1] == truths[-1]))
    for line in in_groups(problems):
        click.echo(f"not scored {in_one_line(line)}", err=True)
    if not truths:
        unread = f"all {printer.unread:,} readable images have a confidence below {printer.min_confidence:g}"
        why = unread if printer.unread else "none can be read"
        raise CaptchaOcrError(f"nothing to score: of the images named in {labels_file} {why}")
    warn_of_unreadable(recognizer.config, truths)
    scores, reliability = score_texts(truths, texts), score_confidences(judged)
    summary = {**scores.summary(), "unread": printer.unread, **reliability.summary()}
    click.echo(json.dumps({"summary": summary}) if printer.as_json else f"{scores}\n{reliability}")
    return failed + len(problems)


@main.command()
@click.argument("images", type=FOLDER, default=IMAGES)
@option("--model", "model_folder", type=MODEL, default=RUN, help="A model folder, or a run folder.")
@option(
    "--labels",
    type=FILE,
    help="CSV with filename,text.  [default: labels.csv in the folder, else file names]",
)
@option(
    "--int8", is_flag=True, help="Compute in 8-bit integers, and print what that costs in accuracy."
)
@add_options(max_bytes_option, threads_option, json_option)
def export(
    images: Path,
    model_folder: Path,
    labels: Path | None,
    int8: bool,
    max_bytes: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Write a model as an ONNX file, with which eval starts faster and needs no torch.

    Read up to 1,000 labelled IMAGES with the model and with the exported network. Keep the file only if all texts are
    the same.

    Example: captcha-ocr export my-captchas --model runs/default
    """
    with deferred():
        from captcha_ocr.data.labels import find_labels
        from captcha_ocr.network.device import set_threads
        from captcha_ocr.network.onnx_export import export_onnx

    set_threads(threads)
    found = find_labels(images, labels).check()
    exported = export_onnx(find_model_folder(model_folder), images, found.labels, int8, max_bytes)
    report(as_json, asdict(exported), str(exported), read_command(model_folder, images))
