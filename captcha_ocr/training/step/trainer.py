"""The trainer: network, optimiser and schedule, one step and one epoch of them, and their state."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captcha_ocr.config import ModelConfig, TrainConfig, derive_epochs
from captcha_ocr.inference.model_folder import find_model_folder
from captcha_ocr.network.device import autocast, choose_precision, one_thread, peak_memory
from captcha_ocr.network.losses import LOSSES, ctc, merged_classes, read_columns, smooth
from captcha_ocr.network.resnet import ResNet18, to_device
from captcha_ocr.network.transfer import blend, copy_matching_weights
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.console import ProgressBar
from captcha_ocr.training.samples.augment import augment, change_views
from captcha_ocr.training.samples.batches import Batches, BatchPartition
from captcha_ocr.training.step.batch_split import Replicas, count_parts
from captcha_ocr.training.step.cuda_graph import StepGraph
from captcha_ocr.training.step.optim import make_optimizer, make_scaler, make_schedule

ROWS_PER_EPOCH = 20  # of metrics, besides the row of the epoch


@dataclass
class Progress:
    """How far a run has come: epochs done, steps of the current epoch (`batch`) and of all, and the best epoch so far.

    rows: of metrics. best_exact: the best exact match on the validation images, 0 to 1; -1 before the first epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_exact: float = -1.0
    best_loss: float = float("inf")
    rows: list[dict[str, Any]] = field(default_factory=list)


class RunningMetrics:
    """Sums over images. They stay on the device, so adding never waits for it; `seconds` is the time of the steps."""

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

    def __add__(self, other: "RunningMetrics") -> "RunningMetrics":
        both = RunningMetrics(self.loss.device)
        both.loss, both.exact = self.loss + other.loss, self.exact + other.exact
        both.images, both.seconds = self.images + other.images, self.seconds + other.seconds
        return both

    def __str__(self) -> str:
        return f"loss {self.loss.item() / self.images.item():.4f} exact {self.exact.item() / self.images.item():.1%}"

    def state(self) -> dict[str, float]:
        """Return the sums as JSON types."""
        sums = {"loss": self.loss.item(), "exact": self.exact.item(), "images": self.images.item()}
        return {**sums, "seconds": self.seconds}

    def restore(self, state: dict[str, float]) -> None:
        """Invert `state`."""
        for tensor, name in ((self.loss, "loss"), (self.exact, "exact"), (self.images, "images")):
            tensor.fill_(state[name])
        self.seconds = state["seconds"]


class Trainer:
    """Network, optimiser and schedule of a run, as its configuration says.

    model: the network. replicas: what is trained, the model itself or its wrapper for several processes, with copies
    for several threads. frozen_steps: in so many steps only the classifier learns, since the convolutions come from
    another model and it is new.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        config: TrainConfig,
        partition: BatchPartition,
        init: Path | None = None,
    ) -> None:
        self.config, self.partition = config, partition
        self.group, self.device = partition.group, partition.group.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = ResNet18(model_config)
        if init is not None:
            copy_matching_weights(load_model(find_model_folder(init)), model)
        self.model = to_device(model, self.device)
        self.start: dict[
            str, Tensor
        ] = {}  # the weights that it starts from, if they count in its result
        if config.start_images:
            self.start = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.group.broadcast(self.start.values())
        self.one_case = merged_classes(model_config.class_names, str.casefold).to(self.device)
        self.epochs = derive_epochs(config, partition.total)  # None: until early stopping
        self.optimizer = make_optimizer(self.model, config)
        self.schedule = make_schedule(self.optimizer, config, self.total_steps)
        self.precision = choose_precision(config.precision, self.device)
        self.scaler = make_scaler(self.device, self.precision)
        self.frozen_steps = round(config.frozen * (self.epochs or 1) * partition.steps)
        self.progress = Progress()
        self.epoch_metrics, self.recent_metrics = (
            RunningMetrics(self.device),
            RunningMetrics(self.device),
        )
        self.replicate(self.model)

    def replicate(self, network: nn.Module) -> None:
        """Train `network`, the model or its wrapper for several processes, with copies for the threads of one."""
        alone = self.group.world_size == 1
        self.replicas = Replicas(
            network, count_parts(self.device, self.config.batch_size) if alone else 1
        )
        # CTC of columns and the scaler of fp16 wait for the device, which a graph cannot.
        fits = (
            alone
            and self.device.type == "cuda"
            and self.config.loss != "ctc"
            and not self.scaler.is_enabled()
        )
        self.graph = StepGraph(self.optimizer) if fits else None

    def result(self) -> ResNet18:
        """Return the model that is validated and kept: the mean of its weights and of those that it started from.

        The start counts as `start_images` images (Wortsman et al. 2021, arXiv:2109.01903). It is the model itself
        where that is 0.
        """
        if not self.start:
            return self.model
        model = copy.deepcopy(self.model)
        share = self.config.start_images / (self.config.start_images + self.partition.total)
        blend(model, self.start, share)
        return model

    @property
    def total_steps(self) -> int:
        """The steps of all epochs; 0 where early stopping alone ends the run."""
        return (self.epochs or 0) * self.partition.steps

    def generator(self, number: int) -> torch.Generator:
        """Return a CPU generator that follows from the seed, a number and the rank alone.

        So a checkpoint keeps no generator's state: a resumed run draws the same numbers.
        """
        # torch uses the low 32 bits of the seed alone; the factor spreads the ranks over them.
        seed = self.config.seed * 1_000_003 + number + self.group.rank * 2_654_435_761
        return torch.Generator().manual_seed(seed)

    def step(self, images: Tensor, labels: Tensor, global_batch: int) -> tuple[Tensor, Tensor]:
        """Take one optimiser step on (B, C, H, W) uint8 images, part of `global_batch` images in all processes.

        Returns the mean loss, and which characters were wrong (B, L); the next step may overwrite them.
        """
        images, targets = self.augmented(images, labels)
        if self.graph is None or self.progress.step < self.frozen_steps:
            return self.update(images, targets, labels, global_batch)
        return self.graph(self.update, images, targets, labels, global_batch)

    def update(
        self, images: Tensor, targets: Tensor, labels: Tensor, global_batch: int
    ) -> tuple[Tensor, Tensor]:
        """Take the step on images that are augmented, with their targets."""
        # DistributedDataParallel averages the gradients, but processes may have unequal numbers of images.
        weight = self.scaler.scale(
            torch.full((), self.group.world_size / global_batch, device=self.device)
        )

        def work(network: nn.Module, part: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            loss, read = self.loss_of(network, *part)
            total = loss * len(read)
            (total * weight).backward()  # type: ignore[no-untyped-call]
            return total.detach(), read

        self.optimizer.zero_grad(set_to_none=True)
        count = self.replicas.parts_of(len(images))
        parts = list(zip(images.chunk(count), targets.chunk(count), strict=True))
        totals, reads = zip(*self.replicas.backward(work, parts), strict=True)
        if self.progress.step < self.frozen_steps:
            for parameter in (*self.model.stem.parameters(), *self.model.blocks.parameters()):
                parameter.grad = None
        with (
            one_thread()
        ):  # two are hardly faster here, and beside another program four times as slow
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return torch.stack(totals).sum() / len(labels), torch.cat(reads) != labels

    def augmented(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return images and targets, class ids (B, L) or probabilities (B, L, K), as this step shows them."""
        if not self.config.augment:
            return images, labels
        if self.config.loss == "ctc":
            return change_views(images, self.step_generator()), labels
        return augment(images, labels, self.model.config.classes, self.step_generator())

    def loss_of(self, network: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss, and the classes that are read (B, L)."""
        with autocast(self.device, self.precision):
            logits = network(images, as_columns=self.config.loss == "ctc")
        if self.config.loss == "ctc":
            return self.loss_of_columns(logits, targets), read_columns(
                logits.detach(), targets.shape[1]
            )
        if self.config.smoothing:
            targets = smooth(targets, logits.shape[-1], self.config.smoothing)
        return LOSSES[self.config.loss](logits, targets, self.config.focus), logits.detach().argmax(
            -1
        )

    def loss_of_columns(self, columns: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of columns, in part with both cases as one."""
        loss, share = columns.new_zeros(()), self.config.case_folded
        if share < 1:
            loss = loss + (1 - share) * ctc(columns, labels)
        if share > 0:
            loss = loss + share * ctc(columns, labels, self.one_case)
        return loss

    def step_generator(self) -> torch.Generator:
        """Return a generator on the device that follows from the step."""
        seed = int(torch.randint(2**62, (1,), generator=self.generator(self.progress.step)))
        return torch.Generator(self.device).manual_seed(seed)

    def run_epoch(
        self, training: Batches, quiet: bool, between_steps: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Train on all images once, or on those that a resumed epoch has left; returns the epoch's training metrics."""
        progress, partition = self.progress, self.partition
        self.model.train()
        name = f"epoch {progress.epoch + 1}" + (f"/{self.epochs}" if self.epochs else "")
        generator = self.generator(progress.epoch)
        batches = training.shuffled(partition.local_batch_size, generator, progress.batch)
        interval = max(1, partition.steps // ROWS_PER_EPOCH)
        before = time.perf_counter()
        with ProgressBar(name, quiet) as bar:
            for images, labels in islice(batches, partition.steps - progress.batch):
                loss, wrong = self.step(images, labels, partition.global_batch_size(progress.batch))
                if self.config.schedule != "plateau":
                    self.schedule.step()
                progress.step += 1
                progress.batch += 1
                ends_interval = progress.batch % interval == 0 or progress.batch == partition.steps
                if ends_interval:
                    loss.item()  # waits for the device, so that its time counts
                elapsed = time.perf_counter() - before
                before += elapsed
                progress.seconds += elapsed
                self.recent_metrics.add(loss, wrong, elapsed)
                if ends_interval:
                    self.end_interval()
                if (
                    bar.wants_note()
                ):  # twice a second: besides the rows of metrics the only waits for the device
                    bar.note(str(self.epoch_metrics + self.recent_metrics))
                bar.show(
                    min(partition.total, progress.batch * partition.batch_size), partition.total
                )
                between_steps()
        return self.row(self.epoch_metrics)

    def count_seconds(self, seconds: float) -> None:
        """Count time that the training has spent outside of its steps."""
        self.progress.seconds += seconds
        self.recent_metrics.seconds += seconds

    def end_interval(self) -> None:
        """Sum over all processes what was counted since the last row of metrics, and add a row."""
        recent = self.recent_metrics
        self.group.all_reduce(recent.loss, recent.exact, recent.images)
        self.progress.rows.append({"by": "step", **self.row(recent)})
        self.epoch_metrics, self.recent_metrics = (
            self.epoch_metrics + recent,
            RunningMetrics(self.device),
        )

    def end_epoch(self, validation_loss: float = 0.0) -> None:
        """Count the epoch as done, and update a schedule that depends on the validation loss."""
        if isinstance(self.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.schedule.step(validation_loss)
        self.progress.epoch += 1
        self.progress.batch = 0
        self.epoch_metrics, self.recent_metrics = (
            RunningMetrics(self.device),
            RunningMetrics(self.device),
        )

    def row(self, metrics: RunningMetrics) -> dict[str, Any]:
        """Return a row of metrics; waits for the device."""
        images = metrics.images.item()
        return {
            "epoch": self.progress.epoch + 1,
            "step": self.progress.step,
            "seconds": self.progress.seconds,
            "training_loss": metrics.loss.item() / images,
            "training_exact": metrics.exact.item() / images,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "images_per_s": images / metrics.seconds,
            **peak_memory(self.device),
        }

    def state(self) -> dict[str, Any]:
        """Return everything but weights, optimiser tensors and progress, as JSON types."""
        return {
            "steps": self.total_steps,
            "steps_per_epoch": self.partition.steps,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "epoch": self.epoch_metrics.state(),
            "recent": self.recent_metrics.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Invert `state`."""
        for group in self.optimizer.param_groups:
            group["lr"] = state["learning_rate"]
        self.schedule.load_state_dict(state["schedule"])
        if state["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])
        self.epoch_metrics.restore(state["epoch"])
        if self.group.is_main:  # the main process alone has written its recent sums
            self.recent_metrics.restore(state["recent"])
