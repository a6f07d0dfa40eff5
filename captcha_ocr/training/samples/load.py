"""Load one split of shards or drawings as batches."""

from captcha_ocr.config import Split
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.network.device import memory_of
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.samples.batches import Batches, PartBatches
from captcha_ocr.training.samples.blocks import DrawnBlocks, draw_held_out
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData
from captcha_ocr.training.samples.sources import (
    ResidentSamples,
    StreamedSamples,
    read_slices,
    slice_shards,
)


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
    room = memory_of(device) // (group.local_world_size if device.type == "cpu" else 1)
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
        return PartBatches(StreamedSamples(dataset, slices, device))
    try:
        images, labels = read_slices(dataset, slices)
        return PartBatches(ResidentSamples(images.to(device), labels.to(device)))
    except (RuntimeError, MemoryError):
        raise CaptchaOcrError(
            f"the {len(samples):,} images of the {split} split need {needed / 1e9:.1f} GB, "
            f"for which the memory of {device} is too small; try `stream`"
        ) from None
