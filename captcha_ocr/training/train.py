"""Training, read from top to bottom: set up, step, count, evaluate, save, stop."""

import contextlib
import copy
import dataclasses
import json
import math
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from captcha_ocr.config import PRESETS, ModelConfig, TrainConfig, decays
from captcha_ocr.data.prepare import prepare_command
from captcha_ocr.data.shards import Dataset, check_places, read_dataset
from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.inference.model_folder import CARD_FILE, copy_model, standing
from captcha_ocr.metrics import Scores, is_worse, loss_of
from captcha_ocr.network.calibration import calibrated
from captcha_ocr.network.device import choose_device, describe, enough_memory, keep_freed_memory
from captcha_ocr.network.resnet import ResNet18, columns_of, count_parameters, move
from captcha_ocr.network.weights import load_model, model_card, save_model
from captcha_ocr.system.console import counted, duration
from captcha_ocr.system.files import write_atomic, writing_to
from captcha_ocr.training.advice import advice
from captcha_ocr.training.batches import Batches, Samples, Share, load_split, pieces_of
from captcha_ocr.training.checkpoint import Progress, save_checkpoint, save_last
from captcha_ocr.training.distributed import Processes, joined, local_device
from captcha_ocr.training.evaluate import EVALUATION_BATCH, evaluate
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.training.optim import make_optimizer, make_scaler
from captcha_ocr.training.resume import go_on
from captcha_ocr.training.run_folder import (
    BEST,
    BOARD,
    CONFUSION_FILE,
    CURVES_FILE,
    REPLACED,
    Finished,
    Run,
    changes,
    describe_run,
    end_run,
    find_run,
    identity,
    kept,
    may_be_replaced,
    model_for,
    origin_of,
    start_run,
    write_metrics,
)
from captcha_ocr.training.tensorboard import Board
from captcha_ocr.training.trainer import Trainer, make_trainer, run_epoch
from captcha_ocr.version import __version__

TRAINED_BATCHES = 4  # of images that were trained on, to score for comparison
TRIAL_STEPS, TRIAL_SECONDS = 30, 4.0  # at most, to tell beforehand how long a run takes
SECONDS_BETWEEN_CHECKPOINTS = 180.0  # within an epoch


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
    keep_every: int | None = None,
    tensorboard: bool = False,
) -> Finished:
    """Train on the shards in the folders `data` and leave in `out` the best model, curves, metrics and run.json.

    An unfinished run of the same configuration in `out` goes on, and any of it with fewer epochs (`resume` "auto";
    "never" refuses it, a path goes on from that checkpoint folder); a finished one is left as it is. What is refused
    with UsageError or DamagedError, such as another run, `force` replaces, if train wrote it. keep_every: after so many
    epochs each time the checkpoint is kept for good. The test set is scored once, at the end.

    SIGINT and SIGTERM are granted between two steps, after a checkpoint, as KeyboardInterrupt and SystemExit.
    Started by torchrun it trains together with the other processes: the first of them decides, writes and speaks.
    """
    device = choose_device(local_device(device_name))
    dataset = read_dataset(data)
    available = dataset.count("train")
    check((config.images or 0) <= available, f"{dataset.name} has only {counted(available, 'image')} to train on")
    if tensorboard:
        Board.check_installed()
    with joined(device) as processes, contextlib.ExitStack() as alone:
        document = json.loads(processes.from_first(lambda: open_run(out, dataset, config, init, resume, force, alone)))
        if document["finished"] is not None:
            return Finished(**document["finished"])
        described = document["described"]
        if not processes.first:
            from_first = {key: described[key] for key in ("init", "model")}  # which read the model to start from
            differ = changes(described, {**describe_run(dataset, config), **from_first})
            check(not differ, f"this process was not started as the first one was ({'; '.join(differ)})")
        quiet = quiet or not processes.first
        run = Run(out, dataset, processes, described, document["replace"], stream, keep_every, tensorboard, quiet)
        share = Share(config.images or dataset.count("train"), config.batch_size, processes)
        with enough_memory(processes.device, memory_advice(config.batch_size, out)):
            return train_on(run, share, config, init, resume)


def open_run(
    out: Path,
    dataset: Dataset,
    config: TrainConfig,
    init: Path | None,
    resume: str,
    force: bool,
    alone: contextlib.ExitStack,
) -> bytes:
    """What is in `out`, as JSON: how the run ended, if it has; and whether what is there is to be replaced.

    Unless it has ended nobody else writes there until the end of `alone`.
    """
    check_fits(dataset, model_for(dataset, config, init), config)
    finished, replace = None, False
    described = {**describe_run(dataset, config, init), "begun_from": origin_of(out, resume)}
    try:
        finished = find_run(out, described, resume)
    except CaptchaOcrError:
        replace = force and may_be_replaced(out)
        if not replace:
            raise
    if finished is None:
        alone.enter_context(writing_to(out))
    ended = None if finished is None else dataclasses.asdict(finished)
    return json.dumps({"finished": ended, "replace": replace, "described": described}).encode()


def memory_advice(batch_size: int, out: Path) -> str:
    """What to try where memory runs out."""
    return (
        f"for batches of {batch_size}: try --batch-size {max(2, batch_size // 2)}, --precision bf16 or --stream, "
        f"as a run of its own (--out); a checkpoint in {out}, if there is one yet, is whole"
    )


def train_on(run: Run, share: Share, config: TrainConfig, init: Path | None, resume: str) -> Finished:
    """Load what is needed, go on where a run was stopped, train and score."""
    dataset, processes = run.dataset, run.processes
    check(dataset.count("val") > 0, f"{dataset.name} has no images to validate; prepare others")
    check(share.total >= 2, f"{dataset.name} has {share.total} training image; at least 2 are needed")
    check(share.steps > 0, f"{dataset.name} has too few training images for {counted(processes.count, 'process')}")
    test = pieces_of(dataset.of_split("test"), processes.portion(dataset.count("test")))
    check_places(piece.place for piece in test)  # which is only read at the end; the others are, now
    keep_freed_memory()
    training = load_split(dataset, "train", processes, share.samples, run.stream)
    validation = load_split(dataset, "val", processes, stream=run.stream)
    model_config = ModelConfig.from_dict(run.described["model"])
    trainer = make_trainer(model_config, config, share, init if processes.first else None, Progress(run.described))
    run.tell(f"device     {processes.describe(trainer.precision)}")
    run.tell(
        f"data       {share.total:,} images to train on, {dataset.count('val'):,} to validate, "
        f"{dataset.size}, {training.lie}"
    )
    run.tell(f"network    ResNet-18, {count_parameters(trainer.model):,} parameters")
    run.tell(f"recipe     preset {config.preset}, for {PRESETS[config.preset].meant_for}")
    if init is not None:
        alone = f"; for {counted(trainer.frozen, 'step')} only what stands behind its convolutions learns"
        run.tell(f"begins     with {init}{alone * (trainer.frozen > 0)}")
    checkpoint = go_on(trainer, run, resume)
    trainer.network = processes.wrap(trainer.model)
    run.tell(expectation(trainer, training, dataset.count("val")))
    if processes.first:
        if run.replace:
            run.tell(f"replaces   the run in {run.out}, which {run.out / REPLACED} keeps until this one has finished")
        start_run(run.out, run.described, run.replace, checkpoint)
        if checkpoint is not None and trainer.progress.best_exact >= 0 and not (run.out / BEST).exists():
            copy_model(standing(checkpoint.parent / BEST), run.out / BEST)
    with Interruption() as interruption:
        rule = run_epochs(trainer, training, validation, run, interruption)
        return finish(trainer, rule, training, validation, run, interruption)


def check_fits(dataset: Dataset, model: ModelConfig, config: TrainConfig) -> None:
    """Refuse shards of a size that the preset's network cannot use, naming the command that makes others."""
    preset = PRESETS[config.preset]
    if preset.size not in (None, dataset.size):
        reason = f"the preset {config.preset} wants {preset.size}"
    elif model.network.pool != "global" and columns_of(model) < 2 * model.lengths.longest - 1:  # as "aaa" needs them
        reason = f"that is too narrow for {model.lengths} characters"
    else:
        return
    folder, manifest = dataset.folders[0], dataset.manifests[0]
    command = prepare_command(manifest, folder, config.preset)
    raise UsageError(f"{folder} holds images of {dataset.size}, and {reason}; make others with: {command}")


def expectation(trainer: Trainer, training: Batches, validation_images: int) -> str:
    """How long the run will take, from a few steps on a copy of the network that is then thrown away."""
    model = copy.deepcopy(trainer.model)
    optimizer, scaler = make_optimizer(model, trainer.config), make_scaler(trainer.device, trainer.precision)
    trial = dataclasses.replace(trainer, model=model, network=model, optimizer=optimizer, scaler=scaler)
    images, labels = training.first(trainer.share.batch)
    seconds: list[float] = []
    while len(seconds) < 4 or (len(seconds) < TRIAL_STEPS and sum(seconds) < TRIAL_SECONDS):
        started = time.perf_counter()
        trial.step(images, labels, len(images) * trainer.processes.count)[0].item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    # The first steps are slow and uneven.
    rate = len(images) * trainer.processes.count / statistics.median(seconds[len(seconds) // 2 :])
    epoch_s = (trainer.share.total + validation_images / 3) / rate  # a step goes forward, and twice as far back
    if trainer.epochs is None:
        return (
            f"expected   about {duration(epoch_s)} an epoch ({rate:,.0f} images/s); ends when validation "
            f"has not improved for {counted(trainer.config.patience, 'epoch')}"
        )
    left = trainer.epochs - trainer.progress.epoch - trainer.progress.batch / trainer.share.steps
    line = f"expected   about {duration(left * epoch_s)} for {counted(math.ceil(left), 'epoch')} ({rate:,.0f} images/s)"
    if trainer.config.patience >= trainer.epochs:
        return line
    return f"{line}; ends sooner if validation does not improve for {counted(trainer.config.patience, 'epoch')}"


class Records:
    """What the first process writes while a run goes on: checkpoints, metrics and TensorBoard's files."""

    def __init__(self, trainer: Trainer, run: Run) -> None:
        self.trainer, self.run = trainer, run
        self.saved_at = time.monotonic()
        self.shown = len(trainer.progress.rows)
        writing_board = run.tensorboard and run.processes.first
        self.board = Board(run.out / BOARD, trainer.progress.step) if writing_board else None

    def add(self, row: dict[str, Any]) -> None:
        """Add the row of an epoch."""
        self.trainer.progress.rows.append({"by": "epoch", **row})

    def update(self) -> None:
        """Show what is new, and save where the last checkpoint is some minutes old."""
        self.show()
        if time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            self.save()

    def show(self) -> None:
        """Give TensorBoard the rows that are new."""
        if self.board is not None:
            self.board.write(self.trainer.progress.rows[self.shown :])
            self.shown = len(self.trainer.progress.rows)

    def save(self) -> None:
        """Write the checkpoint `last`, and the metrics."""
        if self.run.processes.first:
            trainer = self.trainer
            save_last(self.run.out, trainer.model, trainer.optimizer, trainer.progress, trainer.state())
            write_metrics(self.run.out, trainer.progress.rows)
        self.saved_at = time.monotonic()

    def end_epoch(self) -> None:
        """Save at the end of an epoch, and keep what is to be kept for good."""
        self.show()
        trainer, every = self.trainer, self.run.keep_every
        if self.run.processes.first and every and trainer.progress.epoch % every == 0:
            # Before `last`: a run that is killed between the two does the epoch again.
            folder = kept(self.run.out, trainer.progress.epoch)
            save_checkpoint(folder, trainer.model, trainer.optimizer, trainer.progress, trainer.state())
        self.save()

    def close(self) -> None:
        """Close TensorBoard's files."""
        if self.board is not None:
            self.board.close()


def run_epochs(trainer: Trainer, training: Batches, validation: Batches, run: Run, interruption: Interruption) -> str:
    """Train epoch after epoch until a rule ends it; returns the rule, in words. A signal ends it with a checkpoint."""
    progress, records = trainer.progress, Records(trainer, run)
    if run.processes.first:
        write_metrics(run.out, progress.rows)

    def between_steps() -> None:
        records.update()
        number = run.processes.agreed(interruption.wanted, progress.step)
        if number is not None:
            interruption.leave(number)

    try:
        while (rule := ending_rule(trainer)) is None:
            row = run_epoch(trainer, training, run.quiet, between_steps)
            started = time.perf_counter()
            scores = score(trainer.model, validation, trainer, interruption)
            at_rest = progress.epoch + 1 == trainer.epochs and decays(trainer.config)
            if is_better(scores, progress, at_rest):
                if run.processes.first:
                    save_best(trainer, run, validation, scores, interruption)
                progress.best_epoch, progress.best_exact = progress.epoch + 1, scores.exact_match
                progress.best_loss = loss_of(scores.loss)
            progress.seconds += time.perf_counter() - started
            row |= {"seconds": progress.seconds, "validation_loss": scores.loss}
            row["validation_exact"] = scores.exact_match
            records.add(row)
            trainer.end_epoch(loss_of(scores.loss))
            records.end_epoch()
            run.tell(epoch_line(row, trainer))
    except (KeyboardInterrupt, SystemExit):  # which only come where a run can go on from: between steps or batches
        records.save()
        raise
    finally:
        records.close()
    return rule


def is_better(scores: Scores, progress: Progress, at_rest: bool = False) -> bool:
    """Whether the validation beats the best so far: more exact matches, or as many at a lower loss.

    at_rest: whether the rate has decayed to nothing. Such weights are only given up for better ones beyond chance:
    of many epochs the luckiest reads a few more of a thousand images, or all of ten, and fewer of others (lab notebook,
    2026-11-22 and -23).
    """
    if at_rest and math.isfinite(loss_of(scores.loss)):
        return not is_worse(scores.exact, max(0, round(progress.best_exact * scores.images)), scores.images)
    return (scores.exact_match, -loss_of(scores.loss)) > (progress.best_exact, -progress.best_loss)


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
        f"{row['images_per_s']:,.0f} images/s, {memory_used(row)}"
    )
    if trainer.epochs is None:
        return line
    left_s = row["seconds"] / row["epoch"] * (trainer.epochs - row["epoch"])
    return f"{line}; {duration(left_s)} left"


def memory_used(row: dict[str, Any]) -> str:
    """The peak of memory in a row of metrics, in words."""
    process, device = row["peak_memory_mb"], row["peak_device_memory_mb"]
    parts = [] if process is None else [f"{process / 1e3:.1f} GB"]
    parts += [] if device is None else [f"{device / 1e3:.1f} GB on the device"]
    return " and ".join(parts) or "memory unknown"


def save_best(trainer: Trainer, run: Run, validation: Batches, scores: Scores, interruption: Interruption) -> None:
    """Write the folder `best`: a whole model, its confidences made honest, with a card for people."""
    alone = trainer.processes.count == 1  # the others do not calibrate, and could not agree to stop
    batches = watched(validation, trainer.processes, interruption) if alone else validation.in_order(EVALUATION_BATCH)
    model = calibrated(trainer.model, batches)
    epoch = trainer.progress.epoch + 1
    facts = {
        "run": identity(run.described),
        "preset": trainer.config.preset,
        "epoch": epoch,
        "training_images": trainer.share.total,
        "validation": scores.summary(),
        "versions": {"captcha_ocr": __version__, "torch": torch.__version__},
    }
    save_model(run.out / BEST, model, facts, model_card(trainer.config, run.dataset, epoch, scores))


def finish(
    trainer: Trainer, rule: str, training: Batches, validation: Batches, run: Run, interruption: Interruption
) -> Finished:
    """Score the test set once with the best weights, draw the pictures, write the end into run.json."""
    progress, dataset, processes = trainer.progress, run.dataset, run.processes
    model = load_model(run.out / BEST) if processes.first else ResNet18(trainer.model.config)
    model = move(model, trainer.device)
    processes.send(model.state_dict().values())
    trained = score(model, training, trainer, interruption, TRAINED_BATCHES)
    validated = score(model, validation, trainer, interruption)
    test = None
    if dataset.count("test"):
        test = score(model, load_split(dataset, "test", processes, stream=run.stream), trainer, interruption)
    finished = Finished(
        rule=rule,
        epochs=progress.epoch,
        best_epoch=progress.best_epoch,
        seconds=progress.seconds,
        training=trained.summary(),
        validation=validated.summary(),
        test=None if test is None else {**test.summary(), **test.counts()},
    )
    if processes.first:
        write_end(trainer, run, finished, validated, test)
    run.tell(
        f"ended      {rule}: {counted(progress.epoch, 'epoch')} in {duration(progress.seconds)}, "
        f"best epoch {progress.best_epoch}"
    )
    for sentence in advice(finished, len(dataset.charset), trainer.config.augment):
        run.tell(f"advice     {sentence}")
    return finished


def write_end(trainer: Trainer, run: Run, finished: Finished, validated: Scores, test: Scores | None) -> None:
    """Complete the card, draw the pictures and write the end into run.json."""
    from captcha_ocr.training.plots import draw_confusion, draw_curves

    card = model_card(trainer.config, run.dataset, finished.best_epoch, validated, test)
    write_atomic(run.out / BEST / CARD_FILE, card.encode())
    draw_curves([row for row in trainer.progress.rows if row["by"] == "epoch"], run.out / CURVES_FILE)
    draw_confusion(test or validated, trainer.model.config.class_names, run.out / CONFUSION_FILE)
    versions = {"captcha_ocr": __version__, "python": platform.python_version(), "torch": torch.__version__}
    facts = {"device": describe(trainer.device), "processes": run.processes.count, "precision": trainer.precision}
    end_run(run.out, finished, {**facts, "versions": versions})


def score(
    model: ResNet18, batches: Batches, trainer: Trainer, interruption: Interruption, most: int | None = None
) -> Scores:
    """The score on a split, or its first batches: every process with its part, by the first one's batch norms."""
    trainer.processes.send(model.buffers())
    mine = watched(batches, trainer.processes, interruption, most)
    return evaluate(model, mine, trainer.config.loss, trainer.processes)


def watched(
    batches: Batches, processes: Processes, interruption: Interruption, most: int | None = None
) -> Iterator[Samples]:
    """This process's batches, until a signal has come to one of the processes: before each of them all agree."""
    remaining = islice(batches.in_order(EVALUATION_BATCH), most)
    while True:
        batch = next(remaining, None)
        number, more = processes.largest(interruption.wanted or 0, batch is not None)
        if number:
            interruption.leave(number)
        if not more:
            return
        if batch is not None:  # another process may have more of them
            yield batch
