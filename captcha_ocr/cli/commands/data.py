"""The commands for images: generate, prepare, inspect."""

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from captcha_ocr.charset import NAMED_ALPHABETS, shorten
from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FILE,
    FOLDER,
    IMAGES,
    MODEL,
    NEW_FILE,
    PATH,
    RUN,
    SHARDS,
    add_options,
    charset_option,
    check_charset,
    declared_option,
    declared_options,
    device_option,
    escape,
    force_option,
    given,
    json_option,
    length_option,
    named_option,
    next_command,
    option,
    parse_numbers,
    place,
    quiet_option,
    report,
    seed_option,
    size_option,
    workers_option,
)
from captcha_ocr.cli.wording import with_flags
from captcha_ocr.errors import CaptchaOcrError, check, in_one_line
from captcha_ocr.inference.model_folder import (
    default_model,
    find_model_folder,
    name_model,
    read_model_config,
)
from captcha_ocr.options.drawing import (
    CLASSIC_WARP,
    DEFAULT_DESIGN,
    OFTEN,
    WARPS,
    DrawingOptions,
    Renderer,
)
from captcha_ocr.options.preparation import MAX_FOLDS, SPLITS, PrepareConfig
from captcha_ocr.options.training import FEWEST, PRESETS, preset_for
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    from captcha_ocr.data.prepare import Prepared
    from captcha_ocr.data.shards import Manifest
    from captcha_ocr.diagnostics.inspection import Inspection
    from captcha_ocr.recognizer import Recognizer

LEAST = 4  # images that prepare and train need
LABEL_OPTIONS = (
    "labels",
    "corrections",
    "max_bytes",
    "label_pattern",
    "charset",
    "lengths",
    "case_sensitive",
)
LABELS, SHARDS_MADE = "Labels", "Shards"  # headings in the help
DESIGN_HELP = "The look: see docs/designs.md; LEVEL is easy, medium or hard."
WARP_HELP = "Warp of the captcha package, or the stronger one of its versions before 0.7.1."
RENDERER_HELP = "Code that draws the design captcha: ours, or that of the captcha package."


# What is drawn, beside the design itself.
drawing_options = add_options(
    length_option("Characters per text, or their minimum and maximum.  [default: the design's]"),
    charset_option(f"Characters, or one of {', '.join(NAMED_ALPHABETS)}.  [default: the design's]"),
    option(
        "--fonts",
        type=PATH,
        multiple=True,
        help="A font file, or a folder of fonts; may be repeated.",
    ),
)


@main.command()
@option("--out", type=FOLDER, default=IMAGES, help="The folder to write.")
@option("--count", default=DrawingOptions.count, help="Number of images.")
@option(
    "--start",
    default=DrawingOptions.start,
    help="Number of the first image, to share work over machines.",
)
@option(
    "--design", default=DrawingOptions.design, metavar="NAME|FILE|random[:LEVEL]", help=DESIGN_HELP
)
@drawing_options
@option(
    "--designs",
    type=click.IntRange(1),
    help="Draw so many random designs and reuse them.  [default: one an image]",
)
@option(
    "--save-designs",
    type=NEW_FILE,
    help="Write the random designs to this file, which --design takes again.",
)
@size_option
@option(
    "--often",
    metavar="CHARACTERS",
    help=f"Characters that come {OFTEN} times as often as others, such as 0O.",
)
@option(
    "--font-sizes",
    callback=parse_numbers(","),
    help="Font sizes to choose from.  [default: the design's]",
)
@option(
    "--warp", type=click.Choice([*WARPS.values()]), default=WARPS[DEFAULT_DESIGN], help=WARP_HELP
)
@option(
    "--renderer",
    type=click.Choice(get_args(Renderer)),
    default=DrawingOptions.renderer,
    help=RENDERER_HELP,
)
@add_options(seed_option, workers_option, force_option, quiet_option, json_option)
def generate(
    out: Path,
    size: tuple[int, int] | None,
    fonts: tuple[Path, ...],
    warp: str,
    save_designs: Path | None,
    workers: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw labelled captchas: with the look of the captcha package, or of any design (docs/designs.md).

    Example: captcha-ocr generate --count 1000 --design random --charset digits --length 6
    """
    with deferred():
        from captcha_ocr.generation import folder as synth
        from captcha_ocr.generation.plan import plan_drawing
        from captcha_ocr.system.console import ProgressBar, counted

    if size is not None:
        options["width"], options["height"] = size
    if warp == WARPS[CLASSIC_WARP]:
        name = options["design"]
        check(name == DEFAULT_DESIGN, f"--warp is for the design {DEFAULT_DESIGN}, not for {name}")
        options["design"] = CLASSIC_WARP
    drawing = DrawingOptions(**options, fonts=tuple(map(str, fonts)))
    check(save_designs is None or drawing.level is not None, "--save-designs is for random designs")
    plan = plan_drawing(drawing)
    with ProgressBar("generate", quiet) as bar:
        done = synth.generate(plan, out, workers, force, bar.show)
    if save_designs is not None:
        with ProgressBar("designs", quiet) as bar:
            synth.save_designs(plan, save_designs, workers, bar.show)
    if done.redrawn and not quiet:
        left = (
            f"; {counted(done.illegible, 'image')} could not be read after some tries"
            if done.illegible
            else ""
        )
        click.echo(
            f"legible   {counted(done.redrawn, 'illegible image')} drawn again{left}", err=True
        )
    drawn = f"{counted(done.drawn, 'image')} drawn" if done.drawn else "all existed"
    report(
        as_json,
        {"out": str(out), "images": drawing.count, **done._asdict()},
        f"{out}: {counted(drawing.count, 'image')} of {plan.kind}; {drawn}",
        following_preparation(out)
        if len(plan.charset) > 1 and drawing.count >= LEAST
        else next_command("eval", *place(out)),
    )


def following_preparation(images: Path, *words: str) -> str:
    """Return the command that prepares the images in a folder, and leaves shards that are there as they are."""
    from captcha_ocr.data.shards import MANIFEST_FILE, read_manifest
    from captcha_ocr.system.files import find_unused

    more = given("workers")
    if (SHARDS / MANIFEST_FILE).exists():
        try:
            read_manifest(SHARDS)
        except CaptchaOcrError:
            more.append("--force")  # damaged shards may be replaced
        else:
            more += ["--out", str(find_unused(SHARDS))]
    return next_command("prepare", *place(images, IMAGES), *words, *more)


def following_training(out: Path, manifest: "Manifest", folds: int | None) -> str:
    """Return the command that trains on shards, and leaves a run on other shards as it is."""
    from captcha_ocr.data.shards import Dataset
    from captcha_ocr.system.documents import read_json
    from captcha_ocr.system.files import find_unused

    # `default` is the size that any preset takes: train chooses one by the number of images.
    words = place(out, SHARDS, "--data") + [
        word for word in given("preset") if word != "--preset=default"
    ]
    part = "fold-1" if folds else ""
    if (RUN / part / "run.json").exists():
        with suppress(CaptchaOcrError):
            if (
                read_json(RUN / part / "run.json").get("data")
                != Dataset((out / part,), (manifest,)).sha256
            ):
                words += ["--out", str(find_unused(RUN))]
    return next_command("train", *["--cross-validate"] * bool(folds), *words)


label_options = add_options(
    option(
        "--labels",
        type=FILE,
        section=LABELS,
        help="CSV with filename,text[,split].  [default: labels.csv in the folder]",
    ),
    option(
        "--corrections",
        type=FILE,
        section=LABELS,
        help="CSV with filename,text whose rows replace other labels.",
    ),
    declared_option(PrepareConfig, "label_pattern", section=LABELS),
    declared_option(PrepareConfig, "charset", callback=named_option(check_charset), section=LABELS),
    declared_option(PrepareConfig, "lengths", section=LABELS),
    declared_options(PrepareConfig, "case_sensitive", "max_bytes", section=LABELS),
)


@main.command()
@click.argument("images", type=FOLDER, default=IMAGES)
@option("--out", type=FOLDER, default=SHARDS, help="The folder to write.")
@label_options
@add_options(workers_option, force_option, quiet_option, json_option)
@declared_option(PrepareConfig, "preset", type=click.Choice(list(PRESETS)), section=SHARDS_MADE)
@declared_options(PrepareConfig, "size", "channels", section=SHARDS_MADE)
@declared_option(
    PrepareConfig,
    "split",
    default="80/10/10",
    type=str,
    multiple=False,
    callback=parse_numbers("/"),
    section=SHARDS_MADE,
)
@option(
    "--folds",
    type=click.IntRange(2, MAX_FOLDS),
    section=SHARDS_MADE,
    help="Make this many folds for train --cross-validate.",
)
@declared_option(PrepareConfig, "seed", section=SHARDS_MADE)
@option("--strict", is_flag=True, help="Exit with 1 if an image or a label is left out.")
def prepare(
    images: Path,
    out: Path,
    labels: Path | None,
    corrections: Path | None,
    folds: int | None,
    strict: bool,
    workers: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Turn a folder of labelled images into tensor shards.

    Labels come from labels.csv, from text files beside the images, or from the names of the files (TEXT.png,
    TEXT_anything.png) or folders. --label-pattern takes its group `text`, else its first group, else the whole match.

    Example: captcha-ocr prepare my-captchas --label-pattern '_(.+)\\.png$'
    """
    with deferred():
        from captcha_ocr.data import folds as folds_of
        from captcha_ocr.data import prepare as preparation
        from captcha_ocr.diagnostics.inspection import advice_on_tables
        from captcha_ocr.system.console import ProgressBar, count_kinds, in_groups

    config = PrepareConfig(**options)
    with ProgressBar("prepare", quiet) as bar:
        how = preparation.PrepareOptions(labels, corrections, workers, force, bar.show)
        if folds is None:
            prepared = first = preparation.prepare(images, out, config, how)
        else:
            first, *others = folds_of.prepare_folds(images, out, folds, config, how)
            # Every fold leaves out the same files, but only a fold that was made now lists all of them.
            prepared = next((fold for fold in (first, *others) if not fold.already_there), first)
    rows = [*prepared.found.rows(), ("odd images", count_kinds(prepared.oddities))]
    rows += [
        ("left out", line) for line in in_groups(prepared.problems) or prepared.manifest.reasons
    ]
    advice = advice_on_tables(prepared.found, [label.text for label in prepared.found.labels])
    rows += [("advice", line) for line in advice]
    if preset_for(prepared.manifest.count("train"), prepared.manifest.size) == "finetune":
        rows.append(
            (
                "preset",
                f"finetune: fewer than {FEWEST:,} images train from the model in the package",
            )
        )
    if copies := prepared.manifest.copies:
        rows.append(("left out", f"{copies:,} byte-identical copies of other images"))
    for name, words in rows:
        if words:
            click.echo(f"{name:14}{with_flags(in_one_line(words))}", err=True)
    report_shards(images, out, replace(prepared, manifest=first.manifest), folds, as_json)
    if strict and first.manifest.left_out:
        sys.exit(1)


def report_shards(
    images: Path, out: Path, prepared: "Prepared", folds: int | None, as_json: bool
) -> None:
    """Print the result of prepare."""
    manifest = prepared.manifest
    counts: dict[str, int] = {split: manifest.count(split) for split in SPLITS}
    case = manifest.charset.case
    facts = {
        "left_out": manifest.left_out,
        "copies": manifest.copies,
        "charset": manifest.charset.characters,
    }
    report(
        as_json,
        {
            "out": str(out),
            "folds": folds,
            **counts,
            **facts,
            "fold": case,
            "length": str(manifest.lengths),
        },
        f"{out}: {f'{folds} folds, in the first ' if folds else ''}"
        f"{', '.join(f'{count:,} {split}' for split, count in counts.items())}; "
        f"{manifest.left_out:,} left out; {manifest.size}\n"
        f"texts of {manifest.lengths} of the {len(manifest.charset)} characters {shorten(manifest.charset.characters)}"
        + (f", both cases read as {case} case" if case else "")
        + ("; all shards existed" if prepared.already_there else ""),
        following_training(out, manifest, folds)
        if manifest.count("train") > 1
        else next_command("inspect", *place(images), *given(*LABEL_OPTIONS)),
    )


@main.command(name="inspect")
@click.argument("folder", type=FOLDER, default=IMAGES)
@label_options
@option(
    "--model", "model_folder", type=MODEL, help="List the images that this model reads differently."
)
@option("--out", type=FOLDER, default=Path("runs/inspect"), help="The folder for the pictures.")
@add_options(device_option, workers_option, quiet_option, json_option)
def inspect_images(
    folder: Path,
    labels: Path | None,
    corrections: Path | None,
    model_folder: Path | None,
    out: Path,
    device: str,
    workers: int | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Summarise a folder of images, with or without labels, and give advice for training on it.

    With --model, also list the images that the model reads differently from their labels, the most confident first:
    these labels are often wrong.

    Example: captcha-ocr inspect my-captchas --model runs/default
    """
    with deferred():
        from captcha_ocr.cli.advice import advice_on_run
        from captcha_ocr.data.labels import LABELS_FILE
        from captcha_ocr.data.prepare import PrepareOptions
        from captcha_ocr.diagnostics import inspection
        from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
        from captcha_ocr.recognizer import Recognizer
        from captcha_ocr.system.console import ProgressBar
        from captcha_ocr.system.files import find_unused, writing_to

    check(
        not out.resolve().is_relative_to(folder.resolve()),
        f"{out} lies in {folder}; choose another --out",
    )
    config = PrepareConfig(**options)
    with ProgressBar("inspect", quiet) as bar:
        found = inspection.inspect(
            folder, config, PrepareOptions(labels, corrections, workers, progress=bar.show)
        )
    recognizer = (
        None
        if model_folder is None
        else Recognizer(model_folder, device, max_bytes=config.max_bytes)
    )
    lines = [with_flags(str(found)), f"{'picture':14}{out / inspection.SHEET_FILE}"]
    facts = found.summary()
    facts["sources"] = {with_flags(name): count for name, count in facts["sources"].items()}
    facts["advice"] = [with_flags(sentence) for sentence in facts["advice"]]
    advice = facts["advice"]
    with writing_to(out):
        tiles = [
            Tile(folder / label.file, label.file, label.text)
            for label in inspection.sample(found.labels)
        ]
        draw_sheet(tiles, out / inspection.SHEET_FILE, config.max_bytes)
        if model_folder is not None and recognizer is not None and found.texts:
            facts["wrong"], wrong_lines = list_wrong(recognizer, found, out, quiet)
            lines += wrong_lines
            advice += inspection.advice_on_wrong(len(facts["wrong"]), len(found.labels))
            advice += advice_on_run(model_folder)
    lines += [f"{'advice':14}{sentence}" for sentence in advice]
    if not found.texts:  # a draft of the labels
        table = ["--out", str(find_unused(folder / LABELS_FILE))]
        words = [
            *table,
            *given("model_folder", "max_bytes", "device"),
            *narrowing(model_folder, config),
        ]
        following = next_command("eval", *place(folder), *words)
    elif model_folder is not None:  # the table in which labels are corrected
        table = ["--out", str(find_unused(Path("corrections.csv")))]
        words = [
            "--model",
            *place(Path(name_model(model_folder))),
            *table,
            *given("max_bytes", "device"),
        ]
        following = next_command("eval", *place(folder), *words, *narrowing(model_folder, config))
    elif len(found.labels) >= LEAST:
        following = following_preparation(folder, *given(*LABEL_OPTIONS))
    else:
        following = None
    report(as_json, facts, "\n".join(lines), following)


def narrowing(model_folder: Path | None, config: PrepareConfig) -> list[str]:
    """Return --charset and --length as they were given, for eval with a model that knows them."""
    from captcha_ocr.inference.decoding import allowed_classes

    with suppress(CaptchaOcrError):
        model = read_model_config(find_model_folder(model_folder or default_model(RUN)))
        allowed_classes(model, config.charset, config.lengths)
        return given("charset", "lengths")
    return []


def list_wrong(
    recognizer: "Recognizer", found: "Inspection", out: Path, quiet: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Draw the images that a model reads differently from their labels; return them as JSON types and as lines."""
    from captcha_ocr.diagnostics.inspection import WRONG_FILE, read_wrong
    from captcha_ocr.pictures.contact_sheet import Tile, draw_sheet
    from captcha_ocr.system.console import ProgressBar
    from captcha_ocr.system.memory import keep_freed_memory

    keep_freed_memory()
    with ProgressBar("read", quiet) as bar:
        wrong = read_wrong(recognizer, found, bar.show)
    rows = [(label.file, label.text, reading.text, reading.confidence) for label, reading in wrong]
    lines = [f"{'read wrong':14}{len(wrong):,} of {len(found.labels):,}, most confident first"]
    lines += [
        f"{escape(file)}\t{label}\tread as {text}\t{confidence:.4f}"
        for file, label, text, confidence in rows
    ]
    if wrong:
        normalize = recognizer.config.charset.normalize
        tiles = [
            Tile(found.folder / file, file, normalize(label), text, score)
            for file, label, text, score in rows
        ]
        draw_sheet(tiles, out / WRONG_FILE, recognizer.max_bytes)
        lines.append(f"{'picture':14}{out / WRONG_FILE}")
    return [
        dict(zip(("file", "label", "text", "confidence"), row, strict=True)) for row in rows
    ], lines
