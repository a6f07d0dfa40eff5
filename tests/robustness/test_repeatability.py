"""The same seed on the same machine gives the same bytes, twice: images, shards and weights."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import DRAWN_ALIKE, contents


def ocr(words: str, hash_seed: int) -> None:
    """Run a command in its own process, in which Python orders sets by another seed."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "captcha_ocr", *words.split(), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def all_steps(folder: Path, number: int, soak: bool) -> dict[str, bytes]:
    """Return everything that generate, prepare and train make there, except what tells of time."""
    folder.mkdir()
    images, size = (
        ("--count 5000", "") if soak else (f"--count 120 {' '.join(DRAWN_ALIKE)}", "--size 48x16")
    )
    ocr(f"generate --out {folder}/images --seed 3 --workers {number} {images}", number)
    ocr(f"prepare {folder}/images --out {folder}/shards --seed 3 --workers {number} {size}", number)
    ocr(f"train --data {folder}/shards --out {folder}/run --seed 3 --epochs 1 --device cpu", number)
    found = contents(folder)
    assert b'"inputs_sha256"' in found.pop("shards/manifest.json")  # it names the folder of images
    return {
        name: data
        for name, data in found.items()
        if "/run" not in f"/{name}" or name.endswith(".safetensors")
    }


def test_the_same_seed_gives_the_same_bytes_twice_however_many_workers_there_are(
    tmp_path, soak, figure
):
    first, second = (all_steps(tmp_path / str(number), number, soak) for number in (1, 2))
    assert first == second
    counts = [
        f"{sum(name.startswith(kind) for name in first)} in {kind}"
        for kind in ("images/", "shards/", "run/")
    ]
    figure(f"byte-equal files: {', '.join(counts)}")
