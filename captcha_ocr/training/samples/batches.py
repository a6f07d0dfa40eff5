"""Batches of one split: the images are uint8 in the device's memory, streamed from disk, or drawn meanwhile."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from captcha_ocr.config import Split
from captcha_ocr.data.shards import Dataset, ShardRef, check_shard_refs, read_shard
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.network.device import memory_of
from captcha_ocr.system.console import counted
from captcha_ocr.system.parallel import Results, Workers, available_workers, map_jobs
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.samples.dataset import (
    DRAWINGS_PER_JOB,
    DrawnData,
    Job,
    TrainingData,
    draw_images,
)

NICENESS = 19  # of the processes that draw, since all threads of the training wait for one that shares its processor
PART_BYTES = 100_000_000  # of a stream, shuffled together; up to four times as much is in memory

DrawnPart = tuple[list[np.ndarray], np.ndarray]  # images and labels
Samples = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8 and labels (N, L) int64


@dataclass(frozen=True)
class ShardSlice:
    """Some rows of a shard."""

    ref: ShardRef
    rows: range


@dataclass(frozen=True)
class BatchPartition:
    """This process's part of every batch, and so of the `total` images of a split.

    batch_size: the images of a batch in all processes. All processes take the same number of steps in an epoch, and no
    image is in two parts.
    """

    total: int
    batch_size: int
    group: ProcessGroup

    def __post_init__(self) -> None:
        smallest, processes = 2 * self.group.world_size, counted(self.group.world_size, "process")
        check(
            self.batch_size >= smallest, f"--batch-size must be at least {smallest} for {processes}"
        )

    @property
    def local_batch_size(self) -> int:
        """The images of a full batch in this process."""
        return len(self.group.portion(self.batch_size))

    @property
    def samples(self) -> range:
        """The images of the split in this process."""
        rows = self.group.portion(self.batch_size)
        return range(
            self.total * rows.start // self.batch_size, self.total * rows.stop // self.batch_size
        )

    @cached_property  # read at every step
    def steps(self) -> int:
        """The steps of an epoch; a last batch with less than two images in a process is dropped, for batch norm."""
        whole = self.total // self.batch_size
        all_parts = [
            replace(self, group=replace(self.group, rank=rank))
            for rank in range(self.group.world_size)
        ]
        tails = [len(part.samples) - whole * part.local_batch_size for part in all_parts]
        return whole + (min(tails) > 1)

    def global_batch_size(self, step: int) -> int:
        """Return the images of a step of an epoch, counted from 0, in all processes."""
        return min(self.batch_size, self.total - step * self.batch_size)


class Batches(ABC):
    """Samples of one split, as batches on one device; `location` names where they are stored.

    extra_seconds: what an epoch takes besides its steps.
    """

    location: str
    extra_seconds = 0.0

    def show(self, epoch: int, epochs: int | None) -> None:  # noqa: B027  most have the same for all epochs
        """Choose the samples of an epoch, counted from 0, of so many epochs if that is known."""

    def wait(self, seconds: float) -> int:
        """Wait at most so long for the samples of the epoch; return how many are not there yet."""
        return 0

    def close(self) -> None:  # noqa: B027  most have none
        """End the processes that make the samples."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Yield all samples, on the device, in parts; a generator shuffles the parts."""

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        """Yield every sample once, in the order of the shards; a part may end with a smaller batch."""
        for images, labels in self.parts():
            for first in range(0, len(images), batch_size):
                yield images[first : first + batch_size], labels[first : first + batch_size]

    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        """Yield every sample once, shuffled by a CPU generator, in batches of which the last may be smaller.

        The first `done` batches are skipped.
        """
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

    def first(self, limit: int) -> Samples:
        """Return the first samples of the first part, at most `limit`."""
        images, labels = next(self.parts())
        return images[:limit], labels[:limit]


class ResidentBatches(Batches):
    """Samples in the device's memory."""

    location = "in memory"

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Yield all samples as one part."""
        yield self.images, self.labels


class DrawnBatches(ResidentBatches):
    """Drawings in the device's memory. A batch has the width of its widest image, and images of about one width.

    images: (N, C, H, W) uint8; each begins at the left and repeats its last column up to W. widths: (N,), on the CPU.
    """

    def __init__(self, images: Tensor, labels: Tensor, widths: Tensor) -> None:
        super().__init__(images, labels)
        self.widths = widths

    def batch(self, rows: Tensor) -> Samples:
        """Return the samples of some rows, as wide as the widest of them."""
        width, rows = int(self.widths[rows].max()), copy_to_device(rows, self.images.device)
        return self.images[..., :width][rows], self.labels[rows]

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        """Yield every sample once, in the order of their widths."""
        yield from map(self.batch, torch.split(self.widths.argsort(stable=True), batch_size))

    def shuffled(
        self, batch_size: int, generator: torch.Generator, done: int = 0
    ) -> Iterator[Samples]:
        """Yield every sample once, in shuffled batches of about one width; the first `done` batches are skipped."""
        order = torch.randperm(len(self), generator=generator)
        batches = torch.split(order[self.widths[order].argsort(stable=True)], batch_size)
        whole = len(self) // batch_size
        numbers = [
            *torch.randperm(whole, generator=generator).tolist(),
            *range(whole, len(batches)),
        ]
        yield from (self.batch(batches[number]) for number in numbers[done:])

    def first(self, limit: int) -> Samples:
        """Return some samples of about the average width, at most `limit`."""
        order = self.widths.argsort(stable=True)
        middle = max(0, (len(self) - limit) // 2)
        return self.batch(order[middle : middle + limit])


class DrawnBlocks(DrawnBatches):
    """Samples that other processes draw: block after block, each while the one before is shown.

    Two blocks are in memory at most.
    """

    def __init__(self, data: DrawnData, samples: range, group: ProcessGroup) -> None:
        self.data, self.samples, self.device = data, samples, group.device
        self.workers = Workers(drawing_processes(data, group), NICENESS)
        self.location = f"new ones every {data.options.rhythm}"
        self.wanted, self.shown, self.last = 0, -1, 0  # numbers of blocks
        self.begun = 0.0
        self.drawn: tuple[int, Results[Job, DrawnPart]] | None = None  # and the number of its block
        super().__init__(*collect(data, 0, []))

    def __len__(self) -> int:
        return len(self.samples)

    def show(self, epoch: int, epochs: int | None) -> None:
        """Choose the block of an epoch, and begin it unless that was done."""
        self.last = sys.maxsize if epochs is None else self.data.block_of(epochs - 1)
        self.wanted = min(self.data.block_of(epoch), self.last)
        if self.wanted != self.shown and (self.drawn is None or self.drawn[0] != self.wanted):
            self.begin(self.wanted)

    def begin(self, block: int) -> None:
        """Begin to draw a block."""
        self.drawn = (
            block,
            self.workers.start(draw_images, self.data.jobs("train", self.samples, block)),
        )
        self.begun = time.perf_counter()

    def wait(self, seconds: float) -> int:
        """Wait at most so long for the block; return how many samples are not there yet."""
        if self.drawn is None or self.shown == self.wanted:
            return 0
        block, parts = self.drawn
        missing = parts.wait(seconds)
        if missing:
            return min(len(self), missing * DRAWINGS_PER_JOB)
        if (
            self.shown < 0 and self.device.type == "cpu"
        ):  # else a block is drawn while the device computes
            self.extra_seconds = (time.perf_counter() - self.begun) / self.data.options.repeat
        self.drawn = None
        if block < self.last:
            self.begin(block + 1)
        super().__init__(*collect(self.data, 0, []))  # frees the block before
        images, labels, widths = collect(self.data, len(self), parts)
        super().__init__(images.to(self.device), labels.to(self.device), widths)
        self.shown = block
        return 0

    def close(self) -> None:
        """End the processes."""
        self.workers.close()


class StreamedBatches(Batches):
    """Samples that are read from their shards in every epoch, a few shards ahead."""

    location = "streamed from disk"

    def __init__(
        self, dataset: Dataset, slices: Sequence[ShardSlice], device: torch.device
    ) -> None:
        check_shard_refs(
            part.ref for part in slices
        )  # so that a damaged shard is found before the first step
        self.dataset, self.slices, self.device = dataset, slices, device

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.slices)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Yield some shards at a time, while a thread reads the next ones."""
        count = len(self.slices)
        order = (
            list(range(count))
            if generator is None
            else torch.randperm(count, generator=generator).tolist()
        )
        largest = max(part.ref.shard.payload_bytes for part in self.slices)
        per_part = max(1, PART_BYTES // largest)  # shards
        groups = [order[first : first + per_part] for first in range(0, count, per_part)]
        with ThreadPoolExecutor(1, thread_name_prefix="shards") as reader:
            next_part = reader.submit(self.read, groups[0])
            for group in [*groups[1:], None]:
                part = next_part.result()
                if group is not None:
                    next_part = reader.submit(self.read, group)
                yield part

    def read(self, group: Sequence[int]) -> Samples:
        """Read the samples of some shards, and start to copy them to the device."""
        images, labels = read_slices(self.dataset, [self.slices[number] for number in group])
        return copy_to_device(images, self.device), copy_to_device(labels, self.device)


def drawing_processes(data: DrawnData, group: ProcessGroup) -> int:
    """Return how many processes draw for this one."""
    return data.options.workers or max(1, available_workers() // group.local_world_size)


def empty_samples(data: TrainingData, count: int) -> Samples:
    """Return memory for `count` samples."""
    size = data.size
    images = torch.empty((count, size.channels, size.height, size.width), dtype=torch.uint8)
    return images, torch.empty((count, data.lengths.longest), dtype=torch.int64)


def collect(
    data: DrawnData, count: int, parts: Iterable[DrawnPart]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `count` drawings, their labels and their widths; each of `parts` is freed once it is copied."""
    (images, labels), widths = empty_samples(data, count), torch.empty(count, dtype=torch.int64)
    first = 0
    for some_images, some_labels in parts:
        labels[first : first + len(some_labels)] = torch.from_numpy(some_labels)
        for pixels, image in zip(images[first:].numpy(), some_images, strict=False):
            width = image.shape[-1]
            pixels[..., :width], pixels[..., width:] = image, image[..., -1:]
        widths[first : first + len(some_images)] = torch.tensor(
            [image.shape[-1] for image in some_images]
        )
        first += len(some_images)
    return images, labels, widths


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a CPU tensor to the device without waiting for it."""
    if device.type == "cuda":  # which copies only pinned memory in the background
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type == "cuda")


def slices_of(refs: Sequence[ShardRef], samples: range) -> list[ShardSlice]:
    """Return the slices of shards that hold `samples`, which are numbered over all shards."""
    slices, first = [], 0
    for ref in refs:
        count = ref.shard.count
        rows = range(max(0, samples.start - first), min(count, samples.stop - first))
        if rows:
            slices.append(ShardSlice(ref, rows))
        first += count
    return slices


def read_slices(dataset: Dataset, slices: Sequence[ShardSlice]) -> Samples:
    """Read the samples of some shards into memory, checked and decompressed on all processors."""
    images, labels = empty_samples(dataset, sum(len(part.rows) for part in slices))

    def read(first: int, part: ShardSlice) -> None:
        shard_images, shard_labels = read_shard(*part.ref)
        rows = slice(part.rows.start, part.rows.stop)
        images[first : first + len(part.rows)] = torch.from_numpy(shard_images[rows])
        labels[first : first + len(part.rows)] = torch.from_numpy(shard_labels[rows])

    firsts = accumulate((len(part.rows) for part in slices), initial=0)
    with ThreadPoolExecutor(available_workers(), thread_name_prefix="shards") as pool:
        list(pool.map(read, firsts, slices))
    return images, labels


def load_split(
    dataset: TrainingData,
    split: Split,
    group: ProcessGroup,
    samples: range | None = None,
    stream: bool = False,
) -> Batches:
    """Load one split: the given samples, or this process's portion.

    Of shards, they are resident on the device, or streamed on request or if they need more than half of its memory.
    Drawings are drawn now, but those to train on later. DamagedError for a damaged shard, CaptchaOcrError if the memory
    does not suffice.
    """
    device = group.device
    samples = group.portion(dataset.count(split)) if samples is None else samples
    needed = len(samples) * dataset.size.channels * dataset.size.height * dataset.size.width
    room = memory_of(device) // (group.local_world_size if device.type == "cpu" else 1)
    if isinstance(dataset, DrawnData):
        return draw_split(dataset, split, group, samples, needed, room)
    slices = slices_of(dataset.of_split(split), samples)
    if slices and (stream or needed > room / 2):
        return StreamedBatches(dataset, slices, device)
    try:
        images, labels = read_slices(dataset, slices)
        return ResidentBatches(images.to(device), labels.to(device))
    except (RuntimeError, MemoryError):
        raise CaptchaOcrError(
            f"the {len(samples):,} images of the {split} split need {needed / 1e9:.1f} GB, "
            f"for which the memory of {device} is too small; try --stream"
        ) from None


def draw_split(
    data: DrawnData, split: Split, group: ProcessGroup, samples: range, needed: int, room: int
) -> ResidentBatches:
    """Draw some samples of a split; the training draws its own later, block after block."""
    if split != "train":
        parts = map_jobs(draw_images, data.jobs(split, samples), drawing_processes(data, group))
        images, labels, widths = collect(data, len(samples), parts)
        return DrawnBatches(images.to(group.device), labels.to(group.device), widths)
    two = f"two blocks of {len(samples):,} drawings need {2 * needed / 1e9:.1f} GB"
    check(
        2 * needed <= room / 2,
        f"{two}, more than half of the memory of {group.device}; take fewer --images",
    )
    return DrawnBlocks(data, samples, group)
