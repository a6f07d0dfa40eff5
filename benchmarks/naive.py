"""The recipe that this project began with, as a baseline for `bench.py`.

    python benchmarks/naive.py prepare IMAGES OUT
    python benchmarks/naive.py train DATA EPOCHS [DEVICE]    one JSON line an epoch
    python benchmarks/naive.py eval IMAGES [DEVICE]          one JSON line

It uses one process. Prepare: resize every image, convert it to float32 and stack; one-hot labels;
shards of 1,000 images, each split 80/10/10, saved by torch and compressed at gzip's highest level.
Train: float32, channels first, minibatches of 100, Adam at 1e-3, binary cross-entropy of softmax
probabilities, the accuracy fetched after each minibatch, all shards read again every epoch. Eval:
one image after the other.
"""

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
POSITIONS, SIZE, SHARD, MINIBATCH = 4, (56, 24), 1000, 100


def pixels_of(path: Path) -> Tensor:
    """Return the pixels of an image file, (3, 24, 56) float32 in [0, 1]."""
    with Image.open(path) as image:
        pixels = np.array(image.resize(SIZE).convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255.0


def sample_of(path: Path) -> tuple[Tensor, Tensor]:
    """Return the pixels and the one-hot text (144,) float32 of `NNNNN-TEXT.png`."""
    one_hot = torch.zeros(POSITIONS * len(CHARACTERS))
    for position, character in enumerate(path.stem.split("-")[1].lower()):
        one_hot[position * len(CHARACTERS) + CHARACTERS.index(character)] = 1
    return pixels_of(path), one_hot


def prepare(images: Path, out: Path) -> None:
    """Write `training`, `validating` and `testing` shards, and drop the images beyond whole
    thousands.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = sorted(images.glob("*.png"))
    for number in range(len(paths) // SHARD):
        samples = [sample_of(path) for path in paths[number * SHARD : (number + 1) * SHARD]]
        pixels, texts = (torch.stack(part) for part in zip(*samples, strict=True))
        order = torch.randperm(SHARD)
        for name, rows in (
            ("training", order[:800]),
            ("validating", order[800:900]),
            ("testing", order[900:]),
        ):
            with gzip.open(out / f"{name}_set.{number}.pt", "wb") as stream:
                torch.save((pixels[rows], texts[rows]), stream)


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.shortcut(x))


class Network(nn.Module):
    """ResNet-18 at full resolution: images to probabilities (B, 144)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 3, 1, 1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        ]
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(512, POSITIONS * len(CHARACTERS))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.features(x).mean((2, 3)))
        return logits.view(-1, POSITIONS, len(CHARACTERS)).softmax(2).flatten(1)


def shards_of(data: Path, name: str, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the shards of one split, read from disk."""
    for path in sorted(data.glob(f"{name}_set.*.pt")):
        with gzip.open(path, "rb") as stream:
            pixels, texts = torch.load(stream, weights_only=True)
        yield pixels.to(device), texts.to(device)


def exact_matches(probabilities: Tensor, texts: Tensor) -> Tensor:
    """Return which texts are exact matches, (B,) bool."""
    shape = (-1, POSITIONS, len(CHARACTERS))
    return (probabilities.view(shape).argmax(2) == texts.view(shape).argmax(2)).all(1)


def train(data: Path, epochs: int, device: str) -> None:
    """Train, and print a JSON line for each epoch."""
    torch.manual_seed(0)
    network = Network().to(device)
    optimizer, loss_function = torch.optim.Adam(network.parameters(), lr=1e-3), nn.BCELoss()
    began = time.perf_counter()
    for epoch in range(1, epochs + 1):
        network.train()
        started, count, accuracies = time.perf_counter(), 0, []
        for pixels, texts in shards_of(data, "training", device):
            for first in range(0, len(pixels), MINIBATCH):
                x, y = pixels[first : first + MINIBATCH], texts[first : first + MINIBATCH]
                probabilities = network(x)
                loss = loss_function(probabilities, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                accuracies.append(exact_matches(probabilities, y).float().mean().item())
                count += len(x)
        rate = count / (time.perf_counter() - started)
        network.eval()
        with torch.no_grad():
            exact = [
                exact_matches(network(x), y).float().mean().item()
                for x, y in shards_of(data, "validating", device)
            ]
        row = {
            "epoch": epoch,
            "seconds": time.perf_counter() - began,
            "images_per_s": rate,
            "training_exact": sum(accuracies) / len(accuracies),
            "validation_exact": sum(exact) / len(exact),
        }
        print(json.dumps(row), flush=True)


def read(images: Path, device: str) -> None:
    """Read the images one by one, and print the images per second after the first hundred."""
    network = Network().to(device).eval()
    paths = sorted(images.glob("*.png"))
    with torch.no_grad():
        for number, path in enumerate(paths):
            if number == MINIBATCH:
                started = time.perf_counter()
            network(pixels_of(path)[None].to(device)).argmax(1).tolist()
    print(json.dumps({"images_per_s": (len(paths) - MINIBATCH) / (time.perf_counter() - started)}))


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (
        ("prepare", ("source", "out")),
        ("train", ("source", "epochs")),
        ("eval", ("source",)),
    ):
        command = commands.add_parser(name)
        for word in words:
            command.add_argument(word, type=int if word == "epochs" else Path)
        if name != "prepare":
            command.add_argument("device", nargs="?", default="cpu")
    arguments = parser.parse_args()
    pattern, needed = ("training_set.*.pt", 1) if arguments.command == "train" else ("*.png", SHARD)
    if len(list(arguments.source.glob(pattern))) < needed:
        parser.error(f"{arguments.source} holds no {needed:,} files {pattern}")
    if arguments.command == "prepare":
        prepare(arguments.source, arguments.out)
    elif arguments.command == "train":
        train(arguments.source, arguments.epochs, arguments.device)
    else:
        read(arguments.source, arguments.device)


if __name__ == "__main__":
    main()
