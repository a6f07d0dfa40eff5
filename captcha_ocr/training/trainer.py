"""The trainer: network, optimiser and schedule, one step and one epoch of it, and its state."""

import dataclasses
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captcha_ocr.config import ModelConfig, Precision, TrainConfig, derive_epochs
from captcha_ocr.inference.model_folder import find_model_folder
from captcha_ocr.network.device import autocast, choose_precision, peak_memory
from captcha_ocr.network.losses import LOSSES, smooth
from captcha_ocr.network.resnet import ResNet18, move
from captcha_ocr.network.transfer import take_over
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.console import ProgressBar
from captcha_ocr.training.augment import augment
from captcha_ocr.training.batches import Batches, Share
from captcha_ocr.training.checkpoint import Progress
from captcha_ocr.training.difficulty import Difficulty
from captcha_ocr.training.distributed import Processes
from captcha_ocr.training.optim import make_optimizer, make_scaler, make_schedule

ROWS_PER_EPOCH = 20  # of metrics, besides the epoch's own


class Tally:
    """Sums over images, kept on the device, so that adding waits for nothing; `seconds` is what they took."""

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), device=device)
        self.exact, self.images = torch.zeros((2,), dtype=torch.int64, device=device)
        self.seconds = 0.0

    def add(self, loss: Tensor, wrong: Tensor, seconds: float) -> None:
        """Add a step: its mean loss, and which characters were wrong (B, L)."""
        self.loss += loss * len(wrong)
        self.exact += (~wrong.any(1)).sum()
        self.images += len(wrong)
        self.seconds += seconds

    def __add__(self, other: "Tally") -> "Tally":
        both = Tally(self.loss.device)
        both.loss, both.exact, both.images = (
            self.loss + other.loss,
            self.exact + other.exact,
            self.images + other.images,
        )
        both.seconds = self.seconds + other.seconds
        return both

    def __str__(self) -> str:
        return f"loss {self.loss.item() / self.images.item():.4f} exact {self.exact.item() / self.images.item():.1%}"

    def state(self) -> dict[str, float]:
        """The sums as JSON types."""
        return {
            "loss": self.loss.item(),
            "exact": self.exact.item(),
            "images": self.images.item(),
            "seconds": self.seconds,
        }

    def restore(self, state: dict[str, float]) -> None:
        """The inverse of `state`."""
        for tensor, name in ((self.loss, "loss"), (self.exact, "exact"), (self.images, "images")):
            tensor.fill_(state[name])
        self.seconds = state["seconds"]


@dataclasses.dataclass
class Trainer:
    """What a run consists of while it runs.

    network: what is trained, the model itself or the model among several processes. epoch, recent: sums since the epoch
    began, and since the last row of metrics. frozen: the steps in which only what reads the features learns, since they
    come from another model, and what reads them is new.
    """

    model: ResNet18
    network: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    scaler: torch.amp.GradScaler
    config: TrainConfig
    epochs: int | None
    precision: Precision
    share: Share
    progress: Progress
    difficulty: Difficulty
    epoch: Tally
    recent: Tally
    frozen: int = 0

    @property
    def processes(self) -> Processes:
        """Those that train together."""
        return self.share.processes

    @property
    def device(self) -> torch.device:
        """Where this one computes."""
        return self.processes.device

    @property
    def steps(self) -> int:
        """Of all epochs; 0 where there is no last one."""
        return (self.epochs or 0) * self.share.steps

    def chance(self, number: int) -> torch.Generator:
        """A generator on the processor that follows from the seed, a number and this process's rank alone.

        So no state of a generator has to be kept: a run that goes on draws what it would have drawn.
        """
        # The processor's generator heeds the low 32 bits of its seed alone; the factor spreads ranks over them.
        return torch.Generator().manual_seed(
            self.config.seed * 1_000_003 + number + self.processes.rank * 2_654_435_761
        )

    def step(self, images: Tensor, labels: Tensor, together: int) -> tuple[Tensor, Tensor]:
        """One optimiser step on (B, C, H, W) uint8 images, of `together` in all processes.

        Returns the mean loss, and which characters were wrong (B, L).
        """
        targets = labels
        if self.config.augment:
            seed = int(torch.randint(2**62, (1,), generator=self.chance(self.progress.step)))
            chance = torch.Generator(self.device).manual_seed(seed)
            images, targets = augment(images, labels, self.model.config.classes, chance)
        with autocast(self.device, self.precision):
            logits = self.network(images)
        if self.config.smoothing:
            targets = smooth(targets, logits.shape[-1], self.config.smoothing)
        loss = LOSSES[self.config.loss](logits, targets)
        # Gradients are averaged over processes, which may have unequal numbers of images.
        part = len(images) * self.processes.count / together
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss * part).backward()  # type: ignore[no-untyped-call]
        if self.progress.step < self.frozen:
            for parameter in (*self.model.stem.parameters(), *self.model.blocks.parameters()):
                parameter.grad = None
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach(), logits.detach().argmax(-1) != labels

    def end_epoch(self, validation_loss: float = 0.0) -> None:
        """Count the epoch as done, and lower the rate where its schedule looks at the validation."""
        if isinstance(self.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.schedule.step(validation_loss)
        self.progress.epoch += 1
        self.progress.batch = 0
        self.epoch, self.recent = Tally(self.device), Tally(self.device)

    def state(self) -> dict[str, Any]:
        """Everything but weights, optimiser and progress, as JSON types."""
        return {
            "steps": self.steps,
            "steps_per_epoch": self.share.steps,
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "difficulty": self.difficulty.state(),
            "epoch": self.epoch.state(),
            "recent": self.recent.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.schedule.load_state_dict(state["schedule"])
        if state["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.difficulty.restore(state["difficulty"])
        self.epoch.restore(state["epoch"])
        if self.processes.first:  # whose alone it was
            self.recent.restore(state["recent"])

    def row(self, tally: Tally) -> dict[str, Any]:
        """A row of metrics; waits for the device."""
        images = tally.images.item()
        return {
            "epoch": self.progress.epoch + 1,
            "step": self.progress.step,
            "seconds": self.progress.seconds,
            "training_loss": tally.loss.item() / images,
            "training_exact": tally.exact.item() / images,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "images_per_s": images / tally.seconds,
            **peak_memory(self.device),
        }


def make_trainer(
    model_config: ModelConfig, config: TrainConfig, share: Share, init: Path | None, progress: Progress
) -> Trainer:
    """Network, optimiser and schedule as the configuration says; weights from `init`, or seeded."""
    device = share.processes.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = ResNet18(model_config)
    if init is not None:
        take_over(load_model(find_model_folder(init)), model)
    model = move(model, device)
    optimizer = make_optimizer(model, config)
    epochs = derive_epochs(config, share.total)
    precision = choose_precision(config.precision, device)
    return Trainer(
        model=model,
        network=model,
        optimizer=optimizer,
        schedule=make_schedule(optimizer, config, (epochs or 0) * share.steps),
        scaler=make_scaler(device, precision),
        config=config,
        epochs=epochs,
        precision=precision,
        share=share,
        progress=progress,
        difficulty=Difficulty(model_config.classes, config.focus, share.processes),
        epoch=Tally(device),
        recent=Tally(device),
        frozen=round(config.frozen * (epochs or 1) * share.steps),
    )


def run_epoch(
    trainer: Trainer, training: Batches, quiet: bool, between_steps: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """One pass over the training images, or the rest of one; returns the first half of its row of metrics."""
    progress, share = trainer.progress, trainer.share
    difficulty = trainer.difficulty if trainer.config.focus else None
    trainer.model.train()
    name = f"epoch {progress.epoch + 1}" + (f"/{trainer.epochs}" if trainer.epochs else "")
    batches = training.shuffled(share.batch, trainer.chance(progress.epoch), difficulty, progress.batch)
    before = time.perf_counter()
    with ProgressBar(name, quiet) as bar:
        for images, labels in islice(batches, share.steps - progress.batch):
            loss, wrong = trainer.step(images, labels, share.images(progress.batch))
            if difficulty is not None:
                difficulty.update(labels, wrong)
            if trainer.config.schedule != "plateau":
                trainer.schedule.step()
            progress.step += 1
            progress.batch += 1
            elapsed = time.perf_counter() - before
            before += elapsed
            progress.seconds += elapsed
            trainer.recent.add(loss, wrong, elapsed)
            if progress.batch % max(1, share.steps // ROWS_PER_EPOCH) == 0 or progress.batch == share.steps:
                end_interval(trainer)
            if bar.wants_note():  # twice a second: with the rows of metrics the only waits for the device in an epoch
                bar.note(str(trainer.epoch + trainer.recent))
            bar.show(min(share.total, progress.batch * share.batch_size), share.total)
            between_steps()
    return trainer.row(trainer.epoch)


def end_interval(trainer: Trainer) -> None:
    """Add up over all processes what was counted since the last row of metrics, and write another."""
    trainer.processes.add(trainer.recent.loss, trainer.recent.exact, trainer.recent.images)
    trainer.progress.rows.append({"by": "step", **trainer.row(trainer.recent)})
    trainer.epoch, trainer.recent = trainer.epoch + trainer.recent, Tally(trainer.device)
