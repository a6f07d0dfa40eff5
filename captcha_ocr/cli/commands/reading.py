"""The commands that read: eval, export."""

import codecs
import glob
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import chain, tee
from pathlib import Path
from typing import TYPE_CHECKING

import click

from captcha_ocr.charset import shorten
from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, RUNNING, Given, takes
from captcha_ocr.cli.printing import (
    Printer,
    Result,
    labelled_paths,
    labels_to_score,
    warn_of_unreadable,
    what_to_do,
)
from captcha_ocr.cli.wording import escape, find_learnt_folders, note, read_command, report
from captcha_ocr.errors import (
    Advice,
    CaptchaOcrError,
    Command,
    UsageError,
    check,
    in_one_line,
)
from captcha_ocr.inference.model_folder import (
    PRETRAINED,
    default_model,
    describe_model,
    find_model_folder,
)
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.shared import (
    IMAGES,
    NEWEST_OPSET,
    OLDEST_OPSET,
    RUN,
    ReadingOptions,
    ReportOptions,
)
from captcha_ocr.system.console import ProgressBar, count_kinds, in_groups
from captcha_ocr.system.files import detect_encoding
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.recognizer import Recognizer
    from captcha_ocr.two_readers import TwoReaders

_LINE_END = re.compile("\r\n|\r|\n|\0")  # find -print0 ends paths with a NUL
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1f]")  # every image has such characters
_MOST_AT_ONCE = 2**22  # bytes of paths; a pipe holds fewer
_READING, _COMPUTING = "What is read", "Computing"  # headings in the help


@dataclass(frozen=True, eq=False, repr=False)
class _EvalCommand(Options):
    labels: Path | None = option(
        None,
        "CSV with filename,text, or a labelled folder, to score the readings against.",
        path="file or folder",
    )
    as_csv: bool = option(
        False, "Print a table filename,text,confidence, least confident first.", flag="--csv"
    )
    out: Path | None = option(None, "Write the table of --csv to this file.", path="new file")
    second: str | None = option(
        None,
        "Read with another reader, too, and take the surer: rapidocr, or a CSV with "
        "filename,text,confidence.",
        metavar="READER",
    )


@dataclass(frozen=True, eq=False, repr=False)
class _ExportCommand(Options):
    model_folder: Path = option(
        RUN, "A model folder, or a run folder.", flag="--model", path="model"
    )
    labels: Path | None = option(
        None,
        "CSV with filename,text.",
        shown="labels.csv in the folder, else file names",
        path="file",
    )
    int8: bool = option(False, "Compute in 8-bit integers, and print what that costs in accuracy.")
    opset: int = option(
        NEWEST_OPSET,
        "Opset of ONNX; an older onnxruntime needs an older one.",
        at_least=OLDEST_OPSET,
        at_most=NEWEST_OPSET,
    )


@main.command(name="eval")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@takes(ReadingOptions, "model_folder")
@takes(_EvalCommand)
@takes(ReportOptions, "as_json")
@takes(ReadingOptions, "charset", "lengths", "fold_case", "ink", section=_READING)
@takes(ReadingOptions, "solve_sums", "min_confidence", "max_bytes", section=_READING)
@takes(ReadingOptions, "engine", "device", "threads", section=_COMPUTING)
@takes(ReportOptions, "quiet", section=_COMPUTING)
def evaluate(paths: tuple[str, ...], given: Given) -> None:
    """Read captchas from files, folders, globs, or - for one image on standard input.

    Prints path, text and confidence, separated by tabs. Without PATH it asks for paths on a
    terminal; elsewhere it reads paths from standard input, one a line.

    Example: captcha-ocr eval data/samples --json
    """
    options, reading, output = given[_EvalCommand], given[ReadingOptions], given[ReportOptions]
    labels, out = options.labels, options.out
    as_csv = options.as_csv or out is not None
    is_table = not (as_csv and (output.as_json or labels is not None))
    check(is_table, "--csv and `out` go with neither --json nor `labels`")
    if out is not None:  # before the reading, which may take hours
        check(out.parent.is_dir(), f"`out` {out}: {out.parent} is not a folder")
        check(not os.path.lexists(out), f"`out` {out} exists; remove it, or choose another file")
    check(
        sys.stdin is not None or bool(paths or labels),
        "there is no PATH, and no standard input to read paths from",
    )
    check(
        sys.stdout is not None or out is not None,
        "standard output is closed: the readings would be lost; name a file with `out`",
    )
    folder = find_model_folder(reading.model_folder or default_model())
    with _open_recognizer(folder, reading) as recognizer:
        note(f"model      {describe_model(folder)}\ndevice     {recognizer.engine}")
        if reading.charset is not None:
            note(f"alphabet   {shorten(''.join(sorted(recognizer.decoder.characters)))}")
        sources = list(_expand(paths))
        reader: Recognizer | TwoReaders = recognizer
        if options.second is not None:
            reader = _add_second(recognizer, options.second, paths, sources, reading)
        printer = Printer(output.as_json, reading, reader.decoder)
        # Results that are printed as they come to the terminal show the progress themselves.
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        hidden = output.quiet or (is_terminal and not as_csv and labels is None)
        if labels is not None:
            _score_files(reader, labels, paths, sources, printer, hidden, folder, reading)
        elif not paths and sys.stdin.isatty() and not as_csv:
            _read_at_prompt(recognizer, printer)
        else:
            batches = [sources] if paths else map(_expand, _batches_of_stdin())
            results = chain.from_iterable(_read_paths(reader, some, hidden) for some in batches)
            if as_csv:
                printer.print_table(results, out)
            else:
                printer.print_all(results)
        printer.print_counts()
        if not output.quiet:
            _advise(printer, recognizer, folder, paths, given)
    if printer.failed:
        sys.exit(1)


def _advise(
    printer: Printer, recognizer: "Recognizer", folder: Path, paths: tuple[str, ...], given: Given
) -> None:
    """Print what the images are not fit for; else what their texts have in common, and how to get
    a better model than that in `folder`.
    """
    options, reading = given[_EvalCommand], given[ReadingOptions]
    if doubts := printer.find_doubts():
        note(f"not fit    {'; '.join(doubts)}")
        return
    if options.second is None:
        printer.print_traits(recognizer, reading)
    if folder == PRETRAINED and printer.is_unsure:
        note(what_to_do(paths, options.labels, reading))


@contextmanager
def _open_recognizer(folder: Path, options: ReadingOptions) -> "Iterator[Recognizer]":
    """Yield what reads, and report if memory runs out in the block on a device of torch.

    Torch is imported only where it computes.
    """
    with deferred():
        from captcha_ocr.recognizer import Recognizer, choose_engine

    memory: AbstractContextManager[None] = nullcontext()
    if choose_engine(folder, options.device, options.engine) == "torch":
        with deferred():
            from captcha_ocr.network.device import choose_device, enough_memory
            from captcha_ocr.system.memory import keep_freed_memory
        keep_freed_memory()
        advice = "to read with: free some, or take another `device`"
        memory = enough_memory(choose_device(options.device), advice)
    with memory:
        yield Recognizer.with_options(folder, options)


def _add_second(
    recognizer: "Recognizer",
    name: str,
    paths: tuple[str, ...],
    sources: list[str],
    options: ReadingOptions,
) -> "TwoReaders":
    """Return a second reader beside a recognizer, both told what the images have in common."""
    from captcha_ocr.two_readers import NO_SECOND, TwoReaders, open_second_reader

    check(bool(paths), "`second` needs PATHs, of images that have one design")
    first = Path(paths[0])
    second = open_second_reader(name, first if first.is_dir() else first.parent, options)
    readers = TwoReaders(recognizer, second).fitted_to(sources)
    if not readers.has_second and name != NO_SECOND:
        note(f"second     {name}, left out: it reads something else")
    return readers


def _batches_of_stdin() -> Iterator[list[str]]:
    """Yield the paths on standard input, one a line: all that are there, then those that come.

    They are in the encoding of the terminal or of a byte-order mark.
    """
    data, rest, decoder = b"", "", None
    while decoder is None or data:
        data = sys.stdin.buffer.read1(_MOST_AT_ONCE)  # type: ignore[union-attr]
        if decoder is None:
            encoding = detect_encoding(data[:4], sys.stdin.encoding)
            decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        *lines, rest = _LINE_END.split(rest + decoder.decode(data, final=not data))
        yield list(filter(None, map(_clean_path, lines if data else [*lines, rest])))


def _clean_path(line: str) -> str:
    """Return the path in a line; UsageError if it is no text."""
    if os.path.lexists(line):
        return line
    if _CONTROL.search(line):
        advice = Advice("to read an image from it", Command("eval", ("-",)))
        raise UsageError("standard input holds no paths", advice)
    return line.strip().strip('"')  # Windows copies quotes


def _expand(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files that arguments mean: a folder's images, a glob's matches; a path that exists
    is no glob.

    Print what a folder holds.
    """
    for path in paths:
        if os.path.isdir(path):
            from captcha_ocr.data.images import find_images
            from captcha_ocr.data.labels import OPTIONS_FILE, TABLES

            found = find_images(Path(path))
            others = count_kinds(found.kinds(used={OPTIONS_FILE, *TABLES}))
            more = f"; other files {others}" if others else ""
            if found.images:
                note(f"{'images':11}{len(found.images):,} in {escape(path)}{more}")
            yield from [str(Path(path, file)) for file in found.images] or [path]
        elif path != "-" and not os.path.exists(path) and glob.has_magic(path) and "\0" not in path:
            matches = sorted(glob.glob(path, recursive=True))
            yield from _expand(matches) if matches else [path]
        else:
            yield path


def _read_paths(
    recognizer: "Recognizer | TwoReaders", paths: Iterable[str], hidden: bool = True
) -> Iterator[Result]:
    """Yield each path with its reading; `-` is the image on standard input.

    Show on a terminal how many of the paths are read, if that number is known and not `hidden`.
    """
    total = len(paths) if isinstance(paths, list) else 0
    has_bar = total and not hidden and sys.stderr is not None and sys.stderr.isatty()
    names, sources = tee(paths)
    contents = (_open_source(path, recognizer.max_bytes) for path in sources)
    results = zip(names, recognizer.read_all(contents), strict=True)
    with ProgressBar("read", quiet=not has_bar) as bar:
        for number, result in enumerate(results, 1):
            bar.show(number, total)
            yield result


def _open_source(path: str, max_bytes: int) -> str | bytes:
    if path != "-":
        return path
    # Standard input may be endless, and base64 is a third longer than its image.
    data = b"" if sys.stdin is None else sys.stdin.buffer.read(2 * max_bytes)
    is_path = os.path.exists(re.split(b"[\r\n\0]", data, maxsplit=1)[0])
    check(not is_path, "standard input holds paths; to read their images, leave out -")
    return data


def _read_at_prompt(recognizer: "Recognizer", printer: "Printer") -> None:
    """Ask for one path after another until the end of input, and continue after every error."""
    while True:
        try:
            path = input("image path (Ctrl-D ends): ").strip()
        except EOFError:
            click.echo()
            return
        printer.print_all(_read_paths(recognizer, _expand((path,) if path else ())))
        printer.failed = 0  # the next answer may be better


def _score_files(
    recognizer: "Recognizer | TwoReaders",
    labels_file: Path,
    paths: tuple[str, ...],
    sources: list[str],
    printer: Printer,
    hidden: bool,
    model: Path,
    told: ReadingOptions,
) -> None:
    """Read the labelled files (`sources`, which `paths` mean, else all) and print the score."""
    from captcha_ocr.scores import score_confidences, score_texts

    folders = [labels_file.parent]
    for source in map(Path, (*paths, *sources)):
        folders += [source] if source.is_dir() else [source.parent]
    folder, rows, problems = labels_to_score(labels_file, folders, told)
    sources = sources or [str(folder / row.file) for row in rows]
    labels = dict(zip(sources, map(labelled_paths(folder, rows), sources), strict=True))
    unlabelled = [path for path in sources if labels[path] is None]
    problems |= dict.fromkeys(unlabelled, f"{labels_file.name} has no label for it")
    named = [path for path in sources if labels[path] is not None]
    truths, texts, judged = [], [], []
    for path, reading in printer.accept_all(_read_paths(recognizer, named, hidden)):
        if printer.as_json:
            printer.print_reading(path, reading)
        if reading.text:
            truth, text = recognizer.config.charset.normalize(str(labels[path])), reading.text
            if recognizer.decoder.fold_case:
                truth, text = truth.casefold(), text.casefold()
            truths.append(truth)
            texts.append(text)
            judged.append((reading.confidence, text == truth))
    for line in in_groups(problems):
        click.echo(f"not scored {in_one_line(line)}", err=True)
    if not truths:
        why = "none can be read"
        if printer.unread:
            below = f"a confidence below {printer.min_confidence:g}"
            why = f"all {printer.unread:,} readable images have {below}"
        raise CaptchaOcrError(f"nothing to score: of the images named in {labels_file} {why}")
    warn_of_unreadable(recognizer.config, truths)
    scores, reliability = score_texts(truths, texts), score_confidences(judged)
    summary = {**scores.summary(), "unread": printer.unread, **reliability._asdict()}
    if any(row.confidence is not None for row in rows):
        summary["against"] = "readings"
        note("against    a model's readings: this is agreement, not accuracy")
    elif folder.resolve() in map(Path.resolve, find_learnt_folders(model.parent)):
        summary["against"] = "images it learnt from"
        note(f"against    images of {folder}, from which the model learnt: new ones are read worse")
    click.echo(json.dumps({"summary": summary}) if printer.as_json else f"{scores}\n{reliability}")
    printer.failed += len(problems)


@main.command()
@click.argument("images", type=FOLDER, default=IMAGES)
@takes(_ExportCommand)
@takes(ReadingOptions, "max_bytes", "threads", section=RUNNING)
@takes(ReportOptions, "as_json", section=RUNNING)
def export(images: Path, given: Given) -> None:
    """Write a model as an ONNX file, with which eval starts faster and needs no torch.

    Read up to 1,000 labelled IMAGES with the model and with the exported network. Keep the file
    only if all texts are the same.

    Example: captcha-ocr export my-captchas --model runs/default
    """
    with deferred():
        from captcha_ocr.data.labels import find_labels
        from captcha_ocr.network.device import set_threads
        from captcha_ocr.network.onnx_export import export_onnx

    options, reading = given[_ExportCommand], given[ReadingOptions]
    set_threads(reading.threads)
    labels = find_labels(images, options.labels).check().labels
    folder = find_model_folder(options.model_folder)
    exported = export_onnx(folder, images, labels, options.int8, reading.max_bytes, options.opset)
    report(asdict(exported), str(exported), read_command(options.model_folder, images))
