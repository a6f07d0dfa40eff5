"""The commands that train: train, curve, adapt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, Function, Given, is_set, takes
from captcha_ocr.cli.wording import given_words, read_command, report, word_command
from captcha_ocr.errors import Command, check
from captcha_ocr.options.adapting import AdaptOptions
from captcha_ocr.options.declaration import Options, declarations, option
from captcha_ocr.options.preparation import PrepareConfig, PrepareOptions
from captcha_ocr.options.shared import RUN, SHARDS, ReadingOptions, ReportOptions, parse_numbers
from captcha_ocr.options.training import (
    PRESETS,
    DrawOptions,
    TrainConfig,
    TrainOptions,
    derive_epochs,
    preset_for,
    preset_named,
)
from captcha_ocr.system.console import ProgressBar, counted, say
from captcha_ocr.system.processors import rank_and_world_size
from captcha_ocr.system.signals import deferred

_TRAINING, _RUNNING, _DRAWING = "Training", "The run", "Images that --draw draws"
_TEXTS = "The texts, if you know them"
_FIRST = ("preset", "init", "force", "quiet")  # what everybody needs stands first
_NOT_WITH_DRAW = ("data", "stream", "cross_validate")


@dataclass(frozen=True, eq=False, repr=False)
class _TrainCommand(Options):
    data: tuple[Path, ...] = option(
        (), "A folder of shards; may be repeated.", shown=str(SHARDS), path="folder"
    )
    out: Path = option(RUN, "The run folder to write.", path="folder")
    cross_validate: bool = option(
        False, "Train on each fold that prepare --folds made, and score all test sets."
    )


@dataclass(frozen=True, eq=False, repr=False)
class _CurveCommand(Options):
    out: Path = option(Path("runs/curve"), "The folder to write.", path="folder")
    images: tuple[int, ...] = option(
        (),
        "Numbers of images.",
        metavar="N,N,…",
        shown="100,300,1000,…",
        parse=parse_numbers(","),
    )


def _takes_preset_options(command: Function) -> Function:
    """Add what `TrainConfig` declares; the help shows the values of all presets."""
    for name, declared in reversed(declarations(TrainConfig).items()):
        if not declared.help or name in _FIRST:
            continue
        shown = declared.shown
        if shown is None:
            values = [getattr(preset.training, name) for preset in PRESETS.values()]
            shown = " or ".join(dict.fromkeys(str(value) for value in values if is_set(value)))
            if len(set(values)) > 1:
                shown += ", by preset"
        command = takes(TrainConfig, name, section=_TRAINING, shown=shown)(command)
    return command


@main.command()
@click.argument("folder", type=FOLDER, required=False, metavar="[IMAGES]")
@takes(_TrainCommand, "data")
@takes(DrawOptions, "designs", shown="")
@takes(_TrainCommand, "out")
@takes(TrainConfig, "preset", type=click.Choice(list(PRESETS)))
@takes(TrainOptions, "init", "force", "quiet")
@takes(ReportOptions, "as_json")
@_takes_preset_options
@takes(_TrainCommand, "cross_validate", section=_RUNNING)
@takes(TrainOptions, without=_FIRST, section=_RUNNING)
@takes(DrawOptions, without=("designs", "images"), section=_DRAWING)
def train(folder: Path | None, given: Given) -> None:
    """Train a ResNet-18 on a folder of labelled IMAGES, on shards, or on images that are drawn
    meanwhile, and score it on a test set at the end.

    IMAGES become shards in the run folder first, as with prepare and its default options. If the
    run in --out is unfinished, continue it.

    Example: captcha-ocr train --data data/shards --out runs/mine --epochs 12
    """
    with deferred():
        from captcha_ocr.cli.advice import advice_on_run
        from captcha_ocr.data.shards import MANIFEST_FILE
        from captcha_ocr.experiments import cross_validation
        from captcha_ocr.training import train as training
        from captcha_ocr.training.run.folder import BEST

    options, how = given[_TrainCommand], given[TrainOptions]
    out, data = options.out, options.data or (SHARDS,)
    if folder is not None:
        is_plain = not given_words("data", "designs", "cross_validate")
        check(
            is_plain and rank_and_world_size()[1] == 1,
            "IMAGES go with one process, without `data`, --draw and `cross_validate`",
        )
        check(
            not (folder / MANIFEST_FILE).exists(),
            f"{folder} holds shards, no images: name it with `data`",
        )
        data = (_find_shards(folder, out, given),)
    if options.cross_validate:
        is_one = len(data) == 1 and rank_and_world_size()[1] == 1
        check(
            is_one and how.resume in ("auto", "never"),
            "`cross_validate` takes one `data`, one process and no `resume` PATH",
        )
    drawing = _draw_options(given)
    shards = cross_validation.find_folds(data[0])[:1] if options.cross_validate else data
    values = given.values(TrainConfig)
    if drawing is not None:
        values.pop("images", None)  # of an epoch, and not the first so many
    config = choose_config(drawing or shards, how.init, values)
    if options.cross_validate:
        scores = cross_validation.cross_validate(data[0], out, config, how)
        facts = {"out": str(out), "test": scores.summary()}
        report(facts, str(scores), read_command(out / "fold-1"))
        return
    finished = training.train(drawing or data, out, config, how)
    if rank_and_world_size()[0] > 0:
        return  # the main process reports the result
    for sentence in advice_on_run(out):
        say(f"advice     {sentence}", how.quiet)
    score, test = "no test set to score", finished.test
    if test is not None:
        low, high = test["interval"]
        what = "agreement with a model's readings" if "against" in test else "exact match"
        number = f"{test['images']:,}" if drawing is None else counted(test["images"], "drawing")
        score = (
            f"test {what} {test['exact_match']:.2%} of {number} (95 % interval "
            f"{low:.2%} to {high:.2%}), per character {test['character_accuracy']:.2%}"
        )
    facts = {"out": str(out), **asdict(finished)}
    report(facts, f"{out / BEST}: {score}", read_command(out))


def _find_shards(images: Path, out: Path, given: Given) -> Path:
    """Return the folder of the shards of images, which are made in the run folder."""
    from captcha_ocr.cli.commands.data import tell_preparation
    from captcha_ocr.data.prepare import prepare

    how, shards = given[TrainOptions], out / "shards"
    config = PrepareConfig(preset=given.values(TrainConfig).get("preset"))
    with ProgressBar("prepare", how.quiet) as bar:
        prepared = prepare(images, shards, config, PrepareOptions(force=how.force), bar.show)
    tell_preparation(prepared)
    return shards


def _draw_options(given: Given) -> DrawOptions | None:
    """Return the options of --draw; None without it. UsageError for options that do not fit."""
    values = given.values(DrawOptions)
    if "designs" not in values:
        refusal = "is for images that --draw draws; add --draw, or leave it out"
        for name in values:
            check(name == "images", f"`{name}` {refusal}")
        return None
    for name in _NOT_WITH_DRAW:
        check(not given_words(name), f"--draw and `{name}` exclude each other")
    return DrawOptions(**values)


def choose_config(
    data: Sequence[Path] | DrawOptions, init: Path | None, options: Mapping[str, Any]
) -> TrainConfig:
    """Return the training options: those given, else those of the preset; the number of images may
    select it.
    """
    from captcha_ocr.data.shards import read_dataset

    def with_options(preset: str) -> TrainConfig:
        config = preset_named(preset).training
        if init is not None:
            config = config.for_fine_tuning(isinstance(data, DrawOptions))
        return config.with_options(**options)

    # Errors in the options are raised before anything is read.
    config = with_options(options.get("preset", "default"))
    if "preset" in options:
        return config
    if isinstance(data, DrawOptions):
        # What drawings lack, such as the very fonts, the model in the package has seen elsewhere.
        if data.imitates and not (data.size or data.channels or init):
            return with_options("finetune")
        epochs = derive_epochs(replace(config, epochs=None), data.images) or 1
        return with_options(preset_for(data.different(epochs)))
    dataset = read_dataset(data)
    images = options.get("images") or dataset.count("train")
    return with_options(preset_for(images, dataset.size))


@main.command()
@click.argument("data", type=FOLDER, default=SHARDS)
@takes(_CurveCommand)
@takes(TrainConfig, "epochs")
@takes(TrainOptions, "init")
@takes(TrainConfig, "seed")
@takes(TrainOptions, "device", "threads", "force", "quiet", section=_RUNNING)
@takes(ReportOptions, "as_json", section=_RUNNING)
def curve(data: Path, given: Given) -> None:
    """Train on more and more images of DATA, and print how the accuracy grows.

    Example: captcha-ocr curve data/shards --images 100,300,1000
    """
    with deferred():
        from captcha_ocr.experiments import learning_curve as curves

    options, how = given[_CurveCommand], given[TrainOptions]
    values = given.values(TrainConfig)

    def config_for(number: int) -> TrainConfig:
        return choose_config([data], how.init, {**values, "images": number})

    out = options.out
    points = curves.learning_curve(data, out, config_for, options.images, how)
    outlook = curves.outlook(points)
    facts = {"out": str(out), "points": [asdict(point) for point in points], "outlook": outlook}
    lines = [curves.POINTS.header, *map(str, points), *outlook, f"{out / curves.PICTURE_FILE}"]
    following = read_command(out / f"images-{points[-1].images}")
    report(facts, "\n".join(lines), following)


@main.command()
@click.argument("images", type=FOLDER)
@takes(AdaptOptions, without=("force", "quiet"))
@takes(ReportOptions, "as_json")
@takes(ReadingOptions, "charset", "lengths", "fold_case", section=_TEXTS)
@takes(AdaptOptions, "force", "quiet", section=_RUNNING)
@takes(ReadingOptions, "max_bytes", "device", "threads", section=_RUNNING)
def adapt(images: Path, given: Given) -> None:
    """Make a model for the captchas in a folder of IMAGES that have no labels, or few.

    It learns from its own readings, in rounds. If it is interrupted, the same command goes on.

    Example: captcha-ocr adapt my-captchas
    """
    with deferred():
        from captcha_ocr.experiments import adaptation
        from captcha_ocr.experiments.expectation import Expectation
        from captcha_ocr.training.run.folder import BEST

    options = given[AdaptOptions]
    adapted = adaptation.adapt(images, options, given[ReadingOptions])
    facts = {"out": str(options.out), **asdict(adapted), **dict.fromkeys(Expectation._fields)}
    del facts["expectation"]
    following = read_command(options.out, images)
    result = str(options.out / BEST) if adapted.has_model else f"{images}: no better model"
    if adapted.expectation is None:
        result += f": {adapted.doubt}"
        following = f"{word_command(Command('label', (images,)))} (30 labels help it)"
    else:
        facts |= adapted.expectation._asdict()
        result += f": expected exact match {adapted.expectation}"
    readings = f"{options.out}: readings.csv, the least sure first; least-sure.png"
    report(facts, f"{result}\n{readings}", following)
