"""A disk that becomes full at a write of prepare, train or export: the older result stays, and a sentence says why.

The test starts this file as a script that has a tmpfs of its own: SOURCE (the folder before the command), DISK, SCENE,
MOST, COMMAND... The disk becomes full when the command opens a file to write for the Nth time; for every N, or for MOST
of them. The script prints their number as a JSON object.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TINY, contents, draw, invoke, naming, skip_without_small_disks, small_disk

import captcha_ocr.network.onnx_export
import captcha_ocr.training.reporting
import captcha_ocr.training.run.recorder
from captcha_ocr.options.training import PRESETS
from captcha_ocr.training.run.checkpoint import find_last
from captcha_ocr.training.run.folder import REPLACED, check_best, read_run

COMMANDS = {
    "prepare": "prepare WORK/images --out WORK/shards --preset tiny --seed 1 --force --quiet --workers 1",
    "train": "train --data WORK/shards --out WORK/run --preset tiny --epochs 4 --device cpu --quiet",
    "train --force": "train --data WORK/shards --out WORK/run --preset tiny --seed 1 --force --device cpu --quiet",
    "export": "export WORK/images --model WORK/model",
}


@pytest.fixture(scope="module")
def disk(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("disk")
    skip_without_small_disks(folder)
    return folder


@pytest.mark.parametrize("scene", COMMANDS)
def test_a_disk_that_fills_at_any_write(
    scene, disk, images, shards, run, exported, tmp_path, soak, figure
):
    source = tmp_path / "source"
    if scene == "export":
        shutil.copytree(exported, source / "model")
        draw(
            source / "images", seed=2, count=10
        )  # others, so that the older config.json is not the new one
    else:
        for name, folder in {"images": images, "shards": shards, "run": run}.items():
            shutil.copytree(folder, source / name)
    most = 10_000 if soak else 1 if scene.startswith("train") else 2
    script = (
        f"'{sys.executable}' '{__file__}' '{source}' '{disk}' '{scene}' {most} {COMMANDS[scene]}"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(small_disk(disk, script), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["filled"] == min(most, counts["writes"])
    figure(
        f"full at {counts['filled']} of {counts['writes']} writes: older result whole, exit 1, then as undisturbed"
    )


class Filler:
    """Fill the disk when a file on it is opened to write for the Nth time."""

    def __init__(self, disk: Path) -> None:
        self.disk, self.file = str(disk), disk / "filler"
        self.opened = self.at = 0
        sys.addaudithook(self.hear)

    def fill_at(self, at: int) -> None:
        """Free the disk, and fill it at the write `at`, or at none where that is 0."""
        self.file.unlink(missing_ok=True)
        self.opened, self.at = 0, at

    def hear(self, event: str, arguments: tuple) -> None:
        path = str(arguments[0]) if event == "open" and "w" in (arguments[1] or "") else ""
        if path.startswith(self.disk) and path != str(self.file):
            self.opened += 1
            if self.opened == self.at:
                with open(self.file, "wb", buffering=0) as stream, contextlib.suppress(OSError):
                    while stream.write(bytes(4096)):
                        pass


def still_whole(scene: str, written: Path, before: dict[str, bytes]) -> bool:
    """Whether the older result is whole, or, for a run, what it has saved since."""
    if scene == "train":
        return bool(check_best(written, read_run(written)[0]) and find_last(written))
    return before == contents(written) or (
        scene == "train --force" and before == contents(written / REPLACED)
    )


def main() -> None:
    """Fill the disk at every write, or at MOST of them, and check what is left."""
    source, disk, scene, most = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    captcha_ocr.training.run.recorder.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    captcha_ocr.training.reporting.TRIAL_SECONDS = 0.0
    PRESETS["tiny"] = TINY
    if scene == "export":  # which takes long, and writes nothing while it makes the network
        import onnx

        network = onnx.load(source / "model" / "model.onnx")
        captcha_ocr.network.onnx_export.to_onnx = lambda _: network
    work = disk / "work"
    written = work / {"export": "model", "prepare": "shards"}.get(scene, "run")
    arguments = [word.replace("WORK", str(work)) for word in sys.argv[5:]]

    def begin() -> dict[str, bytes]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work)
        return contents(written)

    def results() -> dict[str, bytes]:  # for a run only its weights, because the rest tells of time
        found = contents(written)
        return {
            name: data
            for name, data in found.items()
            if "train" not in scene or name.endswith(".safetensors")
        }

    begin()
    filler = Filler(disk)
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    writes, expected = filler.opened, results()
    chosen = sorted(random.Random(0).sample(range(1, writes + 1), min(most, writes)))
    for at in chosen:
        before = begin()
        filler.fill_at(at)
        result = invoke(*arguments)
        filler.fill_at(0)
        assert isinstance(result.exception, SystemExit), f"write {at}: {result.exception}"
        assert result.exit_code == 1, f"write {at}: {result.stderr}"
        assert re.search(naming(disk, " bytes"), result.stderr.splitlines()[-1]), (
            f"write {at}: {result.stderr}"
        )
        assert still_whole(scene, written, before), (
            f"write {at} of {writes}: the older result is not whole"
        )
        result = invoke(*arguments)
        assert result.exit_code == 0, f"write {at}, again: {result.stderr}"
        assert results() == expected, f"write {at}: another result"
    json.dump({"writes": writes, "filled": len(chosen)}, sys.stdout)


if __name__ == "__main__":
    main()
