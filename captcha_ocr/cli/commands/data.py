"""The commands for images: generate, prepare, inspect."""

import random
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from captcha_ocr.charset import shorten
from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, RUNNING, Given, takes
from captcha_ocr.cli.wording import (
    escape,
    given_words,
    note,
    place,
    report,
    with_flags,
    word_command,
)
from captcha_ocr.errors import CaptchaOcrError, Command, check, in_one_line
from captcha_ocr.inference.model_folder import (
    find_model_folder,
    name_model,
    read_model_config,
)
from captcha_ocr.options.adapting import FEWEST_IMAGES
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.drawing import CLASSIC_WARP, DEFAULT_DESIGN, WARPS, DrawingOptions
from captcha_ocr.options.preparation import MAX_FOLDS, SPLITS, PrepareConfig, PrepareOptions
from captcha_ocr.options.shared import (
    IMAGES,
    RUN,
    SHARDS,
    ReadingOptions,
    ReportOptions,
    WorkOptions,
)
from captcha_ocr.options.training import FEWEST, PRESETS, preset_for
from captcha_ocr.system.console import (
    ProgressBar,
    command_line,
    count_kinds,
    in_groups,
)
from captcha_ocr.system.documents import read_json
from captcha_ocr.system.files import find_unused, writing_to
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.data.prepare import Prepared
    from captcha_ocr.data.shards import Manifest
    from captcha_ocr.diagnostics.inspection import Inspection
    from captcha_ocr.recognizer import Recognizer

_LEAST = 4  # images that prepare and train need
_DRAWN, _LABELS, _SHARDS = "What is drawn", "Labels", "Shards"  # headings in the help


@dataclass(frozen=True, eq=False, repr=False)
class _GenerateCommand(Options):
    out: Path = option(IMAGES, "The folder to write.", path="folder")
    size: tuple[int, int] | None = option(None, "Size of the images.", shown="the design's")
    save_designs: Path | None = option(
        None, "Write the random designs to this file, which --design takes again.", path="new file"
    )
    warp: Literal["package", "classic"] = option(
        "package", "Warp of the captcha package, or the stronger one of its versions before 0.7.1."
    )


@dataclass(frozen=True, eq=False, repr=False)
class _PrepareCommand(Options):
    out: Path = option(SHARDS, "The folder to write.", path="folder")
    folds: int | None = option(
        None, "Make this many folds for train --cross-validate.", at_least=2, at_most=MAX_FOLDS
    )
    strict: bool = option(False, "Exit with 1 if an image or a label is left out.")


@dataclass(frozen=True, eq=False, repr=False)
class _InspectCommand(Options):
    model_folder: Path | None = option(
        None, "List the images that this model reads differently.", flag="--model", path="model"
    )
    out: Path = option(Path("runs/inspect"), "The folder for the pictures.", path="folder")


_LABEL_FILES = ("labels", "corrections")
_LABEL_FIELDS = ("label_pattern", "charset", "lengths", "case_sensitive", "max_bytes")
_LABEL_OPTIONS = (*_LABEL_FILES, *_LABEL_FIELDS)


@main.command()
@takes(_GenerateCommand, "out")
@takes(DrawingOptions, "count", "design", "lengths", "charset")
@takes(_GenerateCommand, "size")
@takes(DrawingOptions, "seed")
@takes(DrawingOptions, "often", "fonts", "font_sizes", "random_designs", section=_DRAWN)
@takes(_GenerateCommand, "save_designs", "warp", section=_DRAWN)
@takes(DrawingOptions, "renderer", "start", section=_DRAWN)
@takes(WorkOptions, section=RUNNING)
@takes(ReportOptions, section=RUNNING)
def generate(given: Given) -> None:
    """Draw labelled captchas: with the look of the captcha package, or of any design
    (docs/designs.md).

    Example: captcha-ocr generate --count 1000 --design random --charset digits --length 6
    """
    with deferred():
        from captcha_ocr.generation import folder as images_folder
        from captcha_ocr.generation.drawer import plan_drawing
        from captcha_ocr.system.console import ProgressBar, counted

    options, drawing = given[_GenerateCommand], given[DrawingOptions]
    work, output = given[WorkOptions], given[ReportOptions]
    if options.size is not None:
        width, height = options.size
        drawing = replace(drawing, width=width, height=height)
    if options.warp == WARPS[CLASSIC_WARP]:
        check(
            drawing.design == DEFAULT_DESIGN,
            f"`warp` is for the design {DEFAULT_DESIGN}, not for {drawing.design}",
        )
        drawing = replace(drawing, design=CLASSIC_WARP)
    check(
        drawing.level is not None or options.save_designs is None,
        "`save_designs` is for random designs",
    )
    plan = plan_drawing(drawing)
    with ProgressBar("generate", output.quiet) as bar:
        done = images_folder.generate(plan, options.out, work.workers, work.force, bar.show)
    if options.save_designs is not None:
        with ProgressBar("designs", output.quiet) as bar:
            images_folder.save_designs(plan, options.save_designs, work.workers, bar.show)
    if done.redrawn:
        line = f"legible   {counted(done.redrawn, 'illegible image')} drawn again"
        if done.illegible:
            line += f"; {counted(done.illegible, 'image')} could not be read after some tries"
        note(line)
    drawn = f"{counted(done.drawn, 'image')} drawn" if done.drawn else "all existed"
    if len(plan.charset) > 1 and drawing.count >= _LEAST:
        following = _preparation_after(options.out)
    else:
        following = command_line("eval", *place(options.out))
    report(
        {"out": str(options.out), "images": drawing.count, **done._asdict()},
        f"{options.out}: {counted(drawing.count, 'image')} of {plan.kind}; {drawn}",
        following,
    )


def _preparation_after(images: Path, *words: str) -> str:
    """Return the command that prepares the images in a folder, and leaves shards that are there as
    they are.
    """
    from captcha_ocr.data.shards import MANIFEST_FILE

    more = given_words("workers")
    if (SHARDS / MANIFEST_FILE).exists():
        more += ["--out", str(find_unused(SHARDS))]
    return command_line("prepare", *place(images, IMAGES), *words, *more)


def _training_after(out: Path, manifest: "Manifest", folds: int | None) -> str:
    """Return the command that trains on shards, and leaves a run on other shards as it is."""
    from captcha_ocr.data.shards import Dataset

    words = ["--cross-validate"] if folds else []
    words += place(out, SHARDS, "--data")
    # `default` is the size that any preset takes: train chooses one by the number of images.
    words += [word for word in given_words("preset") if word != "--preset=default"]
    part = "fold-1" if folds else ""
    with suppress(CaptchaOcrError):  # there is no such run, or it is damaged
        earlier = read_json(RUN / part / "run.json").get("data")
        if earlier != Dataset((out / part,), (manifest,)).sha256:
            words += ["--out", str(find_unused(RUN))]
    return command_line("train", *words)


@main.command()
@click.argument("images", type=FOLDER, default=IMAGES)
@takes(_PrepareCommand, "out")
@takes(PrepareOptions, *_LABEL_FILES, section=_LABELS)
@takes(PrepareConfig, *_LABEL_FIELDS, section=_LABELS)
@takes(PrepareConfig, "preset", type=click.Choice(list(PRESETS)), section=_SHARDS)
@takes(PrepareConfig, "size", "channels", "ink", "split", section=_SHARDS)
@takes(_PrepareCommand, "folds", section=_SHARDS)
@takes(PrepareConfig, "seed", section=_SHARDS)
@takes(PrepareConfig, "readings", section=_LABELS)
@takes(_PrepareCommand, "strict", section=RUNNING)
@takes(PrepareOptions, "workers", "force", section=RUNNING)
@takes(ReportOptions, section=RUNNING)
def prepare(images: Path, given: Given) -> None:
    """Turn a folder of labelled images into tensor shards.

    Labels come from labels.csv, from text files beside the images, or from the names of the files
    (TEXT.png, TEXT_anything.png) or folders. --label-pattern takes its group `text`, else its first
    group, else the whole match.

    Example: captcha-ocr prepare my-captchas --label-pattern '_(.+)\\.png$'
    """
    with deferred():
        from captcha_ocr.data import prepare as preparation

    options = given[_PrepareCommand]
    with ProgressBar("prepare", given[ReportOptions].quiet) as bar:
        how = given[PrepareConfig], given[PrepareOptions], bar.show
        if options.folds is None:
            prepared = first = preparation.prepare(images, options.out, *how)
        else:
            all_folds = preparation.prepare_folds(images, options.out, options.folds, *how)
            first = all_folds[0]
            # Every fold leaves out the same files, but only one that was made now lists them all.
            prepared = next((fold for fold in all_folds if not fold.already_there), first)
    tell_preparation(prepared)
    _report_shards(images, options, replace(prepared, manifest=first.manifest))
    if options.strict and first.manifest.left_out:
        sys.exit(1)


def tell_preparation(prepared: "Prepared") -> None:
    """Print what prepare says of the images beside its result, to stderr."""
    from captcha_ocr.diagnostics.inspection import advice_on_number, advice_on_tables

    rows = [*prepared.found.rows(), ("odd images", count_kinds(prepared.oddities))]
    manifest = prepared.manifest
    rows += [("left out", line) for line in in_groups(prepared.problems) or manifest.reasons]
    texts = [label.text for label in prepared.found.labels]
    preset = preset_for(manifest.count("train"), manifest.size)
    labels = sum(map(manifest.count, SPLITS))
    advice = [*advice_on_tables(prepared.found, texts), *prepared.doubts]
    rows += [("advice", line) for line in advice + advice_on_number(labels, preset)]
    why = f"finetune: fewer than {FEWEST:,} images train from the model in the package"
    copies = f"{manifest.copies:,} copies of other images, pixel for pixel"
    rows += [
        ("preset", why if preset == "finetune" else ""),
        ("left out", copies if manifest.copies else ""),
    ]
    for name, words in rows:
        if words:
            click.echo(f"{name:14}{with_flags(in_one_line(words))}", err=True)


def _report_shards(images: Path, options: _PrepareCommand, prepared: "Prepared") -> None:
    manifest, out, folds = prepared.manifest, options.out, options.folds
    counts: dict[str, int] = {split: manifest.count(split) for split in SPLITS}
    charset, case = manifest.charset, manifest.charset.case
    facts = {
        "out": str(out),
        "folds": folds,
        **counts,
        "left_out": manifest.left_out,
        "copies": manifest.copies,
        "charset": charset.characters,
        "fold": case,
        "length": str(manifest.lengths),
    }
    splits = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    if folds:
        splits = f"{folds} folds, in the first {splits}"
    text = (
        f"{out}: {splits}; {manifest.left_out:,} left out; {manifest.size}\ntexts of "
        f"{manifest.lengths} of the {len(charset)} characters {shorten(charset.characters)}"
    )
    if case:
        text += f", both cases read as {case} case"
    if prepared.already_there:
        text += "; all shards existed"
    if manifest.count("train") > 1:
        following = _training_after(out, manifest, folds)
    else:
        following = command_line("inspect", *place(images), *given_words(*_LABEL_OPTIONS))
    report(facts, text, following)


@main.command(name="inspect")
@click.argument("folder", type=FOLDER, default=IMAGES)
@takes(_InspectCommand)
@takes(PrepareOptions, *_LABEL_FILES, section=_LABELS)
@takes(PrepareConfig, *_LABEL_FIELDS, section=_LABELS)
@takes(ReadingOptions, "device", section=RUNNING)
@takes(PrepareOptions, "workers", section=RUNNING)
@takes(ReportOptions, section=RUNNING)
def inspect_images(folder: Path, given: Given) -> None:
    """Summarise a folder of images, with or without labels, and give advice for training on it.

    With --model, also list the images that the model reads differently from their labels, the most
    confident first: these labels are often wrong.

    Example: captcha-ocr inspect my-captchas --model runs/default
    """
    with deferred():
        from captcha_ocr.cli.advice import advice_on_run
        from captcha_ocr.diagnostics import inspection
        from captcha_ocr.generation import looks
        from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
        from captcha_ocr.recognizer import Recognizer

    options, config = given[_InspectCommand], given[PrepareConfig]
    out, quiet = options.out, given[ReportOptions].quiet
    check(
        not out.resolve().is_relative_to(folder.resolve()),
        f"{out} lies in {folder}; choose another `out`",
    )
    with ProgressBar("inspect", quiet) as bar:
        found = inspection.inspect(folder, config, given[PrepareOptions], bar.show)
    recognizer = None
    if options.model_folder is not None:
        device = given[ReadingOptions].device
        recognizer = Recognizer(options.model_folder, device, max_bytes=config.max_bytes)
    lines = [with_flags(str(found)), f"{'picture':14}{out / inspection.SHEET_FILE}"]
    facts = found.summary()
    facts["sources"] = {with_flags(name): count for name, count in facts["sources"].items()}
    facts["advice"] = advice = [with_flags(sentence) for sentence in facts["advice"]]
    with writing_to(out):
        shown = random.Random(0).sample(found.labels, len(found.labels))
        tiles = [Tile(folder / label.file, label.file, label.text) for label in shown]
        draw_sheet(tiles, out / inspection.SHEET_FILE, config.max_bytes)
        if options.model_folder is not None and recognizer is not None and found.texts:
            facts["wrong"], wrong_lines = _list_wrong(recognizer, found, out, quiet)
            lines += wrong_lines
            advice += inspection.advice_on_wrong(len(facts["wrong"]), len(found.labels))
            advice += advice_on_run(options.model_folder)
    nearest = looks.find_designs(folder, [label.file for label in shown], config.max_bytes)[0]
    facts["looks_like"] = nearest.design if nearest.is_near else None
    if nearest.is_near:
        command = word_command(nearest.training)
        lines.append(f"{'looks like':14}{nearest.design}, which needs no image: {command}")
    lines += [f"{'advice':14}{sentence}" for sentence in advice]
    following = _command_after_inspection(found, options.model_folder, config)
    report(facts, "\n".join(lines), following)


def _command_after_inspection(
    found: "Inspection", model_folder: Path | None, config: PrepareConfig
) -> str | None:
    """Return the command that adapts to images without labels, or labels them, writes a table to
    correct labels in, or prepares the images.
    """
    from captcha_ocr.experiments.adaptation import adapt_command

    folder = found.folder
    are_many = len(found.contents.images) >= FEWEST_IMAGES
    if are_many and (found.contents.readings or found.lacks_labels):
        words = given_words("labels", "charset", "lengths", "max_bytes", "device")
        return " ".join([word_command(adapt_command(folder)), *map(shlex.quote, words)])
    if not found.texts:
        return word_command(Command("label", (folder,)))
    if model_folder is None:
        preparation = _preparation_after(folder, *given_words(*_LABEL_OPTIONS))
        is_ready = len(found.labels) >= _LEAST and not found.contents.readings
        return preparation if is_ready else None
    words = ["--model", *place(Path(name_model(model_folder)))]
    words += ["--out", str(find_unused(Path("corrections.csv")))]
    words += given_words("max_bytes", "device")
    with suppress(CaptchaOcrError):  # --charset and --length go with a model that knows them
        from captcha_ocr.inference.decoding import allowed_classes

        model = read_model_config(find_model_folder(model_folder))
        allowed_classes(model, config.charset, config.lengths)
        words += given_words("charset", "lengths")
    return command_line("eval", *place(folder), *words)


def _list_wrong(
    recognizer: "Recognizer", found: "Inspection", out: Path, quiet: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Draw the images that a model reads differently from their labels; return them as JSON types
    and as lines.
    """
    from captcha_ocr.diagnostics.inspection import WRONG_FILE, read_wrong
    from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
    from captcha_ocr.system.memory import keep_freed_memory

    keep_freed_memory()
    with ProgressBar("read", quiet) as bar:
        wrong = read_wrong(recognizer, found, bar.show)
    lines = [f"{'read wrong':14}{len(wrong):,} of {len(found.labels):,}, most confident first"]
    rows, tiles = [], []
    for label, reading in wrong:
        rows.append(
            {
                "file": label.file,
                "label": label.text,
                "text": reading.text,
                "confidence": reading.confidence,
            }
        )
        columns = label.text, f"read as {reading.text}", f"{reading.confidence:.4f}"
        lines.append("\t".join([escape(label.file), *columns]))
        truth = recognizer.config.charset.normalize(label.text)
        path = found.folder / label.file
        tiles.append(Tile(path, label.file, truth, reading.text, reading.confidence))
    if wrong:
        draw_sheet(tiles, out / WRONG_FILE, recognizer.max_bytes)
        lines.append(f"{'picture':14}{out / WRONG_FILE}")
    return rows, lines
