"""A disk that fills up at any write of prepare, train and export: the older result stays, and a sentence says why."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import draw

SCRIPT = Path(__file__).parent / "full_disk.py"
AS_ROOT = [] if os.name == "posix" and os.geteuid() == 0 else ["--user", "--map-root-user"]
COMMANDS = {
    "prepare": "prepare WORK/images --out WORK/shards --preset tiny --seed 1 --force --quiet --workers 1",
    "train": "train --data WORK/shards --out WORK/run --preset tiny --epochs 4 --device cpu --quiet",
    "train --force": "train --data WORK/shards --out WORK/run --preset tiny --seed 1 --force --device cpu --quiet",
    "export": "export WORK/images --model WORK/model",
}


def small_disk(folder: Path, script: str) -> list[str]:
    """A command that runs a shell script with a tmpfs of 16 MB at `folder`, which nobody else sees."""
    mount = f"mount -t tmpfs -o size=16m tmpfs '{folder}' && {script}"
    return ["unshare", *AS_ROOT, "--mount", "sh", "-c", mount]


@pytest.fixture(scope="module")
def disk(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    if shutil.which("unshare") is None or subprocess.run(small_disk(folder, "true"), capture_output=True).returncode:
        pytest.skip("a small disk can be had on Linux alone, by those who may use unshare")
    return folder


@pytest.mark.parametrize("scene", COMMANDS)
def test_a_disk_that_fills_at_any_write(scene, disk, images, shards, run, exported, tmp_path, soak, figure):
    work = tmp_path / "source" / "work"
    if scene == "prepare":
        shutil.copytree(images, work / "images")
    if scene != "export":
        shutil.copytree(shards, work / "shards")
    if scene.startswith("train"):
        shutil.copytree(run, work / "run")
    if scene == "export":
        shutil.copytree(exported, work / "model")
        draw(work / "images", seed=2, count=10)  # others, so that the older config.json is not the new one
    (tmp_path / "source" / "command.json").write_text(json.dumps(COMMANDS[scene].split()))
    most = 10_000 if soak else 2
    script = f"'{sys.executable}' '{SCRIPT}' '{tmp_path / 'source'}' '{disk}' '{scene}' {most}"
    done = subprocess.run(small_disk(disk, script), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["filled"] == min(most, counts["writes"]) > 1
    figure(f"full at {counts['filled']} of {counts['writes']} writes: older result whole, exit 1, then as undisturbed")
