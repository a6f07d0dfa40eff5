"""The trainer: network, optimiser and schedule, one step and one epoch of it."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captcha_ocr.augment import augment
from captcha_ocr.batches import Batches
from captcha_ocr.checkpoint import find_model_folder, load_into
from captcha_ocr.config import ModelConfig, Precision, TrainConfig, derive_epochs
from captcha_ocr.device import autocast, choose_precision
from captcha_ocr.difficulty import Difficulty
from captcha_ocr.losses import LOSSES, smooth
from captcha_ocr.model import ResNet18, move
from captcha_ocr.progress import ProgressBar
from captcha_ocr.resume import Progress


@dataclasses.dataclass
class Trainer:
    """What a run consists of while it runs."""

    model: ResNet18
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    config: TrainConfig
    epochs: int | None
    device: torch.device
    precision: Precision
    progress: Progress
    difficulty: Difficulty

    def step(self, images: Tensor, labels: Tensor, augmenting: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """One optimiser step on (B, C, H, W) uint8 images; the loss, and which characters were wrong (B, L).

        augmenting: where the chance comes from by which images are changed; None leaves them as they are.
        """
        targets = labels
        if augmenting is not None:
            images, targets = augment(images, labels, len(self.model.config.charset), augmenting)
        with autocast(self.device, self.precision):
            logits = self.model(images)
        if self.config.smoothing:
            targets = smooth(targets, logits.shape[-1], self.config.smoothing)
        loss = LOSSES[self.config.loss](logits, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach(), logits.detach().argmax(-1) != labels


def make_trainer(
    model_config: ModelConfig,
    config: TrainConfig,
    training: Batches,
    device: torch.device,
    init: Path | None,
    progress: Progress,
) -> Trainer:
    """Network, optimiser and schedule as the configuration says; weights from `init`, or seeded."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = ResNet18(model_config)
    if init is not None:
        load_into(model, find_model_folder(init))
    model = move(model, device)
    optimizer = make_optimizer(model, config)
    epochs = derive_epochs(config, len(training))
    schedule = make_schedule(optimizer, config, (epochs or 0) * training.batch_count(config.batch_size))
    precision = choose_precision(config.precision, device)
    difficulty = Difficulty(len(model_config.charset), config.focus, device)
    return Trainer(model, optimizer, schedule, config, epochs, device, precision, progress, difficulty)


def make_optimizer(model: ResNet18, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam or AdamW over all parameters, in one fused kernel where the device has it."""
    kinds: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    fused = model.device.type in ("cpu", "cuda")
    return kinds[config.optimizer](
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused or None
    )


def make_schedule(
    optimizer: torch.optim.Optimizer, config: TrainConfig, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """The learning rate over all `steps`: one cycle, cosine or constant."""
    schedules = torch.optim.lr_scheduler
    if config.schedule == "onecycle":
        return schedules.OneCycleLR(optimizer, config.learning_rate, total_steps=steps, cycle_momentum=False)
    if config.schedule == "cosine":
        return schedules.CosineAnnealingLR(optimizer, steps)
    return schedules.ConstantLR(optimizer, factor=1.0)


def run_epoch(trainer: Trainer, training: Batches, quiet: bool) -> dict[str, Any]:
    """One pass over the training images; returns the first half of its row of metrics."""
    progress, config = trainer.progress, trainer.config
    seed = config.seed * 1_000_003 + progress.epoch
    generator = torch.Generator().manual_seed(seed)
    progress.epoch += 1
    augmenting = None
    if config.augment:
        augmenting = torch.Generator(trainer.device).manual_seed(seed)
    weigh = trainer.difficulty.weights if config.focus else None
    trainer.model.train()
    loss_sum = torch.zeros((), device=trainer.device)
    exact = torch.zeros((), dtype=torch.int64, device=trainer.device)
    images_seen = 0
    started = time.perf_counter()
    name = f"epoch {progress.epoch}" + (f"/{trainer.epochs}" if trainer.epochs else "")
    with ProgressBar(name, quiet) as bar:
        for images, labels in training.shuffled(config.batch_size, generator, weigh):
            loss, wrong = trainer.step(images, labels, augmenting)
            if weigh is not None:
                trainer.difficulty.update(labels, wrong)
            trainer.schedule.step()
            progress.step += 1
            loss_sum += loss * len(images)
            exact += (~wrong.any(1)).sum()
            images_seen += len(images)
            if bar.wants_note():  # twice a second: the only waits for the device inside an epoch
                bar.note(f"loss {loss_sum.item() / images_seen:.4f} exact {exact.item() / images_seen:.1%}")
            bar.show(images_seen, len(training))
    loss_mean, exact_share = loss_sum.item() / images_seen, exact.item() / images_seen
    return {
        "epoch": progress.epoch,
        "step": progress.step,
        "training_loss": loss_mean,
        "training_exact": exact_share,
        "learning_rate": trainer.schedule.get_last_lr()[0],
        "images_per_s": images_seen / (time.perf_counter() - started),
    }
