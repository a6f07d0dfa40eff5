"""The same seed on the same machine gives the same bytes, twice: images, shards and weights."""

from pathlib import Path

from conftest import DRAWN_ALIKE, contents, run_elsewhere


def _run_all_steps(folder: Path, number: int, soak: bool) -> dict[str, bytes]:
    """Return all that generate, prepare and train make there, except what tells of time."""
    images, preset = f"--count 120 {' '.join(DRAWN_ALIKE)}", "--preset tiny"
    shards, run = folder / "shards", folder / "run"
    if soak:
        images, preset = "--count 5000", ""
    run_elsewhere(
        f"generate --out {folder}/images --seed 3 --workers {number} --quiet {images}",
        f"prepare {folder}/images --out {shards} --seed 3 --workers {number} {preset}",
        f"train --data {shards} --out {run} --seed 3 --epochs 1 --device cpu {preset}",
        PYTHONHASHSEED=str(number),  # by which Python orders sets
    )
    files = contents(folder)
    assert b'"inputs_sha256"' in files.pop("shards/manifest.json")  # it names the folder of images
    return {
        name: data
        for name, data in files.items()
        if "/run" not in f"/{name}" or name.endswith(".safetensors")
    }


def test_the_same_seed_gives_the_same_bytes_twice_however_many_workers_there_are(
    tmp_path, soak, figure
):
    first, second = (_run_all_steps(tmp_path / str(number), number, soak) for number in (1, 2))
    assert first == second
    counts = [
        f"{sum(name.startswith(kind) for name in first)} in {kind}"
        for kind in ("images/", "shards/", "run/")
    ]
    figure(f"byte-equal files: {', '.join(counts)}")
