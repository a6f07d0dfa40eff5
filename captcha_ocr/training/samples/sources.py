"""Sources of samples from shards: in the device's memory, or streamed from the disk."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from captcha_ocr.data.shards import Dataset, ShardRef, check_shard_refs, read_shard
from captcha_ocr.system.parallel import available_workers
from captcha_ocr.training.samples.batches import Samples, copy_to_device, empty_samples

_PART_BYTES = 100_000_000  # of a stream, shuffled together; up to four times as much is in memory


@dataclass(frozen=True)
class ShardSlice:
    """Some rows of a shard."""

    ref: ShardRef
    rows: range


@dataclass(frozen=True, eq=False)
class ResidentSamples:
    """Samples in the device's memory: images (N, C, H, W) uint8 and labels (N, L) int64."""

    images: Tensor
    labels: Tensor

    location = "in memory"

    def __len__(self) -> int:
        return len(self.images)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Yield all samples as one part."""
        yield self.images, self.labels


class StreamedSamples:
    """Samples that are read from their shards in every epoch, a few shards ahead.

    DamagedError for a damaged shard, before the first step.
    """

    location = "streamed from disk"

    def __init__(
        self, dataset: Dataset, slices: Sequence[ShardSlice], device: torch.device
    ) -> None:
        check_shard_refs(part.ref for part in slices)
        self.dataset, self.slices, self.device = dataset, slices, device

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.slices)

    def parts(self, generator: torch.Generator | None = None) -> Iterator[Samples]:
        """Yield some shards at a time, while a thread reads the next ones."""
        count = len(self.slices)
        order = list(range(count))
        if generator is not None:
            order = torch.randperm(count, generator=generator).tolist()
        largest = max(part.ref.shard.payload_bytes for part in self.slices)
        per_part = max(1, _PART_BYTES // largest)  # shards
        groups = [order[first : first + per_part] for first in range(0, count, per_part)]
        with ThreadPoolExecutor(1, thread_name_prefix="shards") as reader:
            next_part = reader.submit(self._read, groups[0])
            for group in groups[1:]:
                part, next_part = next_part, reader.submit(self._read, group)
                yield part.result()
            yield next_part.result()

    def _read(self, group: Sequence[int]) -> Samples:
        """Read the samples of some shards, and start to copy them to the device."""
        images, labels = read_slices(self.dataset, [self.slices[number] for number in group])
        return copy_to_device(images, self.device), copy_to_device(labels, self.device)


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
