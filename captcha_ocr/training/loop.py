"""The training loop: epoch, validation, best model, checkpoint, until a rule or a signal ends it; then the test."""

import math
import platform
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from captcha_ocr.config import decays
from captcha_ocr.data.prepare import printable
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import CARD_FILE, name_of_model
from captcha_ocr.metrics import Scores, is_worse, loss_or_infinity
from captcha_ocr.network.calibration import calibrate
from captcha_ocr.network.device import describe_device
from captcha_ocr.network.resnet import ResNet18, to_device
from captcha_ocr.network.weights import load_model, save_model
from captcha_ocr.system.console import SECONDS_BETWEEN_NOTES, Table, counted, duration
from captcha_ocr.system.files import write_atomic
from captcha_ocr.training.advice import Origin, advice
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.evaluate import evaluate, evaluation_batch
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.training.run.checkpoint import save_checkpoint, save_last
from captcha_ocr.training.run.folder import (
    BEST,
    CONFUSION_FILE,
    CURVES_FILE,
    TENSORBOARD,
    Finished,
    end_run,
    kept_checkpoint,
    write_metrics,
)
from captcha_ocr.training.run.model_card import model_card
from captcha_ocr.training.run.spec import Run
from captcha_ocr.training.run.tensorboard import TensorBoardLogger
from captcha_ocr.training.samples.batches import Batches, Samples, load_split
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData
from captcha_ocr.training.step.trainer import Progress, Trainer
from captcha_ocr.version import __version__

TRAINING_BATCHES = 4  # of training images, to score for comparison
SECONDS_BETWEEN_CHECKPOINTS = 180.0  # within an epoch
EPOCHS = Table(
    {"epoch": 9, "loss": 8, "exact": 8, "val loss": 10, "val exact": 11, "val chars": 11}
    | {"images/s": 9, "left": 12, "": 2}
)
EPOCHS_EXPLAINED = "val: validation images; chars: correct characters; *: best so far"


class TrainingLoop:
    """A run while it trains: it owns the trainer, the batches, the run folder and the stop flag."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        training: Batches,
        validation: Batches,
        interruption: Interruption,
    ) -> None:
        self.run, self.trainer, self.interruption = run, trainer, interruption
        self.training, self.validation = training, validation
        self.group, self.progress = run.group, trainer.progress
        self.saved_at = time.monotonic()
        self.logged = len(self.progress.rows)
        writes_log = run.options.tensorboard and self.group.is_main
        self.tensorboard = (
            TensorBoardLogger(run.out / TENSORBOARD, self.progress.step) if writes_log else None
        )

    def run_epochs(self) -> str:
        """Train epoch after epoch until a rule ends the run; returns the rule. A signal ends it with a checkpoint."""
        if self.group.is_main:
            write_metrics(self.run.out, self.progress.rows)
        try:
            if ending_rule(self.trainer) is None:
                self.run.tell(f"epochs     {EPOCHS_EXPLAINED}\n{EPOCHS.header}")
            while (rule := ending_rule(self.trainer)) is None:
                self.run_epoch()
        except (KeyboardInterrupt, SystemExit):  # raised only between steps and between batches
            self.save()
            raise
        finally:
            if self.tensorboard is not None:
                self.tensorboard.close()
        return rule

    def run_epoch(self) -> None:
        """Train one epoch, validate, and save the best model and a checkpoint."""
        trainer, progress = self.trainer, self.progress
        trainer.count_seconds(self.wait_for_images(progress.epoch, trainer.epochs))
        row = trainer.run_epoch(
            self.training, self.run.options.quiet or not self.group.is_main, self.between_steps
        )
        started = time.perf_counter()
        model = trainer.result()
        scores = self.score(model, self.validation)
        at_rest = progress.epoch + 1 == trainer.epochs and decays(trainer.config)
        if is_better(scores, progress, at_rest):
            if self.group.is_main:
                self.save_best(model, scores)
            progress.best_epoch, progress.best_exact = progress.epoch + 1, scores.exact_match
            progress.best_loss = loss_or_infinity(scores.loss)
        progress.seconds += time.perf_counter() - started
        row |= {
            "seconds": progress.seconds,
            "validation_loss": scores.loss,
            "validation_exact": scores.exact_match,
        }
        row["validation_characters"] = scores.character_accuracy
        progress.rows.append({"by": "epoch", **row})
        trainer.end_epoch(loss_or_infinity(scores.loss))
        self.log()
        every = self.run.options.keep_every
        if self.group.is_main and every and progress.epoch % every == 0:
            # Before `last`: a run that is killed between the two does the epoch again.
            save_checkpoint(kept_checkpoint(self.run.out, progress.epoch), self.run.spec, trainer)
        self.save()
        self.run.tell(epoch_row(row, trainer))

    def wait_for_images(self, epoch: int, epochs: int | None) -> float:
        """Wait until all processes have the images of an epoch, or a signal ends the run; return the seconds."""
        started = time.perf_counter()
        self.training.show(epoch, epochs)
        more = 1
        while more:
            missing = self.training.wait(SECONDS_BETWEEN_NOTES)
            number, more = self.group.maximum(self.interruption.wanted or 0, missing)
            if number:
                self.interruption.leave(number)
        return time.perf_counter() - started

    def between_steps(self) -> None:
        """Log what is new, save when the last checkpoint is some minutes old, and leave if a signal asks for it."""
        self.log()
        if time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            self.save()
        number = self.group.agree_on_signal(self.interruption.wanted, self.progress.step)
        if number is not None:
            self.interruption.leave(number)

    def log(self) -> None:
        """Give TensorBoard the rows that are new."""
        if self.tensorboard is not None:
            self.tensorboard.write(self.progress.rows[self.logged :])
            self.logged = len(self.progress.rows)

    def save(self) -> None:
        """Write the checkpoint `last` and the metrics."""
        if self.group.is_main:
            save_last(self.run.out, self.run.spec, self.trainer)
            write_metrics(self.run.out, self.progress.rows)
        self.saved_at = time.monotonic()

    def save_best(self, result: ResNet18, scores: Scores) -> None:
        """Write the folder `best`: a complete model with calibrated confidences, and a model card."""
        trainer, alone = self.trainer, self.group.world_size == 1
        # The other processes do not calibrate, and so cannot agree on a signal meanwhile.
        batches = (
            self.watched(self.validation)
            if alone
            else self.validation.in_order(evaluation_batch(trainer.model.config))
        )
        model = calibrate(result, batches)
        epoch = self.progress.epoch + 1
        facts = {
            "run": self.run.spec.identity,
            "preset": trainer.config.preset,
            "epoch": epoch,
            "training_images": trainer.partition.total,
            "validation": scores.summary(),
            "versions": {"captcha_ocr": __version__, "torch": torch.__version__},
        }
        card = model_card(trainer.config, self.run.dataset, epoch, scores)
        save_model(self.run.out / BEST, model, facts, card)

    def finish(self, rule: str) -> Finished:
        """Score the test set once with the best weights, draw the pictures and write the end into run.json."""
        run, progress, dataset = self.run, self.progress, self.run.dataset
        model = (
            load_model(run.out / BEST)
            if self.group.is_main
            else ResNet18(self.trainer.model.config)
        )
        model = to_device(model, self.trainer.device)
        self.group.broadcast(model.state_dict().values())
        self.wait_for_images(progress.epoch - 1, progress.epoch)
        trained = self.score(model, self.training, TRAINING_BATCHES)
        validated = self.score(model, self.validation)
        test = None
        if dataset.count("test"):
            test = self.score(
                model, load_split(dataset, "test", self.group, stream=run.options.stream)
            )
        finished = Finished(
            rule=rule,
            epochs=progress.epoch,
            best_epoch=progress.best_epoch,
            seconds=progress.seconds,
            training=trained.summary(),
            validation=validated.summary(),
            test=None if test is None else {**test.summary(), **test.counts()},
        )
        if self.group.is_main:
            self.write_end(finished, validated, test)
        run.tell(
            f"ended      {rule}: {counted(progress.epoch, 'epoch')} in {duration(progress.seconds)}, "
            f"best epoch {progress.best_epoch}; {memory_used(progress.rows[-1])}"
        )
        origin = Origin(dataset, run.out, run.options, run.group.world_size)
        for sentence in advice(finished, run.spec, origin) if run.options.advise else []:
            run.tell(f"advice     {sentence}")
        return finished

    def write_end(self, finished: Finished, validated: Scores, test: Scores | None) -> None:
        """Complete the card, draw the pictures and write the end into run.json."""
        from captcha_ocr.training.plots import draw_confusions, draw_curves, save_figure

        out, trainer = self.run.out, self.trainer
        card = model_card(trainer.config, self.run.dataset, finished.best_epoch, validated, test)
        write_atomic(out / BEST / CARD_FILE, card.encode())
        epochs = [row for row in self.progress.rows if row["by"] == "epoch"]
        save_figure(draw_curves(epochs, finished.best_epoch, trainer.config), out / CURVES_FILE)
        save_figure(
            draw_confusions(test or validated, trainer.model.config.class_names),
            out / CONFUSION_FILE,
        )
        versions = {
            "captcha_ocr": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        facts = {
            "device": describe_device(trainer.device),
            "processes": self.group.world_size,
            "precision": trainer.precision,
        }
        options = self.run.options
        init = None if options.init is None else printable(Path(name_of_model(options.init)))
        names = ("device", "threads", "stream", "keep_every", "tensorboard")
        given = {"data": given_data(self.run.dataset), "init": init}
        given |= {name: getattr(options, name) for name in names}
        end_run(out, finished, {**facts, "versions": versions, "given": given})

    def score(self, model: ResNet18, batches: Batches, limit: int | None = None) -> Scores:
        """Score a split, or its first batches: every process its part, with the main process's batch norms."""
        self.group.broadcast(model.buffers())
        return evaluate(model, self.watched(batches, limit), self.trainer.config.loss, self.group)

    def watched(self, batches: Batches, limit: int | None = None) -> Iterator[Samples]:
        """Yield this process's batches, in order, until a signal ends the run."""
        return until_signal(
            batches.in_order(evaluation_batch(self.trainer.model.config)),
            self.group,
            self.interruption,
            limit,
        )


def given_data(dataset: TrainingData) -> Any:
    """Return the data as it was given, as JSON types: the folders of shards, or what to draw."""
    if isinstance(dataset, DrawnData):
        return {
            **asdict(dataset.options),
            "fonts": [printable(Path(font)) for font in dataset.options.fonts],
        }
    return [printable(folder) for folder in dataset.folders]


def until_signal(
    batches: Iterable[Samples],
    group: ProcessGroup,
    interruption: Interruption,
    limit: int | None = None,
) -> Iterator[Samples]:
    """Yield batches until one of the processes has received a signal; before each of them all processes agree."""
    remaining = islice(batches, limit)
    while True:
        batch = next(remaining, None)
        number, more = group.maximum(interruption.wanted or 0, batch is not None)
        if number:
            interruption.leave(number)
        if not more:
            return
        if batch is not None:  # another process may have more of them
            yield batch


def is_better(scores: Scores, progress: Progress, at_rest: bool = False) -> bool:
    """Tell whether a validation beats the best so far: more exact matches, or as many at a lower loss.

    at_rest: whether the learning rate has decayed to zero. Such weights are better unless they are significantly worse:
    of many epochs the luckiest reads a few more of a thousand validation images, or all of ten, but fewer other images
    (docs/lab-notebook.md, 2026-11-22 and -23).
    """
    if at_rest and math.isfinite(loss_or_infinity(scores.loss)):
        return not is_worse(
            scores.exact, max(0, round(progress.best_exact * scores.images)), scores.images
        )
    return (scores.exact_match, -loss_or_infinity(scores.loss)) > (
        progress.best_exact,
        -progress.best_loss,
    )


def ending_rule(trainer: Trainer) -> str | None:
    """Return the rule that ends the run now, or None; CaptchaOcrError if the training has failed."""
    progress, patience = trainer.progress, trainer.config.patience
    if progress.rows and not math.isfinite(progress.rows[-1]["training_loss"]):
        raise CaptchaOcrError(
            f"the loss is not a finite number after epoch {progress.epoch}; try a lower --lr"
        )
    if trainer.epochs is not None and progress.epoch >= trainer.epochs:
        return "all epochs done"
    if progress.epoch - progress.best_epoch >= patience:
        return f"validation has not improved for {counted(patience, 'epoch')}"
    return None


def epoch_row(row: dict[str, Any], trainer: Trainer) -> str:
    """Describe one epoch in a row of `EPOCHS`, with the time left where the number of epochs is known."""
    number, total = row["epoch"], trainer.epochs
    return EPOCHS.row(
        number if total is None else f"{number}/{total}",
        f"{row['training_loss']:.4f}",
        f"{row['training_exact']:.2%}",
        f"{row['validation_loss']:.4f}",
        f"{row['validation_exact']:.2%}",
        f"{row['validation_characters']:.2%}",
        f"{row['images_per_s']:,.0f}",
        "" if total is None else duration(row["seconds"] / number * (total - number)),
        "*" if trainer.progress.best_epoch == number else "",
    )


def memory_used(row: dict[str, Any]) -> str:
    """Describe the peak memory in a row of metrics."""
    process, device = row["peak_memory_mb"], row["peak_device_memory_mb"]
    parts = [] if process is None else [f"{process / 1e3:.1f} GB"]
    parts += [] if device is None else [f"{device / 1e3:.1f} GB on the device"]
    return " and ".join(parts) or "memory unknown"
