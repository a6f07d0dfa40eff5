"""The source recipe's preparation, restated: what `bench.py prepare` is measured against.

    python benchmarks/naive.py IMAGES OUT

One process; every image resized, made float32 and stacked; one-hot labels; shards of 1,000 images,
each split 80/10/10 by itself, saved by torch and compressed at gzip's highest level.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
PLACES, SIZE, SHARD = 4, (56, 24), 1000


def sample_of(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """The pixels, (3, 24, 56) float32 in [0, 1], and the one-hot text, (144) float32, of `NNNNN-TEXT.png`."""
    with Image.open(path) as image:
        pixels = np.array(image.resize(SIZE).convert("RGB"))
    text = path.stem.split("-")[1].lower()
    one_hot = torch.zeros(PLACES * len(CHARACTERS))
    for place, character in enumerate(text):
        one_hot[place * len(CHARACTERS) + CHARACTERS.index(character)] = 1
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255.0, one_hot


def prepare(images: Path, out: Path) -> None:
    """Write `training`, `validating` and `testing` shards of all whole thousands of images."""
    out.mkdir(parents=True, exist_ok=True)
    paths = sorted(images.glob("*.png"))
    for number in range(len(paths) // SHARD):
        samples = [sample_of(path) for path in paths[number * SHARD : (number + 1) * SHARD]]
        pixels, texts = (torch.stack(part) for part in zip(*samples, strict=True))
        order = torch.randperm(SHARD)
        for name, rows in (("training", order[:800]), ("validating", order[800:900]), ("testing", order[900:])):
            with gzip.open(out / f"{name}_set.{number}.pt", "wb") as stream:
                torch.save((pixels[rows], texts[rows]), stream)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]), Path(sys.argv[2]))
