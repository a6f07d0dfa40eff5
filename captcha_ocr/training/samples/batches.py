"""Batches of the samples of one split, on one device.

They are in memory, come as a stream of shards, or are drawn, block after block.
"""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from captcha_ocr.data.shards import Dataset, ShardRef, check_shards, read_shard
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.network.device import measure_memory
from captcha_ocr.options.preparation import Split
from captcha_ocr.system.console import SECONDS_BETWEEN_NOTES
from captcha_ocr.system.parallel import JobResults, Workers, map_jobs
from captcha_ocr.system.processors import available_workers
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.samples.dataset import DRAWINGS_PER_JOB, DrawnData, TrainingData

Samples = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8 and labels (N, L) int64
_PART_BYTES = 100_000_000  # of a stream, shuffled together; up to four times as much is in memory
# Of the processes that draw. All threads of the training wait for one that shares its processor.
_NICENESS = 19

_DrawnPart = tuple[list[np.ndarray], np.ndarray]  # images and labels
_ShardSlice = tuple[ShardRef, range]  # a shard, and some of its rows


class Batches(ABC):
    """Samples of one split, as batches on one device.

    location: where the samples are stored, for people. extra_seconds: what an epoch takes besides
    its steps.
    """

    location: str
    extra_seconds = 0.0

    def show(self, epoch: int, epochs: int | None) -> Iterator[tuple[int, int]]:
        """Choose the samples of an epoch, counted from 0, of so many epochs if that is known.

        Yields, while they are awaited, how many of how many are there.
        """
        return iter(())  # most show the same in every epoch

    def close(self) -> None:  # noqa: B027  most have none
        """End the processes that make the samples."""

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

    parts: yields all samples, on the device; a CPU generator shuffles the parts.
    """

    parts: Callable[[torch.Generator | None], Iterator[Samples]]
    location: str

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


@dataclass(eq=False)
class WidthBatches(Batches):
    """Samples of several widths, in the device's memory: a batch has images of about one width.

    A batch is as wide as its widest image. images: (N, C, H, W) uint8; each begins at the left and
    repeats its last column up to W. labels: (N, L) int64. widths: (N,), on the CPU.
    """

    images: Tensor
    labels: Tensor
    widths: Tensor

    location = "in memory"

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        yield from map(self._batch, torch.split(self.widths.argsort(stable=True), batch_size))

    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        order = torch.randperm(len(self.images), generator=generator)
        batches = torch.split(order[self.widths[order].argsort(stable=True)], batch_size)
        whole = len(self.images) // batch_size
        numbers = torch.randperm(whole, generator=generator).tolist()
        numbers += range(whole, len(batches))
        for number in numbers[done:]:
            yield self._batch(batches[number])

    def first(self, limit: int) -> Samples:
        # Of about the average width.
        order = self.widths.argsort(stable=True)
        middle = max(0, (len(order) - limit) // 2)
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


def load_split(
    dataset: TrainingData,
    split: Split,
    group: ProcessGroup,
    samples: range | None = None,
    stream: bool = False,
) -> Batches:
    """Load one split: the given samples, or this process's portion.

    Of shards, they are resident on the device, or streamed on request or if they need more than
    half of its memory. Drawings are drawn now, but those to train on later, block after block.
    DamagedError for a damaged shard, CaptchaOcrError if the memory does not suffice.
    """
    device = group.device
    samples = group.portion(dataset.count(split)) if samples is None else samples
    needed = len(samples) * dataset.size.channels * dataset.size.height * dataset.size.width
    room = measure_memory(device) // (group.local_world_size if device.type == "cpu" else 1)
    if isinstance(dataset, DrawnData):
        if split != "train":
            jobs = dataset.jobs(split, samples)
            parts = map_jobs(dataset.draw, jobs, _count_processes(dataset, group))
            return WidthBatches(*_collect(dataset, len(samples), parts, device))
        check(
            2 * needed <= room / 2,
            f"two blocks of {len(samples):,} drawings need {2 * needed / 1e9:.1f} GB, more than "
            f"half of the memory of {device}; take fewer `images`",
        )
        return DrawnBlocks(dataset, samples, group)
    slices = slice_shards(dataset.of_split(split), samples)
    if slices and (stream or needed > room / 2):
        # So that a damaged shard is found before the first step.
        check_shards(ref for ref, _ in slices)
        return PartBatches(partial(_stream_parts, dataset, slices, device), "streamed from disk")
    try:
        images, labels = _read_slices(dataset, slices)
        return keep_in_memory(images.to(device), labels.to(device))
    except (RuntimeError, MemoryError):
        raise CaptchaOcrError(
            f"the {len(samples):,} images of the {split} split need {needed / 1e9:.1f} GB, "
            f"for which the memory of {device} is too small; try `stream`"
        ) from None


def keep_in_memory(images: Tensor, labels: Tensor) -> PartBatches:
    """Return batches of images (N, C, H, W) uint8 and labels (N, L) in the device's memory."""
    return PartBatches(lambda _: iter([(images, labels)]), "in memory")


def slice_shards(refs: Sequence[ShardRef], samples: range) -> list[_ShardSlice]:
    """Return the slices of shards that hold `samples`, which are numbered over all shards."""
    slices, first = [], 0
    for ref in refs:
        count = ref.shard.count
        rows = range(max(0, samples.start - first), min(count, samples.stop - first))
        if rows:
            slices.append((ref, rows))
        first += count
    return slices


def _stream_parts(
    dataset: Dataset,
    slices: Sequence[_ShardSlice],
    device: torch.device,
    generator: torch.Generator | None,
) -> Iterator[Samples]:
    """Yield the samples of some shards at a time, while a thread reads the next ones."""
    count = len(slices)
    order = range(count) if generator is None else torch.randperm(count, generator=generator)
    shuffled = [slices[number] for number in order]
    largest = max(ref.shard.payload_bytes for ref, _ in slices)
    per_part = max(1, _PART_BYTES // largest)  # shards

    def read(first: int) -> Samples:
        images, labels = _read_slices(dataset, shuffled[first : first + per_part])
        return copy_to_device(images, device), copy_to_device(labels, device)

    with ThreadPoolExecutor(1, thread_name_prefix="shards") as reader:
        next_part = reader.submit(read, 0)
        for first in range(per_part, count, per_part):
            part, next_part = next_part, reader.submit(read, first)
            yield part.result()
        yield next_part.result()


def _read_slices(dataset: Dataset, slices: Sequence[_ShardSlice]) -> Samples:
    """Read the samples of some shards into memory, checked and decompressed on all processors."""
    images, labels = _empty_samples(dataset, sum(len(rows) for _, rows in slices))

    def read(first: int, part: _ShardSlice) -> None:
        ref, rows = part
        shard_images, shard_labels = read_shard(*ref)
        end = first + len(rows)
        images[first:end] = torch.from_numpy(shard_images[rows.start : rows.stop])
        labels[first:end] = torch.from_numpy(shard_labels[rows.start : rows.stop])

    firsts = accumulate((len(rows) for _, rows in slices), initial=0)
    with ThreadPoolExecutor(available_workers(), thread_name_prefix="shards") as pool:
        list(pool.map(read, firsts, slices))
    return images, labels


class DrawnBlocks(WidthBatches):
    """Samples that other processes draw: block after block, each while the one before is shown.

    Two blocks are in memory at most. shown: the number of the one that is shown. pending: the
    drawings of the next one, by its number. It has more than ten attributes: those of the block
    that is shown, and those that draw the next.
    """

    def __init__(self, data: DrawnData, samples: range, group: ProcessGroup) -> None:
        self.data, self.samples, self.device = data, samples, group.device
        self.location = f"new ones every {data.options.rhythm}"
        self.workers = Workers(_count_processes(data, group), _NICENESS)
        self.shown = -1
        self.pending: dict[int, JobResults[range, _DrawnPart]] = {}

    def show(self, epoch: int, epochs: int | None) -> Iterator[tuple[int, int]]:
        started, total, repeat = time.perf_counter(), len(self.samples), self.data.options.repeat
        last = sys.maxsize if epochs is None else (epochs - 1) // repeat
        block = min(epoch // repeat, last)
        if block == self.shown:
            return
        if block not in self.pending:
            self.begin(block)
        parts = self.pending.pop(block)
        while missing := parts.wait(SECONDS_BETWEEN_NOTES):
            yield max(0, total - missing * DRAWINGS_PER_JOB), total
        if self.shown < 0 and self.device.type == "cpu":  # others compute while a block is drawn
            self.extra_seconds = (time.perf_counter() - started) / repeat
        if block < last:
            self.begin(block + 1)
        self.images = self.labels = torch.empty(0)  # frees the block before
        self.images, self.labels, self.widths = _collect(self.data, total, parts, self.device)
        self.shown = block

    def begin(self, block: int) -> None:
        """Begin to draw a block."""
        jobs = self.data.jobs("train", self.samples, block)
        self.pending[block] = self.workers.start(self.data.draw, jobs)

    def close(self) -> None:
        self.workers.close()


def _count_processes(data: DrawnData, group: ProcessGroup) -> int:
    return data.options.workers or max(1, available_workers() // group.local_world_size)


def _collect(
    data: DrawnData, count: int, parts: Iterable[_DrawnPart], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Put `count` drawings into the device's memory; each of `parts` is freed once it is copied.

    Returns their images, labels and widths, as `WidthBatches` holds them.
    """
    images, labels = _empty_samples(data, count)
    widths = torch.empty(count, dtype=torch.int64)
    row = 0
    for drawings, texts in parts:
        labels[row : row + len(texts)] = torch.from_numpy(texts)
        for drawing in drawings:
            width, pixels = drawing.shape[-1], images[row].numpy()
            pixels[..., :width], pixels[..., width:] = drawing, drawing[..., -1:]
            widths[row] = width
            row += 1
    return images.to(device), labels.to(device), widths


def _empty_samples(data: TrainingData, count: int) -> Samples:
    shape = count, data.size.channels, data.size.height, data.size.width
    labels = torch.empty((count, data.lengths.longest), dtype=torch.int64)
    return torch.empty(shape, dtype=torch.uint8), labels
