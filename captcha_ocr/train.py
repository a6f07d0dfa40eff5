"""Training, read from top to bottom: set up, step, count, evaluate, save, stop."""

import copy
import dataclasses
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from captcha_ocr import __version__
from captcha_ocr.batches import Batches, load_split
from captcha_ocr.calibrate import calibrated
from captcha_ocr.checkpoint import (
    CARD_FILE,
    copy_model,
    load_model,
    model_card,
    save_model,
    standing,
)
from captcha_ocr.config import PRESETS, ModelConfig, TrainConfig, check, preset_named
from captcha_ocr.device import choose_device, describe, keep_freed_memory
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.evaluate import EVALUATION_BATCH, evaluate
from captcha_ocr.metrics import Scores
from captcha_ocr.model import ResNet18, columns_of, count_parameters, move
from captcha_ocr.prepare import prepare_command
from captcha_ocr.progress import counted, duration, say
from captcha_ocr.resume import LAST, PREVIOUS, Progress, load_last, restore, save_last
from captcha_ocr.run import (
    BEST,
    CONFUSION_FILE,
    CURVES_FILE,
    Finished,
    changes,
    check_best,
    describe_run,
    end_run,
    find_run,
    is_run,
    start_run,
    write_metrics,
)
from captcha_ocr.shards import Dataset, check_places, read_dataset
from captcha_ocr.trainer import Trainer, make_optimizer, make_trainer, run_epoch

TRIAL_STEPS, TRIAL_SECONDS = 30, 4.0  # at most, to tell beforehand how long a run takes


def train(
    data: Sequence[Path],
    out: Path,
    config: TrainConfig,
    device_name: str = "auto",
    init: Path | None = None,
    resume: str = "auto",
    stream: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> Finished:
    """Train on the shards in the folders `data` and leave in `out` the best model, curves, metrics and run.json.

    An unfinished run of the same configuration in `out` goes on (`resume` "auto"; "never" refuses
    it, a path goes on from that checkpoint folder), a finished one is left as it is. What is refused
    with UsageError or DamagedError, such as another run, `force` replaces, if train wrote it. The
    test set is scored once, at the end.
    """
    dataset = read_dataset(data)
    model_config = ModelConfig(dataset.charset, dataset.length, dataset.size, preset_named(config.preset).network)
    check_fits(dataset, model_config, config)
    described = describe_run(dataset, config, init)
    finished, replace = None, False
    try:
        finished = find_run(out, described, resume)
    except CaptchaOcrError:
        replace = force and is_run(out)
        if not replace:
            raise
    if finished is not None:
        return finished
    count = dataset.count("train")
    check(count >= 2, f"{dataset.name} has {count} training image; at least 2 are needed")
    check(len(dataset.charset) >= 2, f"{dataset.name} has an alphabet of 1 character; there is nothing to learn")
    tell = (lambda line: None) if quiet else say
    check_places(dataset.of_split("test"))  # which is only read at the end; the others are, now
    device = choose_device(device_name)
    keep_freed_memory()
    training = load_split(dataset, "train", device, stream)
    validation = load_split(dataset, "val", device, stream)
    trainer = make_trainer(model_config, config, training, device, init, Progress(described))
    tell(f"device     {describe(device)}, {trainer.precision}")
    tell(
        f"data       {len(training):,} images to train on, {len(validation):,} to validate, "
        f"{dataset.size}, {training.lie}"
    )
    tell(f"network    ResNet-18, {count_parameters(trainer.model):,} parameters, preset {config.preset}")
    checkpoint = find_checkpoint(out, resume, replace)
    if checkpoint is not None:
        go_on(trainer, checkpoint, out, tell)
    start_run(out, described, replace)
    if checkpoint is not None and not (out / BEST).exists():
        copy_model(standing(checkpoint.parent / BEST), out / BEST)
    tell(expectation(trainer, training, validation))
    rule = run_epochs(trainer, training, validation, out, dataset, quiet)
    return finish(trainer, rule, out, dataset, validation, stream, tell)


def find_checkpoint(out: Path, resume: str, replace: bool) -> Path | None:
    """The checkpoint to go on from: the newest whole one in `out`, else the one that `resume` names, else None."""
    checkpoint = None if replace else load_last(out)
    if checkpoint is not None or resume in ("auto", "never"):
        return checkpoint
    named = Path(resume)
    inside = out.resolve() in (named.resolve(), *named.resolve().parents)
    check(not inside, f"{named} lies in {out}, which has no whole run to go on with; choose another --out")
    return load_last(named) or named  # a run folder, or a checkpoint in one


def go_on(trainer: Trainer, checkpoint: Path, out: Path, tell: Callable[[str], None]) -> None:
    """Bring the trainer to where the checkpoint was written; UsageError if that was another run."""
    progress = restore(checkpoint, trainer.model, trainer.optimizer, trainer.schedule)
    changed = changes(progress.run, trainer.progress.run)
    check(not changed, f"{checkpoint} is of another run ({'; '.join(changed)}); --init takes its weights alone")
    # A run killed between writing `best` and `last` left a newer best than the checkpoint knows.
    best = check_best(checkpoint.parent)
    progress.best_epoch, progress.best_exact = best["epoch"], best["validation"]["exact_match"]
    progress.best_loss = loss_of(best["validation"]["loss"])
    trainer.progress = progress
    if progress.difficulty is not None:
        trainer.difficulty.restore(progress.difficulty)
    if checkpoint == out / PREVIOUS:
        tell(f"{out / LAST} is not whole: going on from the checkpoint before it")
    tell(f"resumed    after epoch {progress.epoch}, from {checkpoint}")


def check_fits(dataset: Dataset, model: ModelConfig, config: TrainConfig) -> None:
    """Refuse shards of a size that the preset's network cannot use, naming the command that makes others."""
    preset = PRESETS[config.preset]
    if preset.fixed_size and dataset.size != preset.size:
        reason = f"the preset {config.preset} wants {preset.size}"
    elif model.network.pool == "height" and columns_of(model) < model.length:
        reason = f"that is too narrow for {model.length} characters"
    else:
        return
    folder, manifest = dataset.folders[0], dataset.manifests[0]
    command = prepare_command(manifest, folder, config.preset)
    raise UsageError(f"{folder} holds images of {dataset.size}, and {reason}; make others with: {command}")


def expectation(trainer: Trainer, training: Batches, validation: Batches) -> str:
    """How long the run will take, from a few steps on a copy of the network that is then thrown away."""
    model = copy.deepcopy(trainer.model)
    trial = dataclasses.replace(trainer, model=model, optimizer=make_optimizer(model, trainer.config))
    batch_size = min(trainer.config.batch_size, len(training))
    images, labels = training.first(batch_size)
    augmenting = torch.Generator(trainer.device) if trainer.config.augment else None
    seconds: list[float] = []
    while len(seconds) < 4 or (len(seconds) < TRIAL_STEPS and sum(seconds) < TRIAL_SECONDS):
        started = time.perf_counter()
        trial.step(images, labels, augmenting)[0].item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    rate = batch_size / statistics.median(seconds[len(seconds) // 2 :])  # the first steps are slow and uneven
    epoch_s = (len(training) + len(validation) / 3) / rate  # a step goes forward, and twice as far back
    if trainer.epochs is None:
        return (
            f"expected   about {duration(epoch_s)} an epoch ({rate:,.0f} images/s); ends when validation "
            f"has not improved for {counted(trainer.config.patience, 'epoch')}"
        )
    left = trainer.epochs - trainer.progress.epoch
    line = f"expected   about {duration(left * epoch_s)} for {counted(left, 'epoch')} ({rate:,.0f} images/s)"
    if trainer.config.patience >= trainer.epochs:
        return line
    return f"{line}; ends sooner if validation does not improve for {counted(trainer.config.patience, 'epoch')}"


def run_epochs(
    trainer: Trainer, training: Batches, validation: Batches, out: Path, dataset: Dataset, quiet: bool
) -> str:
    """Train epoch after epoch until a rule ends it; returns the rule, in words."""
    progress = trainer.progress
    write_metrics(out, progress.rows)
    started = time.perf_counter() - progress.seconds
    while True:
        rule = ending_rule(trainer)
        if rule is not None:
            return rule
        row = run_epoch(trainer, training, quiet)
        scores = score(trainer.model, validation, trainer)
        progress.seconds = time.perf_counter() - started
        row |= {
            "seconds": progress.seconds,
            "validation_loss": scores.loss,
            "validation_exact": scores.exact_match,
            "peak_memory_mb": peak_memory_mb(trainer.device),
        }
        progress.rows.append(row)
        at_rest = progress.epoch == trainer.epochs and trainer.config.schedule != "constant"
        if is_better(scores, progress, at_rest):
            progress.best_epoch, progress.best_exact = progress.epoch, scores.exact_match
            progress.best_loss = loss_of(scores.loss)
            save_best(trainer, out, dataset, validation, scores)
        progress.difficulty = trainer.difficulty.state()
        save_last(out, trainer.model, trainer.optimizer, trainer.schedule, progress)
        write_metrics(out, progress.rows)
        if not quiet:
            say(epoch_line(row, trainer))


def is_better(scores: Scores, progress: Progress, at_rest: bool = False) -> bool:
    """Whether the validation beats the best so far: more exact matches, or as many at a lower loss.

    at_rest: whether the rate has decayed to nothing. Such weights are only given up for better ones beyond chance:
    of many epochs the luckiest reads a few more of a thousand images, and fewer of others (lab notebook, 2026-11-22).
    """
    if at_rest and scores.interval[1] >= progress.best_exact and math.isfinite(loss_of(scores.loss)):
        return True
    return (scores.exact_match, -loss_of(scores.loss)) > (progress.best_exact, -progress.best_loss)


def loss_of(loss: float | None) -> float:
    """A loss that can be compared: infinite where it is no number."""
    return math.inf if loss is None or math.isnan(loss) else loss


def ending_rule(trainer: Trainer) -> str | None:
    """The rule that ends the run now, in words, or None; CaptchaOcrError where it has failed."""
    progress, patience = trainer.progress, trainer.config.patience
    if progress.rows and not math.isfinite(progress.rows[-1]["training_loss"]):
        raise CaptchaOcrError(f"after epoch {progress.epoch} the loss was no number any more; try a lower --lr")
    if trainer.epochs is not None and progress.epoch >= trainer.epochs:
        return "all epochs done"
    if progress.epoch - progress.best_epoch >= patience:
        return f"validation has not improved for {counted(patience, 'epoch')}"
    return None


def epoch_line(row: dict[str, Any], trainer: Trainer) -> str:
    """One epoch in one line, with the time left where the last epoch is known."""
    total = "" if trainer.epochs is None else f"/{trainer.epochs}"
    line = (
        f"epoch {row['epoch']}{total}: loss {row['training_loss']:.4f}, exact {row['training_exact']:.2%}; "
        f"validation loss {row['validation_loss']:.4f}, exact {row['validation_exact']:.2%}; "
        f"{row['images_per_s']:,.0f} images/s"
    )
    if trainer.epochs is None:
        return line
    left_s = row["seconds"] / row["epoch"] * (trainer.epochs - row["epoch"])
    return f"{line}; {duration(left_s)} left"


def peak_memory_mb(device: torch.device) -> float | None:
    """The most memory used so far, in MB: the GPU's on CUDA, else the process's; None if not to be had."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (1e6 if platform.system() == "Darwin" else 1e3)


def save_best(trainer: Trainer, out: Path, dataset: Dataset, validation: Batches, scores: Scores) -> None:
    """Write the folder `best`: a whole model, its confidences made honest, with a card for people."""
    model = calibrated(trainer.model, validation.in_order(EVALUATION_BATCH))
    facts = {
        "preset": trainer.config.preset,
        "epoch": trainer.progress.epoch,
        "training_images": dataset.count("train"),
        "validation": scores.summary(),
        "versions": {"captcha_ocr": __version__, "torch": torch.__version__},
    }
    save_model(out / BEST, model, facts, model_card(trainer.config, dataset, trainer.progress.best_epoch, scores))


def finish(
    trainer: Trainer,
    rule: str,
    out: Path,
    dataset: Dataset,
    validation: Batches,
    stream: bool,
    tell: Callable[[str], None],
) -> Finished:
    """Score the test set once with the best weights, draw the pictures, write the end into run.json."""
    from captcha_ocr.plots import draw_confusion, draw_curves

    progress = trainer.progress
    model = move(load_model(out / BEST), trainer.device)
    validated = score(model, validation, trainer)
    test = None
    if dataset.count("test"):
        test = score(model, load_split(dataset, "test", trainer.device, stream), trainer)
    (out / BEST / CARD_FILE).write_text(
        model_card(trainer.config, dataset, trainer.progress.best_epoch, validated, test), encoding="utf-8"
    )
    draw_curves(progress.rows, out / CURVES_FILE)
    draw_confusion(test or validated, dataset.charset.characters, out / CONFUSION_FILE)
    finished = Finished(
        rule=rule,
        epochs=progress.epoch,
        best_epoch=progress.best_epoch,
        seconds=progress.seconds,
        test=None if test is None else test.summary(),
    )
    end_run(
        out,
        finished,
        {
            "device": describe(trainer.device),
            "precision": trainer.precision,
            "versions": {
                "captcha_ocr": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
        },
    )
    tell(
        f"ended      {rule}: {counted(progress.epoch, 'epoch')} in {duration(progress.seconds)}, "
        f"best epoch {progress.best_epoch}"
    )
    return finished


def score(model: ResNet18, batches: Batches, trainer: Trainer) -> Scores:
    """The score on all of one split."""
    return evaluate(model, batches.in_order(EVALUATION_BATCH), trainer.config.loss)
