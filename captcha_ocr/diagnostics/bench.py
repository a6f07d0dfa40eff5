"""Measure how fast this machine trains and reads: images per second on each device."""

import time
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.data.images import encode_png, to_array
from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.input_size import GENERATED
from captcha_ocr.network.device import choose_device, describe_device, set_threads
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.training import preset_named
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.memory import keep_freed_memory
from captcha_ocr.system.parallel import JOBS_PER_SLICE
from captcha_ocr.training.distributed import BatchPartition, ProcessGroup
from captcha_ocr.training.samples.batches import keep_in_memory
from captcha_ocr.training.step.trainer import Trainer

DRAWN = 256  # different images, which are used again and again
SECONDS = 6.0  # for each measurement, without the warm-up


@dataclass(frozen=True)
class Speed:
    """Images per second on one device.

    training: as in the metrics of an epoch. reading: from PNG to text.
    """

    device: str
    training: float
    reading: float


def measure_speed(
    device_name: str, preset_name: str = "default", threads: int | None = None
) -> Speed:
    """Train on generated captchas, and read them, for some seconds.

    UsageError if there is no such device.
    """
    set_threads(threads)
    device, preset = choose_device(device_name), preset_named(preset_name)
    keep_freed_memory()
    captchas = plan_drawing(DrawingOptions())
    size = PrepareConfig(preset=preset_name).input_size(GENERATED)
    config = ModelConfig(Charset(captchas.charset), captchas.lengths, size, preset.network)
    drawings = list(map(drawer_of(captchas).draw, range(DRAWN)))
    pixels = np.stack([to_array(drawing.image, size) for drawing in drawings])
    classes = config.charset.encode([drawing.text for drawing in drawings])
    images, labels = (
        torch.from_numpy(pixels).to(device),
        torch.from_numpy(classes).long().to(device),
    )
    training = replace(preset.training, schedule="constant")  # which has no last epoch
    partition = BatchPartition(DRAWN, training.batch_size, ProcessGroup(device))
    trainer = Trainer(config, training, partition)

    def run_epoch(steps: int) -> float:
        count = max(1, steps) * training.batch_size
        rows = torch.arange(count, device=device) % DRAWN
        trainer.partition = replace(partition, total=count)
        row = trainer.run_epoch(keep_in_memory(images[rows], labels[rows]), quiet=True)
        trainer.end_epoch()
        return float(row["images_per_s"])

    rate = run_epoch(4)
    # Twice: the first steps are slow, so their rate gives too few images.
    for seconds in (SECONDS / 6, SECONDS):
        rate = run_epoch(round(seconds * rate / training.batch_size))
    recognizer = Recognizer(TorchEngine(trainer.model, device))
    files = [encode_png(drawing.image) for drawing in drawings]
    readings = recognizer.read_all(cycle(files))
    list(islice(readings, DRAWN))
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        count += len(list(islice(readings, JOBS_PER_SLICE)))
    return Speed(describe_device(device), rate, count / (time.perf_counter() - started))
