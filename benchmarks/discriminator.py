"""Test whether a network can distinguish our renderer's images from the captcha package's.

    python benchmarks/discriminator.py [--images 40000] [--unseen 10000] [--epochs 4]

Each draws half of the images, with its own texts and random numbers, in colour and at full size. A small ResNet-18 is
trained to distinguish them, and scored on unseen images. The control is the package's warp against the classic one,
which differs. Prints a JSON line for each pair.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from bench import end_cleanly

from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig, TrainConfig
from captcha_ocr.data.images import to_array
from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.fast_renderer import render
from captcha_ocr.generation.package_renderer import render_by_package
from captcha_ocr.network.device import choose_device, keep_freed_memory
from captcha_ocr.system.parallel import map_jobs
from captcha_ocr.training.batches import BatchPartition, ResidentBatches
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.evaluate import evaluate
from captcha_ocr.training.trainer import Trainer

SIZE = InputSize(height=60, width=160, channels=3)
PACKAGE, CLASSIC = GeneratorConfig(seed=10), GeneratorConfig(seed=11, warp="classic")
PAIRS = {
    "our renderer or the package's": ((render_by_package, PACKAGE), (render, replace(PACKAGE, seed=12))),
    "control, the package's drawing or the classic warp": ((render, PACKAGE), (render, CLASSIC)),
}

Job = tuple[Callable, GeneratorConfig, range]


def draw(job: Job) -> np.ndarray:
    """Draw some images, (N, 3, 60, 160) uint8."""
    renderer, config, indices = job
    return np.stack([to_array(renderer(config, index)[1], SIZE) for index in indices])


def draw_both(pair: tuple[tuple, tuple], numbers: range) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw as many images of each kind, and label them (N, 1) with their kind."""
    blocks = [numbers[first : first + 500] for first in range(0, len(numbers), 500)]
    kinds = [np.concatenate(list(map_jobs(draw, [(*kind, block) for block in blocks]))) for kind in pair]
    labels = torch.arange(2).repeat_interleave(len(numbers))[:, None]
    return torch.from_numpy(np.concatenate(kinds)), labels


def tell_apart(pair: tuple[tuple, tuple], images: int, unseen: int, epochs: int) -> dict[str, object]:
    """Train on a pair, and score on unseen images of it."""
    device = choose_device()
    training = ResidentBatches(*(part.to(device) for part in draw_both(pair, range(images // 2))))
    config = ModelConfig(Charset("01"), Lengths(1, 1), SIZE, NetworkConfig(width=16, normalise=False))
    options = TrainConfig(epochs=epochs)
    partition = BatchPartition(len(training), options.batch_size, ProcessGroup(device))
    trainer, seen = Trainer(config, options, partition), []
    for _ in range(epochs):
        seen.append(trainer.run_epoch(training, quiet=True)["training_exact"])
        trainer.end_epoch()
    test = ResidentBatches(*(part.to(device) for part in draw_both(pair, range(10**6, 10**6 + unseen // 2))))
    scores = evaluate(trainer.model, test.in_order(250))
    return {"unseen": scores.images, "right": scores.exact_match, "interval": scores.interval, "training": seen[-1]}


def main() -> None:
    """Train on both pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40_000)
    parser.add_argument("--unseen", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=4)
    arguments = parser.parse_args()
    if min(arguments.images, arguments.unseen) < 200 or arguments.epochs < 1:
        parser.error("--images and --unseen must be at least 200, and --epochs at least 1")
    end_cleanly()
    keep_freed_memory()
    for name, pair in PAIRS.items():
        result = tell_apart(pair, arguments.images, arguments.unseen, arguments.epochs)
        print(json.dumps({"which": name, **result}), flush=True)


if __name__ == "__main__":
    main()
