"""Batches of the samples of one split, on one device."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Samples = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8 and labels (N, L) int64


class Batches(ABC):
    """Samples of one split, as batches on one device.

    location: where the samples are stored, for people. extra_seconds: what an epoch takes besides
    its steps.
    """

    location: str
    extra_seconds = 0.0

    def show(self, epoch: int, epochs: int | None) -> None:  # noqa: B027  most show the same
        """Choose the samples of an epoch, counted from 0, of so many epochs if that is known."""

    def wait(self, seconds: float) -> int:
        """Wait at most so long for the samples of the epoch; return how many are missing."""
        return 0

    def close(self) -> None:  # noqa: B027  most have none
        """End the processes that make the samples."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def in_order(self, batch_size: int) -> Iterator[Samples]:
        """Yield every sample once, in the same order each time, in batches of at most this size."""

    @abstractmethod
    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        """Yield every sample once, shuffled by a CPU generator; the last batch may be smaller.

        The first `done` batches are skipped.
        """

    def first(self, limit: int) -> Samples:
        """Return some samples, at most `limit`, to measure with."""
        return next(self.in_order(limit))


@dataclass(frozen=True, eq=False)
class PartBatches(Batches):
    """Batches of samples that come in parts.

    parts: yields all samples, on the device; a CPU generator shuffles the parts. count: of samples.
    """

    parts: Callable[[torch.Generator | None], Iterator[Samples]]
    count: int
    location: str

    def __len__(self) -> int:
        return self.count

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        for images, labels in self.parts(None):
            for first in range(0, len(images), batch_size):
                yield images[first : first + batch_size], labels[first : first + batch_size]

    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        rest: Samples | None = None
        passed = 0  # batches
        for images, labels in self.parts(generator):
            if rest is not None and len(rest[0]):
                images, labels = torch.cat([rest[0], images]), torch.cat([rest[1], labels])
            order = copy_to_device(torch.randperm(len(images), generator=generator), images.device)
            whole = len(order) // batch_size * batch_size
            for first in range(max(0, done - passed) * batch_size, whole, batch_size):
                rows = order[first : first + batch_size]
                yield images[rows], labels[rows]
            passed += whole // batch_size
            rest = images[order[whole:]], labels[order[whole:]]
        if rest is not None and len(rest[0]) and passed >= done:
            yield rest


@dataclass(frozen=True, eq=False)
class WidthBatches(Batches):
    """Samples of several widths, in the device's memory: a batch has images of about one width.

    A batch is as wide as its widest image. images: (N, C, H, W) uint8; each begins at the left and
    repeats its last column up to W. labels: (N, L) int64. widths: (N,), on the CPU.
    """

    images: Tensor
    labels: Tensor
    widths: Tensor

    location = "in memory"

    def __len__(self) -> int:
        return len(self.images)

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        yield from map(self._batch, torch.split(self.widths.argsort(stable=True), batch_size))

    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        order = torch.randperm(len(self), generator=generator)
        batches = torch.split(order[self.widths[order].argsort(stable=True)], batch_size)
        whole = len(self) // batch_size
        numbers = torch.randperm(whole, generator=generator).tolist()
        numbers += range(whole, len(batches))
        for number in numbers[done:]:
            yield self._batch(batches[number])

    def first(self, limit: int) -> Samples:
        # Of about the average width.
        order = self.widths.argsort(stable=True)
        middle = max(0, (len(self) - limit) // 2)
        return self._batch(order[middle : middle + limit])

    def _batch(self, rows: Tensor) -> Samples:
        """Return the samples of some rows, as wide as the widest of them."""
        width, rows = int(self.widths[rows].max()), copy_to_device(rows, self.images.device)
        return self.images[..., :width][rows], self.labels[rows]


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to the device without waiting for it."""
    if device.type == "cuda":  # which copies only pinned memory in the background
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type == "cuda")
