"""Load one split as batches: shards into memory or as a stream, or drawings."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from captcha_ocr.data.shards import Dataset, ShardRef, check_shard_refs, read_shard
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.network.device import measure_memory
from captcha_ocr.options.preparation import Split
from captcha_ocr.system.processors import available_workers
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.samples.batches import (
    Batches,
    PartBatches,
    Samples,
    copy_to_device,
    empty_samples,
)
from captcha_ocr.training.samples.blocks import DrawnBlocks, draw_held_out
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData

_PART_BYTES = 100_000_000  # of a stream, shuffled together; up to four times as much is in memory


@dataclass(frozen=True)
class ShardSlice:
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
            return draw_held_out(dataset, split, samples, group)
        check(
            2 * needed <= room / 2,
            f"two blocks of {len(samples):,} drawings need {2 * needed / 1e9:.1f} GB, more than "
            f"half of the memory of {device}; take fewer `images`",
        )
        return DrawnBlocks(dataset, samples, group)
    slices = slice_shards(dataset.of_split(split), samples)
    if slices and (stream or needed > room / 2):
        # So that a damaged shard is found before the first step.
        check_shard_refs(part.ref for part in slices)
        parts = partial(_stream_parts, dataset, slices, device)
        return PartBatches(parts, len(samples), "streamed from disk")
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
