"""Shards to batches on the device: one split, resident there as uint8."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.shards import Manifest, Split, read_shard


class Batches:
    """All samples of one split: images (N, C, H, W) uint8 and labels (N, L) int64 on one device."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.images)

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every sample once, as it lies in the shards."""
        for first in range(0, len(self), batch_size):
            yield self.images[first : first + batch_size], self.labels[first : first + batch_size]

    def shuffled(self, batch_size: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Every sample once, in the (CPU) generator's order; see `batch_count` for the tail."""
        order = torch.randperm(len(self), generator=generator).to(self.images.device)
        for number in range(self.batch_count(batch_size)):
            rows = order[number * batch_size : (number + 1) * batch_size]
            yield self.images[rows], self.labels[rows]

    def batch_count(self, batch_size: int) -> int:
        """The batches of an epoch; a tail of one sample is passed over (batch norm needs two)."""
        full, tail = divmod(len(self), batch_size)
        return full + (tail > 1)

    def pixel_statistics(self) -> tuple[Tensor, Tensor]:
        """The mean and deviation of each channel's pixels in [0, 1], both (C, 1, 1), from 2,000 images."""
        pixels = self.images[:2000].float() / 255
        return pixels.mean((0, 2, 3))[:, None, None], pixels.std((0, 2, 3))[:, None, None].clamp_min(1e-3)


def load_split(folder: Path, manifest: Manifest, split: Split, device: torch.device) -> Batches:
    """Read, check and decompress all shards of one split straight into the device's memory."""
    size, count = manifest.size, manifest.count(split)
    try:
        images = torch.empty((count, size.channels, size.height, size.width), dtype=torch.uint8, device=device)
        labels = torch.empty((count, manifest.length), dtype=torch.int64, device=device)
    except (RuntimeError, MemoryError):
        gigabytes = count * size.channels * size.height * size.width / 1e9
        raise CaptchaOcrError(
            f"the {count:,} images of the {split} split need {gigabytes:.1f} GB on {device}, which has no room for them"
        ) from None
    filled = 0
    for shard in manifest.of_split(split):
        shard_images, shard_labels = read_shard(folder, manifest, shard)
        images[filled : filled + shard.count] = torch.from_numpy(shard_images)
        labels[filled : filled + shard.count] = torch.from_numpy(shard_labels)
        filled += shard.count
    return Batches(images, labels)
