"""The trainer: one step, its loss, one epoch with its metrics, and the state for a checkpoint."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from captcha_ocr.inference.model_folder import find_model_folder
from captcha_ocr.network.device import autocast, choose_precision, peak_memory
from captcha_ocr.network.losses import LOSSES, ctc, merged_classes, read_columns, smooth_labels
from captcha_ocr.network.resnet import ResNet18, to_device
from captcha_ocr.network.weights import blend_weights, copy_matching_weights, load_model
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.options.training import TrainConfig, derive_epochs
from captcha_ocr.system.console import ProgressBar
from captcha_ocr.training.distributed import BatchPartition, ProcessGroup
from captcha_ocr.training.samples.augment import augment, change_views
from captcha_ocr.training.samples.batches import Batches, Samples
from captcha_ocr.training.step.acceleration import BatchSplit, CudaGraph, count_parts
from captcha_ocr.training.step.optim import Optimization

# Training images that are scored after an epoch: a part of all of them, so that it takes little
# time beside the epoch, but enough for the statistics of batch norms.
_SAMPLE, _FEWEST_SAMPLED, _MOST_SAMPLED = 1 / 8, 32, 100
_ROWS_PER_EPOCH = 20  # of metrics, besides the row of the epoch


@dataclass
class Progress:
    """How far a run has come.

    epoch, step: epochs and steps that are done. batch: steps of the current epoch. rows: of
    metrics. best_exact: the best exact match on the validation images, 0 to 1; -1 before the first
    epoch.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_exact: float = -1.0
    best_loss: float = float("inf")
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def epoch_rows(self) -> list[dict[str, Any]]:
        """The rows of whole epochs."""
        return [row for row in self.rows if row["by"] == "epoch"]


class RunningMetrics:
    """Sums over images, and the seconds of their steps.

    The sums stay on the device, so adding never waits for it.
    """

    def __init__(
        self,
        device: torch.device,
        loss: float = 0.0,
        exact: int = 0,
        images: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self.loss = torch.tensor(float(loss), device=device)
        self.exact, self.images = torch.tensor([int(exact), int(images)], device=device)
        self.seconds = float(seconds)

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

    def state(self) -> dict[str, float]:
        """Return the sums as JSON types."""
        sums = {"loss": self.loss.item(), "exact": self.exact.item(), "images": self.images.item()}
        return {**sums, "seconds": self.seconds}


class EpochMetrics:
    """The metrics of an epoch: of its steps up to the last row of metrics, and of those after it.

    epoch: sums of all processes. recent: sums of this process.
    """

    def __init__(self, device: torch.device) -> None:
        self.epoch, self.recent = RunningMetrics(device), RunningMetrics(device)

    def end_interval(self, group: ProcessGroup) -> RunningMetrics:
        """Return the sums of all processes since the last row of metrics."""
        recent = self.recent
        group.all_reduce(recent.loss, recent.exact, recent.images)
        self.epoch, self.recent = self.epoch + recent, RunningMetrics(group.device)
        return recent

    def __str__(self) -> str:
        total = self.epoch + self.recent
        images = total.images.item()
        return f"loss {total.loss.item() / images:.4f} exact {total.exact.item() / images:.1%}"


class Trainer:
    """Train a network: what a run keeps from step to step.

    finds_end: whether the run ends when it has learnt enough (early_stopping.py). start: the
    weights that it starts from, where they count in its result; else empty.
    """

    def __init__(
        self,
        model_config: ModelConfig,
        config: TrainConfig,
        partition: BatchPartition,
        init: Path | None = None,
        finds_end: bool = False,
    ) -> None:
        self.config, self.partition, self.finds_end = config, partition, finds_end
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = ResNet18(model_config)
        if init is not None:
            copy_matching_weights(load_model(find_model_folder(init)), model)
        self.model = to_device(model, self.device)
        self.start: dict[str, Tensor] = {}
        if config.start_images:
            self.start = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.partition.group.broadcast(self.start.values())
        self.precision = choose_precision(config.precision, self.device)
        self.optimization = Optimization(
            self.model, config, self.precision, self.total_steps, averages=finds_end
        )
        self.progress, self.metrics = Progress(), EpochMetrics(self.device)
        self.distribute(self.model)

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self.partition.group.device

    @property
    def epochs(self) -> int | None:
        """The number of epochs at most; None until early stopping."""
        return derive_epochs(self.config, self.partition.total)

    @property
    def total_steps(self) -> int:
        """The steps of all epochs; 0 where early stopping alone ends the run."""
        return (self.epochs or 0) * self.partition.steps

    @cached_property
    def one_case(self) -> Tensor:
        """For each class, the first of those that differ from it in their case alone, (K,)."""
        return merged_classes(self.model.config.class_names, str.casefold).to(self.device)

    @property
    def frozen_steps(self) -> int:
        """In so many steps only the classifier learns: it is new, and the convolutions are not."""
        return round(self.config.frozen * (self.epochs or 1) * self.partition.steps)

    def distribute(self, network: nn.Module) -> None:
        """Train `network`, which is the model or its wrapper for several processes.

        A process that is alone trains it in threads on the CPU, and as one graph on a GPU.
        """
        is_alone = self.partition.group.world_size == 1
        threads = torch.get_num_threads() if is_alone and self.device.type == "cpu" else 1
        self.split = BatchSplit(network, count_parts(threads, self.config.batch_size))
        # CTC of columns and the scaler of fp16 wait for the device, which a graph cannot.
        waits = self.config.loss == "ctc" or self.optimization.scaler.is_enabled()
        self.graph: CudaGraph | None = None
        if is_alone and self.device.type == "cuda" and not waits:
            self.graph = CudaGraph(self.optimization.optimizer)

    @property
    def sample_size(self) -> int:
        """The number of training images that are scored after an epoch, at most."""
        return min(_MOST_SAMPLED, max(_FEWEST_SAMPLED, round(_SAMPLE * self.partition.total)))

    def sample(self, training: Batches) -> Samples:
        """Return some training images, others after each epoch."""
        return next(training.shuffled(self.sample_size, self.generator(self.progress.epoch)))

    def result(self, images: Tensor | None = None) -> ResNet18:
        """Return the model that is validated and kept.

        With training images (B, C, H, W) it has the average of the weights over the steps, and
        batch norms that these images give it (Izmailov et al. 2018, arXiv:1803.05407). Where the
        weights that it started from count, as `start_images` images, it has the mean with those
        (Wortsman et al. 2021, arXiv:2109.01903). Else it is the model itself.
        """
        if images is None and not self.start:
            return self.model
        model = copy.deepcopy(self.model)
        if images is not None:
            for parameter, own in zip(model.parameters(), self.model.parameters(), strict=True):
                parameter.data.copy_(self.optimization.average(own))
        if self.start:
            share = self.config.start_images / (self.config.start_images + self.partition.total)
            blend_weights(model, self.start, share)
        if images is not None:
            with autocast(self.device, self.precision):
                update_bn([images], model)
        return model

    def generator(self, number: int) -> torch.Generator:
        """Return a CPU generator that follows from the seed, a number and the rank alone.

        So a checkpoint keeps no generator's state: a resumed run draws the same numbers.
        """
        # torch uses the low 32 bits of the seed alone; the factor spreads the ranks over them.
        seed = self.config.seed * 1_000_003 + number + self.partition.group.rank * 2_654_435_761
        return torch.Generator().manual_seed(seed)

    def run_epoch(
        self, training: Batches, quiet: bool, between_steps: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Train on all images once, or on those that a resumed epoch has left.

        Returns the row of metrics of the epoch.
        """
        progress, partition, metrics = self.progress, self.partition, self.metrics
        self.model.train()
        interval = max(1, partition.steps // _ROWS_PER_EPOCH)
        batches = training.shuffled(
            partition.local_batch_size, self.generator(progress.epoch), progress.batch
        )
        total = f"/{self.epochs}" if self.epochs else ""
        before = time.perf_counter()
        with ProgressBar(f"epoch {progress.epoch + 1}{total}", quiet) as bar:
            for images, labels in islice(batches, partition.steps - progress.batch):
                loss, wrong = self.step(images, labels, partition.global_batch_size(progress.batch))
                self.optimization.end_step()
                progress.step += 1
                progress.batch += 1
                ends_interval = progress.batch % interval == 0 or progress.batch == partition.steps
                if ends_interval:
                    loss.item()  # waits for the device, so that its time counts
                elapsed = time.perf_counter() - before
                before += elapsed
                progress.seconds += elapsed
                metrics.recent.add(loss, wrong, elapsed)
                if ends_interval:
                    recent = metrics.end_interval(self.partition.group)
                    progress.rows.append({"by": "step", **self._row(recent)})
                # Twice a second: besides the rows of metrics the only waits for the device.
                bar.note(metrics)
                bar.show(
                    min(partition.total, progress.batch * partition.batch_size), partition.total
                )
                between_steps()
        return self._row(metrics.epoch)

    def step(self, images: Tensor, labels: Tensor, global_batch: int) -> tuple[Tensor, Tensor]:
        """Take one optimiser step on some of the `global_batch` images of all processes.

        images: (B, C, H, W) uint8. labels: (B, L). Returns the mean loss, and which characters were
        wrong (B, L); the next step may overwrite them.
        """
        targets = labels
        if self.config.augment:
            seed = int(torch.randint(2**62, (1,), generator=self.generator(self.progress.step)))
            generator = torch.Generator(self.device).manual_seed(seed)
            if self.config.loss == "ctc":
                images = change_views(images, generator)
            else:  # targets become probabilities (B, L, K)
                images, targets = augment(images, labels, self.model.config.classes, generator)
        if self.graph is None or self.progress.step < self.frozen_steps:
            return self._update(images, targets, labels, global_batch)
        return self.graph(self._update, images, targets, labels, global_batch)

    def _update(
        self, images: Tensor, targets: Tensor, labels: Tensor, global_batch: int
    ) -> tuple[Tensor, Tensor]:
        """Take the step on images that are augmented, with their targets."""
        # DistributedDataParallel averages the gradients of processes that may have unequal numbers
        # of images.
        share = torch.full((), self.partition.group.world_size / global_batch, device=self.device)
        weight = self.optimization.scaler.scale(share)
        self.optimization.optimizer.zero_grad(set_to_none=True)
        work = partial(self._compute_gradients, weight=weight)
        totals, classes = zip(*self.split.backward(work, images, targets), strict=True)
        if self.progress.step < self.frozen_steps:
            for parameter in (*self.model.stem.parameters(), *self.model.blocks.parameters()):
                parameter.grad = None
        self.optimization.step()
        return torch.stack(totals).sum() / len(labels), torch.cat(classes) != labels

    def _compute_gradients(
        self, network: nn.Module, part: tuple[Tensor, Tensor], weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add the gradients of the losses of some images, times `weight`, to those of a network.

        part: images (B, C, H, W) and targets, class ids (B, L) or probabilities (B, L, K). weight:
        a scalar tensor. Returns the sum of the losses, and the classes that the network reads
        (B, L).
        """
        images, targets = part
        reads_columns = self.config.loss == "ctc"
        with autocast(weight.device, self.precision):
            logits = network(images, as_columns=reads_columns)
        if reads_columns:
            # In part with both cases of a letter as one.
            loss, share = logits.new_zeros(()), self.config.case_folded
            if share < 1:
                loss = loss + (1 - share) * ctc(logits, targets)
            if share > 0:
                loss = loss + share * ctc(logits, targets, self.one_case)
            classes = read_columns(logits.detach(), targets.shape[1])
        else:
            if self.config.smoothing:
                targets = smooth_labels(targets, logits.shape[-1], self.config.smoothing)
            loss = LOSSES[self.config.loss](logits, targets, self.config.focus)
            classes = logits.detach().argmax(-1)
        total = loss * len(images)
        (total * weight).backward()
        return total.detach(), classes

    def end_epoch(self, validation_loss: float = 0.0) -> None:
        """Count the epoch as done, and update a schedule that depends on the validation loss."""
        self.optimization.end_epoch(validation_loss)
        self.progress.epoch += 1
        self.progress.batch = 0
        self.metrics = EpochMetrics(self.device)

    def state(self) -> dict[str, Any]:
        """Return everything but weights, optimiser tensors and progress, as JSON types."""
        return {
            "steps": self.total_steps,
            "steps_per_epoch": self.partition.steps,
            **self.optimization.state(),
            "epoch": self.metrics.epoch.state(),
            "recent": self.metrics.recent.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Invert `state`."""
        self.optimization.restore(state)
        self.metrics.epoch = RunningMetrics(self.device, **state["epoch"])
        if self.partition.group.is_main:  # the main process alone has written its recent sums
            self.metrics.recent = RunningMetrics(self.device, **state["recent"])

    def _row(self, metrics: RunningMetrics) -> dict[str, Any]:
        """Return a row of metrics; waits for the device."""
        images = metrics.images.item()
        return {
            "epoch": self.progress.epoch + 1,
            "step": self.progress.step,
            "seconds": self.progress.seconds,
            "training_loss": metrics.loss.item() / images,
            "training_exact": metrics.exact.item() / images,
            "learning_rate": self.optimization.optimizer.param_groups[0]["lr"],
            "images_per_s": images / metrics.seconds,
            **peak_memory(self.device),
        }
