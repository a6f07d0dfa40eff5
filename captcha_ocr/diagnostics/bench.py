"""Measure how fast this machine trains and reads: images per second on each device."""

import io
import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.config import ModelConfig, PrepareConfig, preset_named
from captcha_ocr.data.images import Source, to_array
from captcha_ocr.generation.drawer import drawer_of
from captcha_ocr.generation.options import DrawingOptions
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.input_size import GENERATED
from captcha_ocr.network.device import choose_device, describe_device, set_threads
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.memory import keep_freed_memory
from captcha_ocr.system.parallel import JOBS_PER_SLICE
from captcha_ocr.training.batches import BatchPartition, ResidentBatches
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.trainer import Trainer

DRAWN = 256  # different images, which are used again and again
SECONDS = 6.0  # for each measurement, without the warm-up


@dataclass(frozen=True)
class Speed:
    """Images per second on one device: `training` as in the metrics of an epoch, `reading` from PNG to text."""

    device: str
    training: float
    reading: float


def measure_speed(
    device_name: str, preset_name: str = "default", threads: int | None = None
) -> Speed:
    """Train on generated captchas, and read them, for some seconds; UsageError if there is no such device."""
    set_threads(threads)
    device, preset = choose_device(device_name), preset_named(preset_name)
    keep_freed_memory()
    captchas = plan_drawing(DrawingOptions())
    size = PrepareConfig(preset=preset_name).input_size(GENERATED)
    charset, lengths = Charset(captchas.charset), captchas.lengths
    drawn = [drawer_of(captchas).draw(index) for index in range(DRAWN)]
    images = torch.from_numpy(np.stack([to_array(each.image, size) for each in drawn])).to(device)
    labels = torch.from_numpy(charset.encode([each.text for each in drawn])).long().to(device)
    config = ModelConfig(charset, lengths, size, preset.network)
    training = replace(preset.training, schedule="constant")  # which has no last epoch
    partition = BatchPartition(DRAWN, training.batch_size, ProcessGroup(device))
    trainer = Trainer(config, training, partition)

    def run_epoch(count: int) -> float:
        rows = torch.arange(count, device=device) % DRAWN
        trainer.partition = replace(partition, total=count)
        row = trainer.run_epoch(ResidentBatches(images[rows], labels[rows]), quiet=True)
        trainer.end_epoch()
        return float(row["images_per_s"])

    rate = run_epoch(4 * training.batch_size)
    for seconds in (
        SECONDS / 6,
        SECONDS,
    ):  # twice: the first steps are slow, so their rate gives too few images
        rate = run_epoch(max(1, round(seconds * rate / training.batch_size)) * training.batch_size)
    files: list[Source] = []
    for each in drawn:
        stream = io.BytesIO()
        each.image.save(stream, format="PNG")
        files.append(stream.getvalue())
    return Speed(
        describe_device(device),
        rate,
        reading_speed(Recognizer(TorchEngine(trainer.model, device)), files),
    )


def reading_speed(recognizer: Recognizer, files: list[Source]) -> float:
    """Return the images per second, after a warm-up."""
    with closing(recognizer.read_all(cycle(files))) as readings:
        list(islice(readings, DRAWN))
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < SECONDS:
            count += len(list(islice(readings, JOBS_PER_SLICE)))
        return count / (time.perf_counter() - started)
