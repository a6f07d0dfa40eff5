"""Which characters are hard at the moment, so that images of them can be shown more often."""

import torch
from torch import Tensor

MEMORY = 0.98  # of the counts, from step to step: some fifty steps


class Difficulty:
    """How often each of K characters was read wrong of late; errors and seen are (K,) float32 counts.

    What is left to learn after a few epochs is a handful of look-alikes (O and 0) that stand in a
    fifth of the images, so those are shown more often (docs/lab-notebook.md, 2026-11-21).
    """

    def __init__(self, classes: int, share: float, device: torch.device) -> None:
        self.share = share
        self.errors = torch.ones(classes, device=device)
        self.seen = torch.ones(classes, device=device)

    def update(self, labels: Tensor, wrong: Tensor) -> None:
        """Count a step: labels (B, L) int64, and which of them were read wrong, (B, L) bool."""
        places, mistakes = labels.flatten(), wrong.flatten().float()
        self.seen.mul_(MEMORY).index_add_(0, places, torch.ones_like(mistakes))
        self.errors.mul_(MEMORY).index_add_(0, places, mistakes)

    def weights(self, labels: Tensor) -> Tensor:
        """How often images (N) should be shown, 1 on average: `share` of it in proportion to expected errors."""
        expected = (self.errors / self.seen)[labels].sum(1)  # errors an image
        return 1 - self.share + self.share * expected / expected.mean().clamp_min(1e-9)

    def state(self) -> dict[str, list[float]]:
        """The counts as JSON types."""
        return {"errors": self.errors.tolist(), "seen": self.seen.tolist()}

    def restore(self, state: dict[str, list[float]]) -> None:
        """The inverse of `state`."""
        device = self.seen.device
        self.errors = torch.tensor(state["errors"], device=device)
        self.seen = torch.tensor(state["seen"], device=device)
