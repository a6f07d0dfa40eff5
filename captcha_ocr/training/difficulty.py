"""Which characters are hard at the moment, so that images of them can be shown more often."""

import torch
from torch import Tensor

from captcha_ocr.training.distributed import ProcessGroup

MEMORY = 0.98  # of the counts, from step to step: some fifty steps


class Difficulty:
    """How often each of K characters was read wrong of late; errors and seen are (K,) float32 counts.

    What is left to learn after a few epochs is a handful of look-alikes (O and 0) that stand in a
    fifth of the images, so those are shown more often (docs/lab-notebook.md, 2026-11-21).
    """

    def __init__(self, classes: int, share: float, group: ProcessGroup) -> None:
        self.share = share
        self.group = group
        self.errors = torch.ones(classes, device=group.device)
        self.seen = torch.ones_like(self.errors)
        self.rates = torch.ones_like(self.errors)

    def update(self, labels: Tensor, wrong: Tensor) -> None:
        """Count a step of all processes: labels of this one (B, L) int64, and which were read wrong, (B, L) bool."""
        places, mistakes = labels.flatten(), wrong.flatten().float()
        counts = torch.zeros((2, len(self.seen)), device=self.seen.device)
        counts[0].index_add_(0, places, mistakes)
        counts[1].index_add_(0, places, torch.ones_like(mistakes))
        self.group.all_reduce(counts)
        self.errors.mul_(MEMORY).add_(counts[0])
        self.seen.mul_(MEMORY).add_(counts[1])

    def look(self) -> None:
        """Have `weights` go by what is counted by now, until the next look."""
        self.rates = self.errors / self.seen

    def weights(self, labels: Tensor) -> Tensor:
        """How often images (N) should be shown, 1 on average: `share` of it in proportion to expected errors."""
        expected = self.rates[labels].sum(1)  # errors an image
        return 1 - self.share + self.share * expected / expected.mean().clamp_min(1e-9)

    def state(self) -> dict[str, list[float]]:
        """The counts as JSON types."""
        return {"errors": self.errors.tolist(), "seen": self.seen.tolist(), "rates": self.rates.tolist()}

    def restore(self, state: dict[str, list[float]]) -> None:
        """The inverse of `state`."""
        for tensor, values in ((self.errors, "errors"), (self.seen, "seen"), (self.rates, "rates")):
            tensor.copy_(torch.tensor(state[values]))
