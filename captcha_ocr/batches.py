"""Shards to batches on the device: one split, resident there as uint8, or streamed from disk."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path

import torch
from torch import Tensor

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.shards import Dataset, Place, Split, check_places, read_shard
from captcha_ocr.workers import available_workers

# Of a stream, and at least a shard: so much is shuffled together; up to four times that is in memory.
PART_BYTES = 100_000_000
BATCHES_PER_WINDOW = 100  # that are weighed at a time
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of Linux's control groups, in bytes, or `max`

Samples = tuple[Tensor, Tensor]  # images (N, C, H, W) uint8 and labels (N, L) int64
Weigh = Callable[[Tensor], Tensor]


class Batches(ABC):
    """The samples of one split, as batches on one device; `lie` says where they lie."""

    lie: str

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

    def shuffled(self, batch_size: int, generator: torch.Generator, weigh: Weigh | None = None) -> Iterator[Samples]:
        """Every sample once, in the (CPU) generator's order; see `batch_count` for the tail.

        With `weigh`, every so many batches the next ones are drawn anew from what they would have
        been: labels (N, L) in, out how often each sample is to come, (N,), on average 1.
        """
        rest: Samples | None = None
        for images, labels in self.parts(generator):
            if rest is not None and len(rest[0]):
                images, labels = torch.cat([rest[0], images]), torch.cat([rest[1], labels])
            order = send(torch.randperm(len(images), generator=generator), images.device)
            whole = len(order) // batch_size * batch_size
            for first in range(0, whole, BATCHES_PER_WINDOW * batch_size):
                rows = order[first : min(whole, first + BATCHES_PER_WINDOW * batch_size)]
                if weigh is not None:
                    rows = resample(rows, weigh(labels[rows]), generator)
                for batch in rows.split(batch_size):  # type: ignore[no-untyped-call]
                    yield images[batch], labels[batch]
            rest = images[order[whole:]], labels[order[whole:]]
        if rest is not None and len(rest[0]) > 1:
            yield rest

    def batch_count(self, batch_size: int) -> int:
        """The batches of an epoch; a tail of one sample is passed over (batch norm needs two)."""
        full, tail = divmod(len(self), batch_size)
        return full + (tail > 1)

    def first(self, most: int) -> Samples:
        """The first samples, at most so many of one part."""
        images, labels = next(self.parts())
        return images[:most], labels[:most]


class ResidentBatches(Batches):
    """All samples in the device's memory."""

    lie = "in memory"

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

    lie = "streamed from disk"

    def __init__(self, dataset: Dataset, split: Split, device: torch.device) -> None:
        check_places(dataset.of_split(split))  # all of them before the first step
        self.dataset = dataset
        self.places = dataset.of_split(split)
        self.device = device

    def __len__(self) -> int:
        return sum(shard.count for _, _, shard in self.places)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Some shards at a time, read by a thread while the ones before them are in use."""
        count = len(self.places)
        order = list(range(count)) if generator is None else torch.randperm(count, generator=generator).tolist()
        largest = max(shard.payload_bytes for _, _, shard in self.places)
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
        images, labels = read_places(self.dataset, [self.places[number] for number in group])
        return send(images, self.device), send(labels, self.device)


def resample(rows: Tensor, weights: Tensor, generator: torch.Generator) -> Tensor:
    """As many of `rows` (N), in a new order, each as often as its weight (N,), of mean 1, says, rounded up or down."""
    ends = weights.cumsum(0)
    places = send(torch.arange(len(rows)) + torch.rand(1, generator=generator), rows.device)
    chosen = torch.searchsorted(ends, places * (ends[-1] / len(rows))).clamp_max(len(rows) - 1)
    return rows[chosen[send(torch.randperm(len(rows), generator=generator), rows.device)]]


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the processor's memory on its way to the device; the processor does not wait for it."""
    if device.type == "cuda":  # only what is pinned is copied while both go on
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type == "cuda")


def read_places(dataset: Dataset, places: Sequence[Place]) -> Samples:
    """The samples of some shards of a data set, in memory, checked and decompressed by all processors."""
    count, size = sum(shard.count for _, _, shard in places), dataset.size
    images = torch.empty((count, size.channels, size.height, size.width), dtype=torch.uint8)
    labels = torch.empty((count, dataset.length), dtype=torch.int64)

    def read(first: int, place: Place) -> None:
        folder, manifest, shard = place
        shard_images, shard_labels = read_shard(folder, manifest, shard)
        images[first : first + shard.count] = torch.from_numpy(shard_images)
        labels[first : first + shard.count] = torch.from_numpy(shard_labels)

    firsts = accumulate((shard.count for _, _, shard in places), initial=0)
    with ThreadPoolExecutor(available_workers(), thread_name_prefix="shards") as pool:
        list(pool.map(read, firsts, places))
    return images, labels


def load_split(dataset: Dataset, split: Split, device: torch.device, stream: bool = False) -> Batches:
    """The samples of one split: resident on the device, or streamed where asked for or where they would not fit.

    All shards are checked. CaptchaOcrError where the memory runs out all the same.
    """
    places = dataset.of_split(split)
    size = dataset.size
    needed = dataset.count(split) * size.channels * size.height * size.width
    if places and (stream or needed > memory_of(device) / 2):
        return StreamedBatches(dataset, split, device)
    try:
        images, labels = read_places(dataset, places)
        return ResidentBatches(images.to(device), labels.to(device))
    except (RuntimeError, MemoryError):
        raise CaptchaOcrError(
            f"the {dataset.count(split):,} images of the {split} split need {needed / 1e9:.1f} GB on {device}, "
            "which has no room for them; try --stream"
        ) from None


def memory_of(device: torch.device) -> int:
    """The bytes of memory that the device has in all, used or free, so that the same machine decides alike."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):
        return 2**34  # Windows does not say without more ado: 16 GiB
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return physical
