"""The commands that compute: train, curve, export, bench, doctor."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import (
    FOLDER,
    RUN,
    SHARDS,
    Command,
    device_option,
    force_option,
    json_option,
    next_command,
    option,
    parse_numbers,
    quiet_option,
    report,
    seed_option,
)
from captcha_ocr.config import FEW, PRESETS, Loss, Precision, Schedule, TrainConfig, preset_for, preset_named
from captcha_ocr.errors import UsageError
from captcha_ocr.system.parallel import rank_and_world_size
from captcha_ocr.system.signals import deferred


def training_option(name: str, field: str, help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """An option of `train` that overrides the preset; the help shows every preset's value."""
    values = [getattr(preset.training, field) for preset in PRESETS.values()]
    shown = " or ".join(dict.fromkeys(str(value) for value in values if value is not None))
    default = f"  [default: {shown}, by preset]" if len(set(values)) > 1 else f"  [default: {shown}]"
    return click.option(name, field, help=help_text + (default if shown else ""), **settings)


@main.command()
@option(
    "--data",
    type=FOLDER,
    default=(SHARDS,),
    multiple=True,
    help="A folder of shards; given several times, all of them.",
)
@option("--out", type=FOLDER, default=RUN, help="The run folder to write.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help=f"Network and recipe.  [default: few below {FEW:,} images to train on, else default]",
)
@training_option("--epochs", "epochs", "At most.  [default: derived from the number of images]", type=int)
@training_option("--patience", "patience", "Epochs without a better validation that end the run.", type=int)
@training_option("--batch-size", "batch_size", "Images a step.", type=int)
@training_option("--lr", "learning_rate", "The highest learning rate.", type=float)
@training_option("--schedule", "schedule", "Its course.", type=click.Choice(get_args(Schedule)))
@training_option("--loss", "loss", "Binary or plain cross-entropy.", type=click.Choice(get_args(Loss)))
@training_option("--images", "images", "Train on so many images alone.  [default: all]", type=int)
@option("--cross-validate", is_flag=True, help="Train on every fold that prepare --folds made; pool their tests.")
@option("--init", type=FOLDER, help="Start from a trained model, of whatever alphabet, length and size.")
@option("--resume", default="auto", metavar="auto|never|PATH", help="Go on with an unfinished run.")
@option(
    "--stream", is_flag=True, help="Read images from disk every epoch.  [default: only where half the memory is less]"
)
@training_option("--precision", "precision", "auto: bf16 where it is native.", type=click.Choice(get_args(Precision)))
@option("--keep-every", type=click.IntRange(1), metavar="N", help="Keep the checkpoint of every Nth epoch for good.")
@option("--tensorboard", is_flag=True, help="Write the metrics for TensorBoard too, into its folder in OUT.")
@option("--seed", type=click.IntRange(0), default=0, help="Where all chance comes from.")
@device_option
@force_option
@quiet_option
@json_option
def train(
    data: tuple[Path, ...],
    out: Path,
    preset: str | None,
    cross_validate: bool,
    init: Path | None,
    resume: str,
    stream: bool,
    keep_every: int | None,
    tensorboard: bool,
    device: str,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a ResNet-18 on shards; score the test set once, at the end.

    Example: captcha-ocr train --data data/shards --out runs/mine --epochs 12
    """
    from dataclasses import asdict

    with deferred():
        from captcha_ocr.diagnostics import cross_validation
        from captcha_ocr.training import train as training
        from captcha_ocr.training.run import TrainOptions
        from captcha_ocr.training.run_folder import BEST

    if cross_validate and (len(data) > 1 or rank_and_world_size()[1] > 1 or resume not in ("auto", "never")):
        raise UsageError("--cross-validate takes one --data, one process and no --resume PATH")
    shards = cross_validation.find_folds(data[0])[:1] if cross_validate else data
    config = recipe(preset, shards, init, options)
    how = TrainOptions(device, init, resume, stream, force, quiet, keep_every, tensorboard)
    if cross_validate:
        scores = cross_validation.cross_validate(data[0], out, config, how)
        found = {"out": str(out), "test": scores.summary()}
        report(as_json, found, str(scores), next_command("eval image.png", out / "fold-1", RUN, "--model "))
        return
    finished = training.train(data, out, config, how)
    if rank_and_world_size()[0] > 0:
        return  # the first process speaks for all
    low, high = finished.test["interval"] if finished.test else (0.0, 1.0)
    score = (
        f"test exact match {finished.test['exact_match']:.2%} of {finished.test['images']:,} "
        f"(95 % interval {low:.2%} to {high:.2%}), per character {finished.test['character_accuracy']:.2%}"
        if finished.test
        else "no test set to score"
    )
    report(
        as_json,
        {"out": str(out), **asdict(finished)},
        f"{out / BEST}: {score}",
        next_command("eval image.png", out, RUN, "--model "),
    )


def recipe(preset: str | None, shards: Sequence[Path], init: Path | None, options: dict[str, Any]) -> TrainConfig:
    """The training of the preset that is named, or that the number of images asks for, with some options of its own."""
    from captcha_ocr.data.shards import read_dataset

    def with_options(name: str) -> TrainConfig:
        config = preset_named(name).training
        return (config if init is None else config.from_a_model()).with_options(**options)

    config = with_options(preset or "default")  # refused before anything is read
    if preset is not None:
        return config
    return with_options(preset_for(options["images"] or read_dataset(shards).count("train")))


@main.command()
@click.argument("data", type=FOLDER, default=SHARDS)
@option("--out", type=FOLDER, default=Path("runs/curve"), help="The folder to write.")
@option("--images", callback=parse_numbers(","), metavar="N,N,…", help="Numbers of images.  [default: 100,300,1000,…]")
@option("--epochs", type=int, help="At most, each time.  [default: derived from the number of images]")
@option("--init", type=FOLDER, help="Start each time from this trained model's weights.")
@seed_option
@device_option
@force_option
@quiet_option
@json_option
def curve(
    data: Path,
    out: Path,
    images: tuple[int, ...],
    epochs: int | None,
    init: Path | None,
    seed: int,
    device: str,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Train on more and more images of DATA, and say how accuracy grows with them.

    Example: captcha-ocr curve data/shards --images 100,300,1000
    """
    from dataclasses import asdict

    with deferred():
        from captcha_ocr.diagnostics import learning_curve as curves
        from captcha_ocr.training.run import TrainOptions

    def recipe_for(number: int) -> TrainConfig:
        return recipe(None, (), init, {"images": number, "epochs": epochs, "seed": seed})

    options = TrainOptions(device=device, init=init, force=force, quiet=quiet)
    points = curves.learning_curve(data, out, recipe_for, images, options)
    outlook = curves.outlook(points)
    report(
        as_json,
        {"out": str(out), "points": [asdict(point) for point in points], "outlook": outlook},
        "\n".join([*map(str, points), *outlook, f"{out / curves.PICTURE_FILE}"]),
        next_command("eval image.png", out / f"images-{points[-1].images}", RUN, "--model "),
    )
