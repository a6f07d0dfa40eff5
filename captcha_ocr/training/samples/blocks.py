"""Drawings to train on: block after block, each drawn while the one before is shown."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from captcha_ocr.options.preparation import Split
from captcha_ocr.system.parallel import Results, Workers, map_jobs
from captcha_ocr.system.processors import available_workers
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.samples.batches import Batches, Samples, WidthBatches, empty_samples
from captcha_ocr.training.samples.dataset import DRAWINGS_PER_JOB, DrawnData, Job, draw_images

# Of the processes that draw. All threads of the training wait for one that shares its processor.
_NICENESS = 19

_DrawnPart = tuple[list[np.ndarray], np.ndarray]  # images and labels


class _Pending(NamedTuple):
    """A block that is being drawn; begun: when, as `time.perf_counter`."""

    block: int
    parts: Results[Job, _DrawnPart]
    begun: float


class DrawnBlocks(Batches):
    """Samples that other processes draw: block after block, each while the one before is shown.

    Two blocks are in memory at most. wanted, shown, last: numbers of blocks.
    """

    def __init__(self, data: DrawnData, samples: range, group: ProcessGroup) -> None:
        self.data, self.samples, self.device = data, samples, group.device
        self.location = f"new ones every {data.options.rhythm}"
        self.workers = Workers(_count_processes(data, group), _NICENESS)
        self.wanted, self.shown, self.last = 0, -1, 0
        self.pending: _Pending | None = None
        self.block = _collect(data, 0, [], self.device)

    def __len__(self) -> int:
        return len(self.samples)

    def show(self, epoch: int, epochs: int | None) -> None:
        self.last = sys.maxsize if epochs is None else self.data.block_of(epochs - 1)
        self.wanted = min(self.data.block_of(epoch), self.last)
        is_pending = self.pending is not None and self.pending.block == self.wanted
        if self.wanted != self.shown and not is_pending:
            self.begin(self.wanted)

    def begin(self, block: int) -> None:
        """Begin to draw a block."""
        parts = self.workers.start(draw_images, self.data.jobs("train", self.samples, block))
        self.pending = _Pending(block, parts, time.perf_counter())

    def wait(self, seconds: float) -> int:
        if self.pending is None or self.shown == self.wanted:
            return 0
        block, parts, begun = self.pending
        missing = parts.wait(seconds)
        if missing:
            return min(len(self), missing * DRAWINGS_PER_JOB)
        if self.shown < 0 and self.device.type == "cpu":  # others compute while a block is drawn
            self.extra_seconds = (time.perf_counter() - begun) / self.data.options.repeat
        self.pending = None
        if block < self.last:
            self.begin(block + 1)
        self.block = _collect(self.data, 0, [], self.device)  # frees the block before
        self.block = _collect(self.data, len(self), parts, self.device)
        self.shown = block
        return 0

    def close(self) -> None:
        self.workers.close()

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        return self.block.in_order(batch_size)

    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        return self.block.shuffled(batch_size, generator, done)

    def first(self, limit: int) -> Samples:
        return self.block.first(limit)


def draw_held_out(
    data: DrawnData, split: Split, samples: range, group: ProcessGroup
) -> WidthBatches:
    """Draw some samples of the images to validate or to test."""
    jobs = data.jobs(split, samples)
    parts = map_jobs(draw_images, jobs, _count_processes(data, group))
    return _collect(data, len(samples), parts, group.device)


def _count_processes(data: DrawnData, group: ProcessGroup) -> int:
    return data.options.workers or max(1, available_workers() // group.local_world_size)


def _collect(
    data: DrawnData, count: int, parts: Iterable[_DrawnPart], device: torch.device
) -> WidthBatches:
    """Put `count` drawings into the device's memory; each of `parts` is freed once it is copied."""
    images, labels = empty_samples(data, count)
    widths = torch.empty(count, dtype=torch.int64)
    row = 0
    for drawings, texts in parts:
        labels[row : row + len(texts)] = torch.from_numpy(texts)
        for drawing in drawings:
            width, pixels = drawing.shape[-1], images[row].numpy()
            pixels[..., :width], pixels[..., width:] = drawing, drawing[..., -1:]
            widths[row] = width
            row += 1
    return WidthBatches(images.to(device), labels.to(device), widths)
