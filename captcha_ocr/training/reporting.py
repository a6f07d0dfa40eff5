"""What a run prints: its settings, how long it takes, a row for each epoch, and its end."""

import math
import statistics
import time
from typing import Any

from captcha_ocr.inference.model_folder import describe_model
from captcha_ocr.network.device import describe_device
from captcha_ocr.options.training import PRESETS, TrainConfig, TrainOptions
from captcha_ocr.system.console import Table, counted, duration
from captcha_ocr.training.distributed import BatchPartition, local_device, process_group
from captcha_ocr.training.early_stopping import describe_early_stopping, surely_read
from captcha_ocr.training.run.spec import Run, RunSpec
from captcha_ocr.training.samples.batches import Batches, load_split
from captcha_ocr.training.samples.dataset import TrainingData
from captcha_ocr.training.step.trainer import Trainer

TRIAL_SECONDS = 4.0  # at most, to estimate how long a run takes
_TRIAL_STEPS = 30  # at most
EPOCHS = Table(
    {"epoch": 9, "loss": 8, "exact": 8, "val loss": 9, "val exact": 10, "chars": 8}
    | {"images/s": 9, "sure": 5, "left": 12, "": 2}
)


def tell_settings(run: Run, trainer: Trainer, training: Batches) -> None:
    """Print what the run trains, on what, with what."""
    preset, init, group = run.spec.training.preset, run.options.init, run.group
    processes = "" if group.world_size == 1 else f"; {group.world_size} processes"
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    run.tell(
        f"device     {describe_device(group.device)}, {trainer.precision}{processes}\n"
        f"data       {trainer.partition.total:,} training images, "
        f"{run.dataset.count('val'):,} validation images, {run.dataset.size}, {training.location}\n"
        f"network    ResNet-18, {parameters:,} parameters\n"
        f"recipe     preset {preset}, for {PRESETS[preset].meant_for}"
    )
    if init is not None:
        line = f"weights    from {describe_model(init)}"
        if frozen := trainer.frozen_steps:
            line += f"; first the classifier alone is trained, for {counted(frozen, 'step')}"
        run.tell(line)


def estimate(trainer: Trainer, training: Batches, validation_images: int) -> str:
    """Estimate how long the run takes at most, from some steps of a network like its own."""
    trial = Trainer(
        trainer.model.config, trainer.config, trainer.partition, finds_end=trainer.finds_end
    )
    trial.progress.step = trainer.progress.step
    rate, total = measure_rate(trial, training), trainer.partition.total
    scored = validation_images + 2 * trainer.sample_size * trainer.finds_end
    epoch_s = epoch_seconds(total, scored, rate) + training.extra_seconds
    expected, early = f"{duration(epoch_s)} an epoch", describe_early_stopping(trainer)
    if trainer.epochs is not None:
        progress = trainer.progress
        left = trainer.epochs - progress.epoch - progress.batch / trainer.partition.steps
        at_most = " at most" if early else ""
        epochs = counted(math.ceil(left), "epoch")
        expected = f"{duration(left * epoch_s)}{at_most} for {epochs}"
    line = f"expected   about {expected} ({rate:,.0f} images/s)"
    return f"{line}\nends       {early}" if early else line


def head_epochs(trainer: Trainer) -> str:
    """Return the explanation and the header of the table of epochs."""
    sure = "sure: % surely read; " if trainer.finds_end else ""
    since = ", else epochs since it" if trainer.config.patience is not None else ""
    return f"epochs     val, chars: validation; {sure}*: best so far{since}\n{EPOCHS.header}"


def epoch_seconds(training_images: int, scored_images: int, rate: float) -> float:
    """Return how long an epoch takes at a rate of training images per second.

    A step costs three forward passes, an image that is scored one.
    """
    return (training_images + scored_images / 3) / rate


def measure_rate(trainer: Trainer, training: Batches) -> float:
    """Measure the training images per second in a few steps."""
    images, labels = training.first(trainer.partition.local_batch_size)
    global_batch = len(images) * trainer.partition.group.world_size
    seconds: list[float] = []
    while len(seconds) < 4 or (len(seconds) < _TRIAL_STEPS and sum(seconds) < TRIAL_SECONDS):
        started = time.perf_counter()
        trainer.step(images, labels, global_batch)[0].item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    # The first steps are slow and uneven.
    return global_batch / statistics.median(seconds[len(seconds) // 2 :])


def measure_rate_of(dataset: TrainingData, config: TrainConfig, options: TrainOptions) -> float:
    """Measure the training images per second of a run that is not begun."""
    with process_group(local_device(options.device)) as group:
        images = config.images or dataset.count("train")
        partition = BatchPartition(images, config.batch_size, group)
        training = load_split(dataset, "train", group, partition.samples, options.stream)
        spec = RunSpec.of(dataset, config, options.init)
        return measure_rate(Trainer(spec.model, config, partition), training)


def epoch_row(row: dict[str, Any], trainer: Trainer) -> str:
    """Describe one epoch in a row of `EPOCHS`.

    row: of metrics. The time left is there where the number of epochs is known, and what is surely
    read or how many epochs have not improved where that may end the run.
    """
    number, total = row["epoch"], trainer.epochs
    sure = surely_read(trainer.progress.epoch_rows)
    since = number - trainer.progress.best_epoch
    name, time_left, mark = str(number), "", ""
    if not since:
        mark = "*"
    elif trainer.config.patience is not None:
        mark = f" {since}"
    if total is not None:
        name = f"{number}/{total}"
        time_left = duration(row["seconds"] / number * (total - number))
    return EPOCHS.row(
        name,
        f"{row['training_loss']:.4f}",
        f"{row['training_exact']:.2%}",
        f"{row['validation_loss']:.4f}",
        f"{row['validation_exact']:.2%}",
        f"{row['validation_characters']:.2%}",
        f"{row['images_per_s']:,.0f}",
        f"{math.floor(1000 * sure) / 10:.1f}" if sure else "",
        time_left,
        mark,
    )


def describe_memory(row: dict[str, Any]) -> str:
    """Describe the peak memory in a row of metrics."""
    peaks = {"": row["peak_memory_mb"], " on the device": row["peak_device_memory_mb"]}
    known = [f"{peak / 1e3:.1f} GB{place}" for place, peak in peaks.items() if peak is not None]
    return " and ".join(known) or "memory unknown"
