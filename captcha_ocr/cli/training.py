"""The commands that train: train, curve."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from captcha_ocr.charset import NAMED
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
    device_option,
    force_option,
    given,
    json_option,
    length_option,
    option,
    parse_numbers,
    parse_size,
    quiet_option,
    read_command,
    report,
    seed_option,
    threads_option,
)
from captcha_ocr.config import (
    FEW,
    PRESETS,
    Loss,
    Precision,
    Schedule,
    TrainConfig,
    derive_epochs,
    preset_for,
    preset_named,
)
from captcha_ocr.errors import UsageError
from captcha_ocr.system.parallel import rank_and_world_size
from captcha_ocr.system.signals import deferred
from captcha_ocr.training.draw_options import DrawOptions, draw_option


def training_option(
    name: str, field: str, help_text: str, **settings: Any
) -> Callable[[Command], Command]:
    """Return an option of `train` that overrides the preset; its help shows the value of every preset."""
    values = [getattr(preset.training, field) for preset in PRESETS.values()]
    defaults = " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
    if defaults:
        help_text += f"  [default: {defaults}{', by preset' if len(set(values)) > 1 else ''}]"
    return click.option(name, field, help=help_text, **settings)


def with_draw(help_text: str, default: object = None) -> str:
    """Return the help of an option that only --draw has."""
    return f"With --draw: {help_text}" + ("" if default is None else f"  [default: {default}]")


NOT_WITH_DRAW = ("data", "stream", "cross_validate")
DRAWING = ("lengths", "charset", "case_sensitive", "fonts", "size", "channels", "repeat", "workers")
draw_options = add_options(
    option(
        "--draw",
        metavar="DESIGN",
        multiple=True,
        help="Draw images of this design; designs take turns.",
    ),
    length_option(with_draw("characters per text.", "the design's")),
    charset_option(with_draw(f"characters, or one of {', '.join(NAMED)}.", "the design's")),
    option("--case-sensitive", is_flag=True, help=with_draw("distinguish upper and lower case.")),
    option(
        "--fonts",
        type=PATH,
        multiple=True,
        help=with_draw("a font file, or a folder of fonts; may be repeated."),
    ),
    option(
        "--size",
        metavar="WIDTHxHEIGHT",
        callback=parse_size,
        help=with_draw("the network's input.", "as prepare"),
    ),
    option(
        "--channels",
        type=click.Choice(["1", "3"]),
        help=with_draw("grey or colour input.", "as prepare"),
    ),
    option(
        "--repeat",
        type=click.IntRange(1),
        help=with_draw("epochs that show an image.", DrawOptions.repeat),
    ),
    option(
        "--workers",
        type=click.IntRange(1, 256),
        help=with_draw("processes that draw.", "one per processor"),
    ),
)


@main.command()
@option(
    "--data",
    type=FOLDER,
    default=(SHARDS,),
    multiple=True,
    help="A folder of shards; may be repeated.",
)
@draw_options
@option("--out", type=FOLDER, default=RUN, help="The run folder to write.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help=f"Network and training options.  [default: as prepare, few below {FEW:,} training images, else default]",
)
@training_option(
    "--epochs",
    "epochs",
    "Maximum number of epochs.  [default: from the number of images]",
    type=int,
)
@training_option(
    "--patience", "patience", "Stop after so many epochs without a better validation.", type=int
)
@training_option("--batch-size", "batch_size", "Images per step.", type=int)
@training_option("--lr", "learning_rate", "Maximum learning rate.", type=float)
@training_option(
    "--schedule", "schedule", "Learning rate schedule.", type=click.Choice(get_args(Schedule))
)
@training_option(
    "--loss", "loss", "Binary or categorical cross-entropy.", type=click.Choice(get_args(Loss))
)
@training_option(
    "--images",
    "images",
    f"Train on the first so many images, or draw so many.  [default: all, or {DrawOptions.images:,}]",
    type=int,
)
@option(
    "--cross-validate",
    is_flag=True,
    help="Train on each fold that prepare --folds made, and score all test sets.",
)
@option(
    "--init",
    type=MODEL,
    help="Start from a trained model of any alphabet, length and size, or pretrained.",
)
@option("--resume", default="auto", metavar="auto|never|PATH", help="Continue an unfinished run.")
@option(
    "--stream",
    is_flag=True,
    help="Read images from disk in every epoch.  [default: if memory is short]",
)
@training_option(
    "--precision",
    "precision",
    "auto: bf16 if native to the device.",
    type=click.Choice(get_args(Precision)),
)
@option(
    "--keep-every",
    type=click.IntRange(1),
    metavar="N",
    help="Keep the checkpoint of every Nth epoch.",
)
@option("--tensorboard", is_flag=True, help="Also write the metrics for TensorBoard, into OUT.")
@add_options(seed_option, device_option, threads_option, force_option, quiet_option, json_option)
def train(
    data: tuple[Path, ...],
    draw: tuple[str, ...],
    out: Path,
    preset: str | None,
    cross_validate: bool,
    init: Path | None,
    resume: str,
    stream: bool,
    keep_every: int | None,
    tensorboard: bool,
    device: str,
    threads: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a ResNet-18 on shards, or on images that are drawn meanwhile, and score it on a test set at the end.

    If the run in --out is unfinished, continue it.

    Example: captcha-ocr train --data data/shards --out runs/mine --epochs 12
    """
    from dataclasses import asdict

    with deferred():
        from captcha_ocr.diagnostics import cross_validation
        from captcha_ocr.training import train as training
        from captcha_ocr.training.run.folder import BEST
        from captcha_ocr.training.run.spec import TrainOptions

    if cross_validate and (
        len(data) > 1 or rank_and_world_size()[1] > 1 or resume not in ("auto", "never")
    ):
        raise UsageError("--cross-validate takes one --data, one process and no --resume PATH")
    drawing = drawing_of(draw, options)
    shards = cross_validation.find_folds(data[0])[:1] if cross_validate else data
    config = recipe(preset, drawing or shards, init, options)
    how = TrainOptions(device, init, resume, stream, force, quiet, keep_every, tensorboard, threads)
    if cross_validate:
        scores = cross_validation.cross_validate(data[0], out, config, how)
        found = {"out": str(out), "test": scores.summary()}
        report(as_json, found, str(scores), read_command(out / "fold-1", source_of(shards[0])))
        return
    finished = training.train(drawing or data, out, config, how)
    if rank_and_world_size()[0] > 0:
        return  # the main process reports the result
    report(
        as_json,
        {"out": str(out), **asdict(finished)},
        f"{out / BEST}: {score_line(finished.test)}",
        read_command(out, source_of(data[0]) if drawing is None else None),
    )


def drawing_of(designs: tuple[str, ...], options: dict[str, Any]) -> DrawOptions | None:
    """Take the options of --draw out of the options; None without it. UsageError for options that do not fit."""
    taken = {name: value for name in DRAWING if (value := options.pop(name))}
    if "lengths" in taken:
        taken["length"] = str(taken.pop("lengths"))
    if not designs:
        for name in taken:
            raise UsageError(
                f"{draw_option(name)} is for images that --draw draws; add --draw, or leave it out"
            )
        return None
    for name in NOT_WITH_DRAW:
        if given(name):
            raise UsageError(f"--draw and --{name.replace('_', '-')} exclude each other")
    if "channels" in taken:
        taken["channels"] = int(taken["channels"])
    images = options.pop("images")
    if images is not None:
        taken["images"] = images
    taken["fonts"] = tuple(map(str, taken.get("fonts", ())))
    return DrawOptions(designs, **taken)


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
    preset: str | None,
    data: Sequence[Path] | DrawOptions,
    init: Path | None,
    options: dict[str, Any],
) -> TrainConfig:
    """Return the training options: those given, else those of the preset; the number of images may select it."""
    from dataclasses import replace

    from captcha_ocr.data.shards import read_dataset

    def with_options(name: str) -> TrainConfig:
        config = preset_named(name).training
        if init is not None:
            config = config.for_fine_tuning(isinstance(data, DrawOptions))
        return config.with_options(**options)

    config = with_options(
        preset or "default"
    )  # raises errors in the options before anything is read
    if preset is not None:
        return config
    if isinstance(data, DrawOptions):
        return with_options(
            preset_for(
                data.different(derive_epochs(replace(config, epochs=None), data.images) or 1)
            )
        )
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
    from dataclasses import asdict

    with deferred():
        from captcha_ocr.diagnostics import learning_curve as curves
        from captcha_ocr.training.run.spec import TrainOptions

    def recipe_for(number: int) -> TrainConfig:
        return recipe(None, [data], init, {"images": number, "epochs": epochs, "seed": seed})

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
