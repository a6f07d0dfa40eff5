"""Load one split as batches: shards into memory or as a stream, or drawings, block after block."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captcha_ocr.data.shards import Dataset, ShardRef, check_shards, read_shard
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.network.device import measure_memory
from captcha_ocr.options.preparation import Split
from captcha_ocr.system.parallel import JobResults, Workers, map_jobs
from captcha_ocr.system.processors import available_workers
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.samples.batches import (
    Batches,
    PartBatches,
    Samples,
    WidthBatches,
    copy_to_device,
)
from captcha_ocr.training.samples.dataset import (
    DRAWINGS_PER_JOB,
    DrawnData,
    Job,
    TrainingData,
    draw_images,
)

_PART_BYTES = 100_000_000  # of a stream, shuffled together; up to four times as much is in memory
# Of the processes that draw. All threads of the training wait for one that shares its processor.
_NICENESS = 19

_DrawnPart = tuple[list[np.ndarray], np.ndarray]  # images and labels


class ShardSlice(NamedTuple):
    """Some rows of a shard."""

    ref: ShardRef
    rows: range


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
            parts = map_jobs(draw_images, jobs, _count_processes(dataset, group))
            return _collect(dataset, len(samples), parts, device)
        check(
            2 * needed <= room / 2,
            f"two blocks of {len(samples):,} drawings need {2 * needed / 1e9:.1f} GB, more than "
            f"half of the memory of {device}; take fewer `images`",
        )
        return DrawnBlocks(dataset, samples, group)
    slices = slice_shards(dataset.of_split(split), samples)
    if slices and (stream or needed > room / 2):
        # So that a damaged shard is found before the first step.
        check_shards(part.ref for part in slices)
        stream_parts = partial(_stream_parts, dataset, slices, device)
        return PartBatches(stream_parts, len(samples), "streamed from disk")
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
    return PartBatches(lambda _: iter([(images, labels)]), len(images), "in memory")


def slice_shards(refs: Sequence[ShardRef], samples: range) -> list[ShardSlice]:
    """Return the slices of shards that hold `samples`, which are numbered over all shards."""
    slices, first = [], 0
    for ref in refs:
        count = ref.shard.count
        rows = range(max(0, samples.start - first), min(count, samples.stop - first))
        if rows:
            slices.append(ShardSlice(ref, rows))
        first += count
    return slices


def _stream_parts(
    dataset: Dataset,
    slices: Sequence[ShardSlice],
    device: torch.device,
    generator: torch.Generator | None,
) -> Iterator[Samples]:
    """Yield the samples of some shards at a time, while a thread reads the next ones."""
    order = list(range(len(slices)))
    if generator is not None:
        order = torch.randperm(len(slices), generator=generator).tolist()
    shuffled = [slices[number] for number in order]
    largest = max(part.ref.shard.payload_bytes for part in slices)
    per_part = max(1, _PART_BYTES // largest)  # shards

    def read(first: int) -> Samples:
        images, labels = _read_slices(dataset, shuffled[first : first + per_part])
        return copy_to_device(images, device), copy_to_device(labels, device)

    with ThreadPoolExecutor(1, thread_name_prefix="shards") as reader:
        next_part = reader.submit(read, 0)
        for first in range(per_part, len(slices), per_part):
            part, next_part = next_part, reader.submit(read, first)
            yield part.result()
        yield next_part.result()


def _read_slices(dataset: Dataset, slices: Sequence[ShardSlice]) -> Samples:
    """Read the samples of some shards into memory, checked and decompressed on all processors."""
    images, labels = _empty_samples(dataset, sum(len(part.rows) for part in slices))

    def read(first: int, part: ShardSlice) -> None:
        shard_images, shard_labels = read_shard(*part.ref)
        rows = slice(part.rows.start, part.rows.stop)
        images[first : first + len(part.rows)] = torch.from_numpy(shard_images[rows])
        labels[first : first + len(part.rows)] = torch.from_numpy(shard_labels[rows])

    firsts = accumulate((len(part.rows) for part in slices), initial=0)
    with ThreadPoolExecutor(available_workers(), thread_name_prefix="shards") as pool:
        list(pool.map(read, firsts, slices))
    return images, labels


class _Pending(NamedTuple):
    """A block that is being drawn; begun: when, as `time.perf_counter`."""

    block: int
    parts: JobResults[Job, _DrawnPart]
    begun: float


class DrawnBlocks(Batches):
    """Samples that other processes draw: block after block, each while the one before is shown.

    Two blocks are in memory at most. Its attributes are those of a split, of the two blocks, and of
    what draws. wanted, shown, last: numbers of blocks.
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
        repeat = self.data.options.repeat
        self.last = sys.maxsize if epochs is None else (epochs - 1) // repeat
        self.wanted = min(epoch // repeat, self.last)
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


def _count_processes(data: DrawnData, group: ProcessGroup) -> int:
    return data.options.workers or max(1, available_workers() // group.local_world_size)


def _collect(
    data: DrawnData, count: int, parts: Iterable[_DrawnPart], device: torch.device
) -> WidthBatches:
    """Put `count` drawings into the device's memory; each of `parts` is freed once it is copied."""
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
    return WidthBatches(images.to(device), labels.to(device), widths)


def _empty_samples(data: TrainingData, count: int) -> Samples:
    size = data.size
    images = torch.empty((count, size.channels, size.height, size.width), dtype=torch.uint8)
    return images, torch.empty((count, data.lengths.longest), dtype=torch.int64)
