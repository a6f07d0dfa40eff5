"""How fast this machine trains and reads: images a second for each device."""

import io
import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np
import torch
from PIL import Image

from captcha_ocr.charset import Charset
from captcha_ocr.config import GENERATED, ModelConfig, PrepareConfig, preset_named
from captcha_ocr.data.images import Source, to_array
from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.fast_renderer import render
from captcha_ocr.network.device import choose_device, describe, keep_freed_memory
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.parallel import SLICE
from captcha_ocr.training.batches import BatchPartition, ResidentBatches
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.trainer import Trainer

DRAWN = 256  # different images; they are used again and again
SECONDS = 6.0  # for each of the two figures, besides the warm-up


@dataclass(frozen=True)
class Speed:
    """Images a second on one device: `training` as an epoch of `train` counts them, `reading` from PNG to code."""

    device: str
    training: float
    reading: float


def measure_speed(device_name: str, preset_name: str = "default") -> Speed:
    """Train on, and read, generated captchas for some seconds; UsageError where there is no such device."""
    device, preset = choose_device(device_name), preset_named(preset_name)
    keep_freed_memory()
    captchas = GeneratorConfig()
    size = PrepareConfig(preset=preset_name).input_size(captchas.lengths.longest, GENERATED)
    charset = Charset(captchas.charset)
    texts, drawn = zip(*(render(captchas, index) for index in range(DRAWN)), strict=True)
    images = torch.from_numpy(np.stack([to_array(image, size) for image in drawn])).to(device)
    labels = torch.from_numpy(charset.encode(texts)).long().to(device)
    config = ModelConfig(charset, captchas.lengths, size, preset.network)
    training = replace(preset.training, schedule="constant")  # for ever

    partition = BatchPartition(DRAWN, training.batch_size, ProcessGroup(device))
    trainer = Trainer(config, training, partition)

    def epoch(count: int) -> float:
        rows = torch.arange(count, device=device) % DRAWN
        trainer.partition = replace(partition, total=count)
        row = trainer.run_epoch(ResidentBatches(images[rows], labels[rows]), quiet=True)
        trainer.end_epoch()
        return float(row["images_per_s"])

    rate = epoch(4 * training.batch_size)
    for seconds in (SECONDS / 6, SECONDS):  # the first steps are slow: they tell too little of how many fit
        rate = epoch(max(1, round(seconds * rate / training.batch_size)) * training.batch_size)
    recognizer = Recognizer(TorchEngine(trainer.model, device))
    return Speed(describe(device), rate, reading_speed(recognizer, [png_of(image) for image in drawn]))


def reading_speed(recognizer: Recognizer, files: list[Source]) -> float:
    """Images a second, after a warm-up."""
    with closing(recognizer.read_all(cycle(files))) as readings:
        list(islice(readings, DRAWN))
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < SECONDS:
            count += len(list(islice(readings, SLICE)))
        return count / (time.perf_counter() - started)


def png_of(image: Image.Image) -> bytes:
    """An image as the bytes of a PNG file."""
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    return stream.getvalue()
