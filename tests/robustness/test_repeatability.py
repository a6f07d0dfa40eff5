"""The same seed on the same machine gives the same bytes, twice: images, shards and weights."""

import os
import subprocess
import sys
from pathlib import Path

from killing import contents

SMALL = "--length 2 --charset digits --size 48x16 --font-sizes 14"


def ocr(words: str, hash_seed: int) -> None:
    """A command in a process of its own, in which Python orders sets by another chance."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "captcha_ocr", *words.split(), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def all_steps(folder: Path, number: int, soak: bool) -> dict[str, bytes]:
    """Everything that generate, prepare and train make there, but for what tells of time."""
    folder.mkdir()
    images, workers = ("--count 5000", number) if soak else (f"--count 120 {SMALL}", number)
    size = "" if soak else "--size 48x16"
    ocr(f"generate --out {folder}/images --seed 3 --workers {workers} {images}", number)
    ocr(f"prepare {folder}/images --out {folder}/shards --seed 3 --workers {workers} {size}", number)
    ocr(f"train --data {folder}/shards --out {folder}/run --seed 3 --epochs 1 --device cpu", number)
    found = contents(folder)
    manifest = found.pop("shards/manifest.json")  # which names the folder of images
    assert b'"inputs_sha256"' in manifest
    return {name: data for name, data in found.items() if "/run" not in f"/{name}" or name.endswith(".safetensors")}


def test_the_same_seed_gives_the_same_bytes_twice_however_many_workers_there_are(tmp_path, soak, figure):
    first, second = (all_steps(tmp_path / str(number), number, soak) for number in (1, 2))
    assert first == second
    kinds = ("images/", "shards/", "run/")
    counts = ", ".join(f"{sum(name.startswith(kind) for name in first)} in {kind}" for kind in kinds)
    figure(f"byte-equal files: {counts}")
