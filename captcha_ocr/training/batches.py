"""Shards to batches on the device: one split, resident there as uint8, or streamed from disk."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from captcha_ocr.config import Split
from captcha_ocr.data.shards import Dataset, ShardRef, check_shard_refs, read_shard
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.network.device import memory_of
from captcha_ocr.system.parallel import available_workers
from captcha_ocr.training.difficulty import Difficulty
from captcha_ocr.training.distributed import ProcessGroup

# Of a stream, and at least a shard: so much is shuffled together; up to four times that is in memory.
PART_BYTES = 100_000_000
BATCHES_PER_WINDOW = 100  # that are weighed at a time

Samples = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8 and labels (N, L) int64


@dataclass(frozen=True)
class ShardSlice:
    """Some rows of a shard."""

    ref: ShardRef
    rows: range


@dataclass(frozen=True)
class BatchPartition:
    """This process's part of every batch of `batch_size` images, and so of the `total` images of a split.

    All processes take the same number of steps in an epoch, and no image is in two parts.
    """

    total: int
    batch_size: int
    group: ProcessGroup

    def __post_init__(self) -> None:
        least = 2 * self.group.world_size
        check(self.batch_size >= least, f"--batch-size must be at least {least} for {self.group.world_size} processes")

    @property
    def local_batch_size(self) -> int:
        """How many images of a full batch this process takes."""
        return len(self.group.portion(self.batch_size))

    @property
    def samples(self) -> range:
        """Which images of the split this process takes."""
        return self._samples_of(self.group)

    def _samples_of(self, group: ProcessGroup) -> range:
        rows = group.portion(self.batch_size)
        return range(self.total * rows.start // self.batch_size, self.total * rows.stop // self.batch_size)

    @cached_property  # asked at every step
    def steps(self) -> int:
        """The steps of an epoch; a tail of less than two images in some process is left out, for batch norm."""
        whole = self.total // self.batch_size
        everyone = [replace(self.group, rank=rank) for rank in range(self.group.world_size)]
        tails = [len(self._samples_of(one)) - whole * len(one.portion(self.batch_size)) for one in everyone]
        return whole + (min(tails) > 1)

    def global_batch_size(self, step: int) -> int:
        """How many images all processes take in a step of an epoch, counted from 0."""
        return min(self.batch_size, self.total - step * self.batch_size)


class Batches(ABC):
    """Samples of one split, as batches on one device; `location` says where they are."""

    location: str

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""

    @abstractmethod
    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """All samples, on the device, in parts; with a generator the parts come in its order."""

    def in_order(self, batch_size: int) -> Iterator[Samples]:
        """Every sample once, as it lies in the shards; a part may end with a smaller batch."""
        for images, labels in self.parts():
            for first in range(0, len(images), batch_size):
                yield images[first : first + batch_size], labels[first : first + batch_size]

    def shuffled(
        self, batch_size: int, generator: torch.Generator, difficulty: Difficulty | None = None, done: int = 0
    ) -> Iterator[Samples]:
        """Every sample once, in the (CPU) generator's order, the last batch smaller; the first `done` are passed over.

        With `difficulty`, every so many batches the next ones are drawn anew from what they would have been, the hard
        ones more often. What the generator gives depends on no sample, so batches are passed over without a look.
        """
        rest: Samples | None = None
        passed = 0  # batches
        for images, labels in self.parts(generator):
            if rest is not None and len(rest[0]):
                images, labels = torch.cat([rest[0], images]), torch.cat([rest[1], labels])
            order = to_device(torch.randperm(len(images), generator=generator), images.device)
            whole = len(order) // batch_size * batch_size
            for first in range(0, whole, BATCHES_PER_WINDOW * batch_size):
                rows = order[first : min(whole, first + BATCHES_PER_WINDOW * batch_size)]
                batches = len(rows) // batch_size
                if difficulty is not None:
                    shift, places = torch.rand(1, generator=generator), torch.randperm(len(rows), generator=generator)
                    if passed >= done:
                        difficulty.look()
                    if passed + batches > done:
                        rows = resample(rows, difficulty.weights(labels[rows]), shift, places)
                for begin in range(max(0, done - passed) * batch_size, len(rows), batch_size):
                    batch = rows[begin : begin + batch_size]
                    yield images[batch], labels[batch]
                passed += batches
            rest = images[order[whole:]], labels[order[whole:]]
        if rest is not None and len(rest[0]) and passed >= done:
            yield rest

    def first(self, most: int) -> Samples:
        """The first samples, at most so many of one part."""
        images, labels = next(self.parts())
        return images[:most], labels[:most]


class ResidentBatches(Batches):
    """All samples in the device's memory."""

    location = "in memory"

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.images)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """The one part that there is."""
        yield self.images, self.labels


class StreamedBatches(Batches):
    """Samples read again from their shards every epoch, a few shards ahead of their use."""

    location = "streamed from disk"

    def __init__(self, dataset: Dataset, slices: Sequence[ShardSlice], device: torch.device) -> None:
        check_shard_refs(part.ref for part in slices)  # all of them before the first step
        self.dataset = dataset
        self.slices = slices
        self.device = device

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.slices)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Some shards at a time, read by a thread while the ones before them are in use."""
        count = len(self.slices)
        order = list(range(count)) if generator is None else torch.randperm(count, generator=generator).tolist()
        largest = max(part.ref.shard.payload_bytes for part in self.slices)
        together = max(1, PART_BYTES // largest)
        groups = [order[first : first + together] for first in range(0, count, together)]
        with ThreadPoolExecutor(1, thread_name_prefix="shards") as reader:
            coming = reader.submit(self.read, groups[0])
            for following in [*groups[1:], None]:
                part = coming.result()
                if following is not None:
                    coming = reader.submit(self.read, following)
                yield part

    def read(self, group: Sequence[int]) -> Samples:
        """The samples of some shards, on their way to the device."""
        images, labels = read_slices(self.dataset, [self.slices[number] for number in group])
        return to_device(images, self.device), to_device(labels, self.device)


def resample(rows: Tensor, weights: Tensor, shift: Tensor, order: Tensor) -> Tensor:
    """As many of `rows` (N), in a new `order` (N), each as often as its weight (N,), of mean 1, says.

    shift: one number in [0, 1), by which chance rounds up or down.
    """
    ends = weights.cumsum(0)
    places = to_device(torch.arange(len(rows)) + shift, rows.device)
    chosen = torch.searchsorted(ends, places * (ends[-1] / len(rows))).clamp_max(len(rows) - 1)
    return rows[chosen[to_device(order, rows.device)]]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the processor's memory on its way to the device; the processor does not wait for it."""
    if device.type == "cuda":  # only what is pinned is copied while both go on
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type == "cuda")


def slices_of(refs: Sequence[ShardRef], samples: range) -> list[ShardSlice]:
    """The shards, or parts of them, in which samples lie that are numbered from the first shard's first on."""
    slices, first = [], 0
    for ref in refs:
        count = ref.shard.count
        rows = range(max(0, samples.start - first), min(count, samples.stop - first))
        if rows:
            slices.append(ShardSlice(ref, rows))
        first += count
    return slices


def read_slices(dataset: Dataset, slices: Sequence[ShardSlice]) -> Samples:
    """The samples of some shards of a data set, in memory, checked and decompressed by all processors."""
    count, size = sum(len(part.rows) for part in slices), dataset.size
    images = torch.empty((count, size.channels, size.height, size.width), dtype=torch.uint8)
    labels = torch.empty((count, dataset.lengths.longest), dtype=torch.int64)

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
    dataset: Dataset, split: Split, group: ProcessGroup, samples: range | None = None, stream: bool = False
) -> Batches:
    """Samples of one split, this process's portion unless said otherwise.

    Resident on the device, or streamed where asked for or where they would not fit; their shards are checked.
    CaptchaOcrError where the memory runs out all the same.
    """
    device = group.device
    samples = group.portion(dataset.count(split)) if samples is None else samples
    slices = slices_of(dataset.of_split(split), samples)
    size = dataset.size
    needed = len(samples) * size.channels * size.height * size.width
    room = memory_of(device) // (group.local_world_size if device.type == "cpu" else 1)
    if slices and (stream or needed > room / 2):
        return StreamedBatches(dataset, slices, device)
    try:
        images, labels = read_slices(dataset, slices)
        return ResidentBatches(images.to(device), labels.to(device))
    except (RuntimeError, MemoryError):
        raise CaptchaOcrError(
            f"the {len(samples):,} images of the {split} split need {needed / 1e9:.1f} GB on {device}, "
            "which has no room for them; try --stream"
        ) from None
