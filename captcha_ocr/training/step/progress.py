"""How far a run has come, and the metrics of its training."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from captcha_ocr.training.distributed import ProcessGroup


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


class RunningMetrics:
    """Sums over images, and the seconds of their steps.

    The sums stay on the device, so adding never waits for it.
    """

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

    def state(self) -> dict[str, float]:
        """Return the sums as JSON types."""
        sums = {"loss": self.loss.item(), "exact": self.exact.item(), "images": self.images.item()}
        return {**sums, "seconds": self.seconds}

    def restore(self, state: dict[str, float]) -> None:
        """Invert `state`."""
        self.loss.fill_(state["loss"])
        self.exact.fill_(state["exact"])
        self.images.fill_(state["images"])
        self.seconds = state["seconds"]


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
