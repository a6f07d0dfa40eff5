"""The commands that train: train, curve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FOLDER,
    MODEL,
    PATH,
    RUN,
    SHARDS,
    Command,
    add_options,
    charset_option,
    declared_option,
    declared_options,
    device_option,
    force_option,
    given,
    json_option,
    length_option,
    option,
    parse_numbers,
    pick,
    quiet_option,
    read_command,
    report,
    seed_option,
    threads_option,
)
from captcha_ocr.errors import UsageError, check
from captcha_ocr.options.declaration import declarations, flag_for
from captcha_ocr.options.training import (
    PRESETS,
    DrawOptions,
    TrainConfig,
    TrainOptions,
    derive_epochs,
    preset_for,
    preset_named,
)
from captcha_ocr.system.console import say
from captcha_ocr.system.parallel import rank_and_world_size
from captcha_ocr.system.signals import deferred

TRAINING, RUNNING, DRAWING = "Training", "The run", "Images that --draw draws"
BY_HAND = ("preset", "init", "force", "quiet")  # what everybody needs first
NOT_WITH_DRAW = ("data", "stream", "cross_validate")


def preset_options() -> Callable[[Command], Command]:
    """Return a decorator that adds what `TrainConfig` declares; the help shows every preset's value."""
    added = []
    for name, declared in declarations(TrainConfig).items():
        if not declared.help or name in BY_HAND:
            continue
        values = [getattr(preset.training, name) for preset in PRESETS.values()]
        shown = declared.shown
        if shown is None:
            shown = " or ".join(dict.fromkeys(map(str, values)))
            shown += ", by preset" if len(set(values)) > 1 else ""
        added.append(
            declared_option(TrainConfig, name, shown=shown, default=None, section=TRAINING)
        )
    return add_options(*added)


def run_options() -> Callable[[Command], Command]:
    """Return a decorator that adds what `TrainOptions` declares."""
    names = [name for name in declarations(TrainOptions) if name not in BY_HAND]
    return declared_options(TrainOptions, *names, section=RUNNING)


@main.command()
@option(
    "--data",
    type=FOLDER,
    default=(SHARDS,),
    multiple=True,
    help="A folder of shards; may be repeated.",
)
@declared_option(DrawOptions, "designs", metavar="DESIGN", default=())
@option("--out", type=FOLDER, default=RUN, help="The run folder to write.")
@declared_option(TrainConfig, "preset", default=None, type=click.Choice(list(PRESETS)))
@declared_option(TrainOptions, "init", type=MODEL)
@add_options(force_option, quiet_option, json_option)
@preset_options()
@option(
    "--cross-validate",
    is_flag=True,
    section=RUNNING,
    help="Train on each fold that prepare --folds made, and score all test sets.",
)
@run_options()
@length_option("Characters per text.  [default: the design's]", section=DRAWING)
@charset_option(
    f"Characters, or one of {', '.join(NAMED_ALPHABETS)}.  [default: the design's]", section=DRAWING
)
@declared_option(DrawOptions, "case_sensitive", section=DRAWING)
@declared_option(DrawOptions, "fonts", type=PATH, section=DRAWING)
@declared_options(DrawOptions, "size", "channels", section=DRAWING)
@declared_option(DrawOptions, "repeat", default=None, section=DRAWING)
@declared_option(DrawOptions, "workers", type=click.IntRange(1, 256), section=DRAWING)
def train(
    data: tuple[Path, ...], out: Path, cross_validate: bool, as_json: bool, **options: Any
) -> None:
    """Train a ResNet-18 on shards, or on images that are drawn meanwhile, and score it on a test set at the end.

    If the run in --out is unfinished, continue it.

    Example: captcha-ocr train --data data/shards --out runs/mine --epochs 12
    """
    with deferred():
        from captcha_ocr.cli.advice import advice_on_run
        from captcha_ocr.experiments import cross_validation
        from captcha_ocr.training import train as training
        from captcha_ocr.training.run.folder import BEST

    how = TrainOptions(**pick(TrainOptions, options))
    if cross_validate:
        is_one = len(data) == 1 and rank_and_world_size()[1] == 1
        refusal = "--cross-validate takes one --data, one process and no --resume PATH"
        check(is_one and how.resume in ("auto", "never"), refusal)
    drawing = drawing_of(options)
    shards = cross_validation.find_folds(data[0])[:1] if cross_validate else data
    config = recipe(drawing or shards, how.init, pick(TrainConfig, options))
    if cross_validate:
        scores = cross_validation.cross_validate(data[0], out, config, how)
        facts = {"out": str(out), "test": scores.summary()}
        report(as_json, facts, str(scores), read_command(out / "fold-1", source_of(shards[0])))
        return
    finished = training.train(drawing or data, out, config, how)
    if rank_and_world_size()[0] > 0:
        return  # the main process reports the result
    for sentence in advice_on_run(out):
        say(f"advice     {sentence}", how.quiet)
    report(
        as_json,
        {"out": str(out), **asdict(finished)},
        f"{out / BEST}: {score_line(finished.test)}",
        read_command(out, source_of(data[0]) if drawing is None else None),
    )


def drawing_of(options: dict[str, Any]) -> DrawOptions | None:
    """Return the options of --draw among those of train; None without it. UsageError for options that do not fit."""
    given_values = pick(DrawOptions, options) | {"length": options["lengths"]}
    taken = {
        name: value
        for name, value in given_values.items()
        if not (value is None or value is False or value == ())
    }
    if "designs" not in taken:
        for name in taken.keys() - {"images"}:
            refusal = "is for images that --draw draws; add --draw, or leave it out"
            raise UsageError(f"{flag_for(name)} {refusal}")
        return None
    for name in NOT_WITH_DRAW:
        check(not given(name), f"--draw and {flag_for(name)} exclude each other")
    if "length" in taken:
        taken["length"] = str(taken["length"])
    if "fonts" in taken:
        taken["fonts"] = tuple(map(str, taken["fonts"]))
    options["images"] = None  # of an epoch, and not the first so many
    return DrawOptions(**taken)


def source_of(shards: Path) -> Path:
    """Return the folder of the images that became shards, as prepare was given it."""
    from captcha_ocr.data.shards import read_manifest

    return Path(read_manifest(shards).source)


def score_line(test: Mapping[str, Any] | None) -> str:
    """Return the scores of the test set in one line."""
    if test is None:
        return "no test set to score"
    low, high = test["interval"]
    return (
        f"test exact match {test['exact_match']:.2%} of {test['images']:,} "
        f"(95 % interval {low:.2%} to {high:.2%}), per character {test['character_accuracy']:.2%}"
    )


def recipe(
    data: Sequence[Path] | DrawOptions, init: Path | None, options: Mapping[str, Any]
) -> TrainConfig:
    """Return the training options: those given, else those of the preset; the number of images may select it."""
    from captcha_ocr.data.shards import read_dataset

    preset = options.get("preset")
    is_drawn = isinstance(data, DrawOptions)

    def with_options(name: str) -> TrainConfig:
        config = preset_named(name).training
        if init is not None:
            config = config.for_fine_tuning(is_drawn)
        return config.with_options(**{**options, "preset": None})

    config = with_options(
        preset or "default"
    )  # raises errors in the options before anything is read
    if preset is not None:
        return config
    if isinstance(data, DrawOptions):
        epochs = derive_epochs(replace(config, epochs=None), data.images) or 1
        return with_options(preset_for(data.different(epochs)))
    dataset = read_dataset(data)
    return with_options(preset_for(options["images"] or dataset.count("train"), dataset.size))


@main.command()
@click.argument("data", type=FOLDER, default=SHARDS)
@option("--out", type=FOLDER, default=Path("runs/curve"), help="The folder to write.")
@option(
    "--images",
    callback=parse_numbers(","),
    metavar="N,N,…",
    help="Numbers of images.  [default: 100,300,1000,…]",
)
@option(
    "--epochs",
    type=int,
    help="Maximum number of epochs, each time.  [default: from the number of images]",
)
@option(
    "--init",
    type=MODEL,
    help="Start each time from the weights of this trained model, or of pretrained.",
)
@add_options(seed_option, device_option, threads_option, force_option, quiet_option, json_option)
def curve(
    data: Path,
    out: Path,
    images: tuple[int, ...],
    epochs: int | None,
    init: Path | None,
    seed: int,
    device: str,
    threads: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train on more and more images of DATA, and print how the accuracy grows.

    Example: captcha-ocr curve data/shards --images 100,300,1000
    """
    with deferred():
        from captcha_ocr.experiments import learning_curve as curves

    def recipe_for(number: int) -> TrainConfig:
        return recipe([data], init, {"images": number, "epochs": epochs, "seed": seed})

    options = TrainOptions(device=device, init=init, force=force, quiet=quiet, threads=threads)
    points = curves.learning_curve(data, out, recipe_for, images, options)
    outlook = curves.outlook(points)
    report(
        as_json,
        {"out": str(out), "points": [asdict(point) for point in points], "outlook": outlook},
        "\n".join(
            [curves.POINTS.header, *map(str, points), *outlook, f"{out / curves.PICTURE_FILE}"]
        ),
        read_command(out / f"images-{points[-1].images}", source_of(data)),
    )
