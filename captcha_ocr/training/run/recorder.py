"""Write what a run leaves in its folder: metrics, checkpoints, the best model, and its end.

The metrics are in metrics.jsonl, and for `tensorboard --logdir runs` as curves.
"""

import platform
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from captcha_ocr.charset import shorten
from captcha_ocr.inference.model_folder import CARD_FILE, copy_model, current_path, name_model
from captcha_ocr.network.device import describe_device
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.weights import save_model
from captcha_ocr.options.training import TrainConfig
from captcha_ocr.scores import Scores
from captcha_ocr.system.files import printable, write_atomic
from captcha_ocr.training.run.checkpoint import save_checkpoint, save_last
from captcha_ocr.training.run.folder import (
    BEST,
    CONFUSION_FILE,
    CURVES_FILE,
    REPLACED,
    TENSORBOARD,
    Finished,
    end_run,
    start_run,
    write_metrics,
)
from captcha_ocr.training.run.spec import Run
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData
from captcha_ocr.training.step.trainer import Trainer
from captcha_ocr.version import __version__

SECONDS_BETWEEN_CHECKPOINTS = 180.0  # within an epoch
CURVES = {
    "training_loss": "loss/training",
    "training_exact": "exact/training",
    "validation_loss": "loss/validation",
    "validation_exact": "exact/validation",
    "validation_characters": "characters/validation",
    "learning_rate": "learning rate",
    "images_per_s": "images per second",
    "peak_memory_mb": "peak memory (MB)/process",
    "peak_device_memory_mb": "peak memory (MB)/device",
}


class Recorder:
    """Write what a run leaves while it trains, in the main process; the others write nothing."""

    def __init__(
        self, run: Run, trainer: Trainer, checkpoint: Path | None, stack: ExitStack
    ) -> None:
        """Make the run folder ready for a run that may continue from a checkpoint.

        TensorBoard's files are closed with `stack`.
        """
        self.run, self.trainer = run, trainer
        self.saved_at = time.monotonic()
        self.logged = len(trainer.progress.rows)
        self.tensorboard: Any = None  # a SummaryWriter
        if not run.group.is_main:
            return
        if run.replaces:
            older = run.out / REPLACED
            run.tell(
                f"replaces   the run in {run.out}; {older} keeps it until this one has finished"
            )
        start_run(run.out, run.spec, run.replaces, checkpoint)
        best, has_best = run.out / BEST, trainer.progress.best_exact >= 0
        if checkpoint is not None and has_best and not best.exists():
            copy_model(current_path(checkpoint.parent / BEST), best)
        if run.options.tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # slow, and of another package

            # It hides what a stopped run wrote after this step.
            after = trainer.progress.step + 1
            writer = SummaryWriter(run.out / TENSORBOARD, purge_step=after)
            self.tensorboard = stack.enter_context(writer)
        write_metrics(run.out, trainer.progress.rows)

    def record_step(self) -> None:
        """Give TensorBoard the rows that are new, and save a checkpoint every few minutes."""
        self.log()
        if time.monotonic() - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS:
            self.save()

    def log(self) -> None:
        """Give TensorBoard the rows that are new."""
        if self.tensorboard is not None:
            write_curves(self.tensorboard, self.trainer.progress.rows[self.logged :])
            self.logged = len(self.trainer.progress.rows)

    def save(self) -> None:
        """Write the checkpoint `last` and the metrics."""
        if self.run.group.is_main:
            save_last(self.run.out, self.run.spec, self.trainer)
            write_metrics(self.run.out, self.trainer.progress.rows)
        self.saved_at = time.monotonic()

    def record_epoch(self) -> None:
        """Write the rows and the checkpoint `last`, and that of every Nth epoch, which stays."""
        self.log()
        every, epoch = self.run.options.keep_every, self.trainer.progress.epoch
        # Before `last`: a run that is killed between the two does the epoch again.
        if self.run.group.is_main and every and epoch % every == 0:
            save_checkpoint(self.run.out / f"epoch-{epoch:04}", self.run.spec, self.trainer)
        self.save()

    def save_best(self, model: ResNet18, scores: Scores) -> None:
        """Write the folder `best`: a complete model that is calibrated, and a model card."""
        trainer, epoch = self.trainer, self.trainer.progress.epoch + 1
        facts = {
            "run": self.run.spec.identity,
            "preset": trainer.config.preset,
            "epoch": epoch,
            "training_images": trainer.partition.total,
            "validation": scores.summary(),
            "versions": {"captcha_ocr": __version__, "torch": torch.__version__},
        }
        card = write_card(trainer.config, self.run.dataset, epoch, scores)
        save_model(self.run.out / BEST, model, facts, card)

    def end(self, finished: Finished, validated: Scores, test: Scores | None) -> None:
        """Complete the card, draw the pictures and write the end into run.json."""
        # matplotlib loads for a second.
        from captcha_ocr.pictures.plots import draw_confusions, draw_curves, save_figure

        if not self.run.group.is_main:
            return
        out, trainer, options = self.run.out, self.trainer, self.run.options
        card = write_card(trainer.config, self.run.dataset, finished.best_epoch, validated, test)
        write_atomic(out / BEST / CARD_FILE, card.encode())
        curves = draw_curves(trainer.progress.epoch_rows, finished.best_epoch, trainer.config)
        save_figure(curves, out / CURVES_FILE)
        confusions = draw_confusions(test or validated, trainer.model.config.class_names)
        save_figure(confusions, out / CONFUSION_FILE)
        init = None if options.init is None else printable(Path(name_model(options.init)))
        names = ("device", "threads", "stream", "keep_every", "tensorboard")
        given = {name: getattr(options, name) for name in names}
        facts = {
            "device": describe_device(trainer.device),
            "processes": self.run.group.world_size,
            "precision": trainer.precision,
            "versions": {
                "captcha_ocr": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
            },
            "given": {"data": _describe_data(self.run.dataset), "init": init, **given},
        }
        end_run(out, finished, facts)


def _describe_data(dataset: TrainingData) -> Any:
    """Return the data as it was given, as JSON types: the folders of shards, or what to draw."""
    if isinstance(dataset, DrawnData):
        fonts = [printable(Path(font)) for font in dataset.options.fonts]
        return {**asdict(dataset.options), "fonts": fonts}
    return [printable(folder) for folder in dataset.folders]


def write_card(
    config: TrainConfig,
    dataset: TrainingData,
    best_epoch: int,
    validation: Scores,
    test: Scores | None = None,
) -> str:
    """Return the model card as Markdown: README.md in a model folder, for people."""
    charset = dataset.charset
    case = "kept" if charset.case is None else f"read as {charset.case} case"
    kind = "images"
    if isinstance(dataset, DrawnData):
        options = dataset.options
        designs = ", ".join(dict.fromkeys(f"`{design}`" for design in options.designs))
        kind = (
            f"images an epoch,\ndrawn while it trained (design {designs}), "
            f"new ones every {options.rhythm}"
        )
    images = f"{config.images or dataset.count('train'):,} {kind}"
    lines = [
        "# A captcha-ocr model",
        "",
        f"Reads texts of {dataset.lengths} of the {len(charset)} characters "
        f"`{shorten(charset.characters)}`",
        f"(case {case}) from images resized to {dataset.size}.",
        f"Trained by captcha-ocr {__version__}, preset `{config.preset}`,",
        f"seed {config.seed}, on {images}; best epoch {best_epoch}.",
        "",
        "For captchas that you generate, own or may test.",
        "",
        "Validation, which chose this epoch:",
        "",
        *(f"    {line}" for line in str(validation).splitlines()),
    ]
    if test is not None:
        lines += ["", "Test, scored once:", "", *(f"    {line}" for line in str(test).splitlines())]
    return "\n".join([*lines, ""])


def write_curves(writer: Any, rows: Iterable[dict[str, Any]]) -> None:
    """Give TensorBoard rows of metrics: those of steps, and the validation values of epochs."""
    for row in rows:
        for key, name in CURVES.items():
            value = row.get(key)
            if value is not None and (row["by"] == "step" or key.startswith("validation")):
                writer.add_scalar(name, value, row["step"])
    writer.flush()
