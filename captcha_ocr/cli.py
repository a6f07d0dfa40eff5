"""The command line: options in, one call, the result out. Heavy imports happen inside the commands.

Results go to stdout, progress and warnings to stderr. Exit 0 done; 1 something failed; 2 usage;
3 a file of ours is damaged; 130 and 143 on Ctrl-C and SIGTERM.
"""

import csv
import glob
import io
import json
import os
import re
import shlex
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args

import click

from captcha_ocr import __version__
from captcha_ocr.charset import NAMED
from captcha_ocr.config import (
    FEW,
    MAX_FOLDS,
    PRESETS,
    RARE,
    GeneratorConfig,
    Lengths,
    Loss,
    ModelConfig,
    Precision,
    PrepareConfig,
    Renderer,
    Schedule,
    TrainConfig,
    Warp,
    check,
    preset_for,
    preset_named,
)
from captcha_ocr.errors import CaptchaOcrError, ImageError, UsageError
from captcha_ocr.signals import importing
from captcha_ocr.workers import rank_and_count

if TYPE_CHECKING:
    from captcha_ocr.labels import Label
    from captcha_ocr.processes import Processes
    from captcha_ocr.reading import Reading
    from captcha_ocr.recognizer import Recognizer

Command = TypeVar("Command", bound=Callable[..., Any])

IMAGES, SHARDS, RUN = Path("data/images"), Path("data/shards"), Path("runs/default")
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Commands(click.Group):
    """Turns the project's errors and the signals into one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        warnings.filterwarnings("ignore", module=r"PIL\.")  # what matters in them is said in our own words
        for stream, errors in (
            (sys.stdin, "surrogateescape"),
            (sys.stdout, "backslashreplace"),
            (sys.stderr, "backslashreplace"),
        ):
            if isinstance(stream, io.TextIOWrapper):  # odd names and alphabets, whatever the terminal's encoding
                stream.reconfigure(errors=errors)
        before = signal.signal(signal.SIGTERM, _terminate)
        try:
            return super().invoke(ctx)
        except CaptchaOcrError as error:
            click.echo(f"captcha-ocr: {_speaker()}{error}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            repeat = "" if ctx.invoked_subcommand == "eval" else "; the same command again ends what is begun"
            click.echo(f"captcha-ocr: interrupted{repeat}", err=True)
            sys.exit(130)
        except SystemExit as leaving:
            if leaving.code == 128 + signal.SIGTERM:
                click.echo("captcha-ocr: terminated", err=True)
            raise
        except BrokenPipeError:
            # The reader of our output left (`| head`): nothing is wrong, and nobody listens.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"captcha-ocr: {where}{error.strerror or error}", err=True)
            sys.exit(1)
        except MemoryError:
            click.echo("captcha-ocr: there is too little memory", err=True)
            sys.exit(1)
        finally:
            signal.signal(signal.SIGTERM, before)  # or one that comes while Python ends would be a traceback

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)
        if found[0] not in ("train", "eval", "doctor") and rank_and_count()[1] > 1:
            raise UsageError(f"{found[0]} does not share its work over the processes of torchrun; start it once")
        return found


def _speaker() -> str:
    """Which of several processes speaks."""
    try:
        rank, count = rank_and_count()
    except UsageError:
        return ""
    return f"process {rank} of {count}: " if count > 1 else ""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """A click option that shows its default."""
    settings.setdefault("show_default", True)
    return click.option(*names, **settings)


workers_option = option("--workers", type=click.IntRange(1, 256), help="Processes.  [default: one a processor]")
seed_option = option("--seed", type=click.IntRange(0), default=0, help="Where all chance comes from.")
force_option = option("--force", is_flag=True, help="Replace what an earlier run with other options wrote.")
quiet_option = option("--quiet", is_flag=True, help="No progress on stderr.")
json_option = option("--json", "as_json", is_flag=True, help="The result as JSON.")
device_option = option("--device", default="auto", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]", help="Where to compute.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="captcha-ocr", message="%(prog)s %(version)s")
def main() -> None:
    """Make, learn and read text captchas: ones that you generate, own or may test.

    \b
        captcha-ocr generate       labelled images       data/images
        captcha-ocr prepare        tensor shards         data/shards
        captcha-ocr train          a trained model       runs/default
        captcha-ocr eval a.png     what it reads
        captcha-ocr inspect        what is in a folder of images, and what a model gets wrong there
        captcha-ocr curve          how accuracy grows with the number of images
        captcha-ocr bench          how fast this machine trains and reads
        captcha-ocr doctor         what there is to compute with
    """


def parse_size(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int] | None:
    """WIDTHxHEIGHT as (width, height)."""
    if text is None:
        return None
    sides = re.fullmatch(r"0*([1-9][0-9]{0,8})x0*([1-9][0-9]{0,8})", text)
    if sides is None:
        raise click.BadParameter(f"{text[:40]!r} is not WIDTHxHEIGHT, such as 160x60")
    return int(sides[1]), int(sides[2])


def parse_numbers(separator: str) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]:
    """Whole numbers between separators as a tuple."""

    def parse(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
        parts = text.split(separator) if text else []
        if not all(re.fullmatch(r" *[0-9]{1,9} *", part) for part in parts):
            raise click.BadParameter(f"{(text or '')[:40]!r} is not whole numbers separated by {separator!r}")
        return tuple(int(part) for part in parts)

    return parse


def parse_lengths(context: click.Context, parameter: click.Parameter, text: str | None) -> Lengths | None:
    """`4`, or `4-6` for the shortest and the longest, as Lengths."""
    return None if text is None else Lengths.parse(text)


def length_option(help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """An option for the number of characters of texts."""
    return option("--length", "lengths", metavar="N|N-M", callback=parse_lengths, help=help_text, **settings)


size_option = option("--size", metavar="WIDTHxHEIGHT", callback=parse_size, help="Of the images in pixels.")


def field_option(config: type, name: str, field: str, help_text: str, **settings: Any) -> Callable[[Command], Command]:
    """An option whose default is that of a configuration's field."""
    return option(name, field, default=getattr(config, field), help=help_text, **settings)


@main.command()
@option("--out", type=FOLDER, default=IMAGES, help="The folder to write.")
@field_option(GeneratorConfig, "--count", "count", "How many images.", type=int)
@field_option(GeneratorConfig, "--start", "start", "The first number, so that machines can share the work.", type=int)
@length_option("Characters a text, or the fewest and the most.", default=str(GeneratorConfig.lengths))
@option("--charset", default="upper-alnum", help=f"Characters, or one of {', '.join(NAMED)}.")
@size_option
@option("--fonts", type=FILE, multiple=True, help="A TrueType font file; may be given several times.")
@option("--font-sizes", default="42,50,56", callback=parse_numbers(","), help="Drawn from at random.")
@field_option(
    GeneratorConfig,
    "--warp",
    "warp",
    "As the installed captcha package draws, or as 0.7.0 and earlier did (stronger).",
    type=click.Choice(get_args(Warp)),
)
@option(
    "--renderer",
    type=click.Choice(get_args(Renderer)),
    default="fast",
    help="The package's own code, or ours: the same pixels in half the time.",
)
@seed_option
@workers_option
@force_option
@quiet_option
@json_option
def generate(
    out: Path,
    size: tuple[int, int] | None,
    fonts: tuple[Path, ...],
    renderer: Renderer,
    workers: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw labelled captchas with the captcha package.

    Example: captcha-ocr generate --count 1000 --charset digits --length 6
    """
    with importing():
        from captcha_ocr import synth
        from captcha_ocr.progress import ProgressBar, counted

    if size is not None:
        options["width"], options["height"] = size
    config = GeneratorConfig(**options, fonts=tuple(map(str, fonts)))
    with ProgressBar("generate", quiet) as bar:
        drawn = synth.generate(config, out, workers, force, bar.show, renderer)
    kind = f"{config.lengths} characters, {config.width}x{config.height}"
    done = f"{counted(drawn, 'image')} drawn" if drawn else "all were there"
    report(
        as_json,
        {"out": str(out), "images": config.count, "drawn": drawn},
        f"{out}: {counted(config.count, 'image')} of {kind}; {done}",
        next_command("prepare", out, IMAGES),
    )


def label_options(command: Command) -> Command:
    """The options that say what text an image has, and which texts there are."""
    rare = f"as the labels have it, but for lengths that under 1 in {RARE} have"
    for add in (
        option("--case-sensitive", is_flag=True, help="Keep both cases apart where the labels hold both."),
        length_option(f"Characters a text.  [default: {rare}]"),
        option("--charset", help=f"Characters, or one of {', '.join(NAMED)}.  [default: those in the labels]"),
        option(
            "--label-pattern", metavar="REGEX", help="Finds the text in a file name: its group `text`, or the first."
        ),
        option("--corrections", type=FILE, help="CSV as --labels takes: these texts come before all others."),
        option(
            "--labels", type=FILE, help="CSV with filename,text[,split].  [default: labels.csv in the folder, if any]"
        ),
    ):
        command = add(command)
    return command


@main.command()
@click.argument("images", type=FOLDER, default=IMAGES)
@option("--out", type=FOLDER, default=SHARDS, help="The folder to write.")
@label_options
@option("--preset", type=click.Choice(list(PRESETS)), default="default", help="Whose input size to make.")
@size_option
@option("--channels", type=click.Choice(["1", "3"]), help="Grey or colour.  [default: colour where it tells]")
@option("--split", default="80/10/10", callback=parse_numbers("/"), help="Train/val/test in percent.")
@option("--folds", type=click.IntRange(2, MAX_FOLDS), help="Make so many folds, for train --cross-validate.")
@seed_option
@workers_option
@force_option
@quiet_option
@json_option
def prepare(
    images: Path,
    out: Path,
    labels: Path | None,
    corrections: Path | None,
    preset: str,
    size: tuple[int, int] | None,
    channels: str | None,
    folds: int | None,
    workers: int | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Turn a folder of labelled images into tensor shards.

    A label comes from labels.csv or the file's name: TEXT.png, TEXT_anything.png, anything-TEXT.png.

    Example: captcha-ocr prepare my-captchas --label-pattern '^[0-9]+_(.+)\\.png$'
    """
    with importing():
        from captcha_ocr import prepare as preparation
        from captcha_ocr.progress import ProgressBar

    width, height = size or (None, None)
    config = PrepareConfig(
        preset=preset, width=width, height=height, channels=int(channels) if channels else None, **options
    )
    with ProgressBar("prepare", quiet) as bar:
        how: dict[str, Any] = {"labels_file": labels, "corrections": corrections, "workers": workers, "force": force}
        how |= {"progress": bar.show}
        if folds is None:
            prepared = preparation.prepare(images, out, config, **how)
        else:
            prepared = preparation.prepare_folds(images, out, folds, config, **how)[0]
    manifest = prepared.manifest
    for file, reason in sorted(prepared.problems.items()):
        click.echo(f"left out {escape(file)}: {escape(reason)}", err=True)
    if prepared.copies:
        click.echo(f"left out {prepared.copies:,} byte-identical copies of other images", err=True)
    counts = {split: manifest.count(split) for split in ("train", "val", "test")}
    fold = manifest.charset.fold
    facts = {"left_out": manifest.left_out, "copies": prepared.copies, "charset": manifest.charset.characters}
    report(
        as_json,
        {"out": str(out), "folds": folds, **counts, **facts, "fold": fold, "length": str(manifest.lengths)},
        f"{out}: {f'{folds} folds, in the first ' if folds else ''}"
        f"{', '.join(f'{count:,} {split}' for split, count in counts.items())}; "
        f"{manifest.left_out:,} left out; {manifest.size}\n"
        f"texts of {manifest.lengths} of the {len(manifest.charset)} characters {manifest.charset.characters}"
        + (f", both cases folded to {fold} case" if fold else "")
        + ("; all was there" if prepared.already_there else ""),
        next_command("train --cross-validate" if folds else "train", out, SHARDS, "--data "),
    )
    if prepared.problems:
        sys.exit(1)


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

    with importing():
        from captcha_ocr import cross_validation
        from captcha_ocr import train as training
        from captcha_ocr.run import BEST

    if cross_validate and (len(data) > 1 or rank_and_count()[1] > 1 or resume not in ("auto", "never")):
        raise UsageError("--cross-validate takes one --data, one process and no --resume PATH")
    shards = cross_validation.find_folds(data[0])[:1] if cross_validate else data
    config = recipe(preset, shards, init, options)
    how: dict[str, Any] = {"device_name": device, "init": init, "resume": resume, "stream": stream, "force": force}
    how |= {"quiet": quiet, "keep_every": keep_every, "tensorboard": tensorboard}
    if cross_validate:
        scores = cross_validation.cross_validate(data[0], out, config, **how)
        found = {"out": str(out), "test": scores.summary()}
        report(as_json, found, str(scores), next_command("eval image.png", out / "fold-1", RUN, "--model "))
        return
    finished = training.train(data, out, config, **how)
    if rank_and_count()[0] > 0:
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
    from captcha_ocr.shards import read_dataset

    def with_options(name: str) -> TrainConfig:
        config = preset_named(name).training
        return (config if init is None else config.from_a_model()).with_options(**options)

    config = with_options(preset or "default")  # refused before anything is read
    if preset is not None:
        return config
    return with_options(preset_for(options["images"] or read_dataset(shards).count("train")))


@main.command(name="inspect")
@click.argument("folder", type=FOLDER, default=IMAGES)
@label_options
@option("--model", "model_folder", type=FOLDER, help="Name the images that this model reads otherwise than labelled.")
@option("--out", type=FOLDER, default=Path("runs/inspect"), help="The folder for the pictures.")
@device_option
@workers_option
@quiet_option
@json_option
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
    """Look at a folder of labelled images: what is in it, and what might spoil a training.

    With --model also what that model gets wrong in it, the surest first: these are most often wrong labels.

    Example: captcha-ocr inspect my-captchas --model runs/default
    """
    with importing():
        from captcha_ocr import inspection
        from captcha_ocr.advice import advice_on_run
        from captcha_ocr.contact_sheet import draw_sheet
        from captcha_ocr.device import keep_freed_memory
        from captcha_ocr.progress import ProgressBar
        from captcha_ocr.recognizer import Recognizer

    check(not out.resolve().is_relative_to(folder.resolve()), f"{out} lies in {folder}; choose another --out")
    with ProgressBar("inspect", quiet) as bar:
        found = inspection.inspect(folder, PrepareConfig(**options), labels, workers, bar.show, corrections)
    out.mkdir(parents=True, exist_ok=True)
    tiles = [(folder / label.file, label.text) for label in inspection.sample(found.labels)]
    draw_sheet(tiles, out / inspection.SHEET_FILE)
    lines = [str(found), f"{'picture':14}{out / inspection.SHEET_FILE}"]
    facts = found.summary()
    advice = facts["advice"]
    if model_folder is not None:
        keep_freed_memory()
        with ProgressBar("read", quiet) as bar:
            wrong = inspection.read_wrong(Recognizer.load(model_folder, device), found, bar.show)
        rows = [(each.file, each.text, each.reading.code, each.reading.confidence) for each in wrong]
        names = ("file", "text", "code", "confidence")
        facts["wrong"] = [dict(zip(names, row, strict=True)) for row in rows]
        lines.append(f"{'read wrong':14}{len(wrong):,} of {len(found.labels):,}, the surest first")
        lines += [f"{escape(file)}\t{text}\tread as {code}\t{sure:.4f}" for file, text, code, sure in rows]
        if wrong:
            tiles = [(folder / file, f"{text} read {code} {sure:.2f}") for file, text, code, sure in rows]
            draw_sheet(tiles, out / inspection.WRONG_FILE)
            lines.append(f"{'picture':14}{out / inspection.WRONG_FILE}")
        advice += advice_on_run(model_folder)
    lines += [f"{'advice':14}{sentence}" for sentence in advice]
    following = (
        next_command("prepare", folder, IMAGES) if model_folder is None else next_command("curve", SHARDS, SHARDS)
    )
    report(as_json, facts, "\n".join(lines), following)


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

    with importing():
        from captcha_ocr import learning_curve as curves

    def recipe_for(number: int) -> TrainConfig:
        return recipe(None, (), init, {"images": number, "epochs": epochs, "seed": seed})

    points = curves.learning_curve(data, out, recipe_for, images, quiet, device_name=device, init=init, force=force)
    report(
        as_json,
        {"out": str(out), "points": [asdict(point) for point in points], "outlook": curves.outlook(points)},
        "\n".join([*map(curves.in_words, points), *curves.outlook(points), f"{out / curves.PICTURE_FILE}"]),
        next_command("eval image.png", out / f"images-{points[-1].images}", RUN, "--model "),
    )


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


@main.command()
@option("--preset", type=click.Choice(list(PRESETS)), default="default", help="Whose network and batch size.")
@json_option
def bench(preset: str, as_json: bool) -> None:
    """Measure how many images a second each device here trains on and reads; takes less than a minute.

    Example: captcha-ocr bench --preset seed
    """
    from dataclasses import asdict

    with importing():
        from captcha_ocr.bench import measure_speed
        from captcha_ocr.device import available_devices

    if not as_json:
        click.echo(f"{'images/s with preset ' + preset:44}{'training':>12}{'reading':>12}")
    for name in available_devices():
        speed = measure_speed(name, preset)
        if as_json:
            click.echo(json.dumps(asdict(speed)))
        else:
            click.echo(f"{speed.device:44}{speed.training:12,.0f}{speed.reading:12,.0f}")


@main.command()
@option("--model", "model_folder", type=FOLDER, default=RUN, help="A model folder, or a run folder.")
@json_option
def doctor(model_folder: Path, as_json: bool) -> None:
    """Say what there is to compute with, and which model eval would read with.

    Example: captcha-ocr doctor --json
    """
    with importing():
        from captcha_ocr.doctor import examine, in_words

    facts = examine(model_folder)
    click.echo(json.dumps(facts, ensure_ascii=False) if as_json else in_words(facts))


def report(as_json: bool, document: dict[str, Any], text: str, following: str) -> None:
    """Print a command's result, and to stderr the next command."""
    click.echo(json.dumps(document, ensure_ascii=False) if as_json else text)
    click.echo(f"next: {following}", err=True)


def next_command(name: str, folder: Path, default: Path, option_name: str = "") -> str:
    """The command that follows; a folder that is its default goes unsaid."""
    return f"captcha-ocr {name}" + ("" if folder == default else f" {option_name}{shlex.quote(str(folder))}")


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


def escape(path: str) -> str:
    """`path` without anything that could break a line or a terminal: such characters as \\xNN."""
    keep_backslash = os.sep == "\\"
    return "".join(
        character
        if character.isprintable() and (character != "\\" or keep_backslash)
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in path
    )


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
