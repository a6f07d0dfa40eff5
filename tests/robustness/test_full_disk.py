"""A disk that becomes full at a write: the older result stays, and a sentence says why.

The test starts this file as a script that has a tmpfs of its own: SOURCE (the folder before each
command), DISK, MOST. The disk becomes full when a command opens a file to write for the Nth time;
for every N, or for MOST of them. The script prints the numbers of writes as a JSON object.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
from conftest import contents, draw, invoke, naming, skip_without_small_disks, small_disk

from captcha_ocr.network import onnx_export
from captcha_ocr.training import reporting
from captcha_ocr.training.run import recorder
from captcha_ocr.training.run.folder import REPLACED, check_best, find_last, read_run

COMMANDS = {  # the words of each command, and what it writes
    "prepare": ("{work}/images --preset tiny --seed 1 --force --workers 1 --quiet --out", "shards"),
    "train": ("--data {work}/shards --preset tiny --epochs 4 --device cpu --quiet --out", "run"),
    "train --force": (
        "--data {work}/shards --preset tiny --seed 1 --device cpu --quiet --out",
        "run",
    ),
    "export": ("{work}/others --model", "model"),
}


def test_a_disk_that_fills_at_any_write(
    images, shards, run, exported, tmp_path_factory, soak, figure
):
    disk, source = tmp_path_factory.mktemp("disk"), tmp_path_factory.mktemp("source")
    skip_without_small_disks(disk)
    for name, folder in {"images": images, "shards": shards, "run": run, "model": exported}.items():
        shutil.copytree(folder, source / name)
    draw(source / "others", seed=2, count=10)  # so that the older config.json is not the new one
    most = 10_000 if soak else 1
    script = f"'{sys.executable}' '{__file__}' '{source}' '{disk}' {most}"
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        small_disk(disk, script),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    writes = json.loads(done.stdout)
    assert all(writes[scene] for scene in COMMANDS)
    figure(f"full at {most:,} at most of {writes}: older result whole, exit 1, then as undisturbed")


class Filler:
    """Fill the disk when a file on it is opened to write for the Nth time."""

    def __init__(self, disk: Path) -> None:
        self.disk, self.work, self.file = disk, disk / "work", disk / "filler"
        self.opened = self.at = 0
        sys.addaudithook(self.hear)

    def fill_at(self, at: int) -> None:
        """Free the disk, and fill it at the write `at`, or at none where that is 0."""
        self.file.unlink(missing_ok=True)
        self.opened, self.at = 0, at

    def hear(self, event: str, arguments: tuple) -> None:
        is_writing = event == "open" and not {*"wx"}.isdisjoint(arguments[1] or "")
        if is_writing and str(arguments[0]).startswith(str(self.work)):
            self.opened += 1
            if self.opened == self.at:
                with open(self.file, "wb") as stream:
                    os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(self.disk).free)


def fill_at_writes(scene: str, source: Path, filler: Filler, most: int) -> int:
    """Fill the disk at every write, or at some, check what is left, and return their number."""
    words, name = COMMANDS[scene]
    work, written = filler.work, filler.work / name
    arguments = [*scene.split(), *words.format(work=work).split(), written]

    def begin() -> dict[str, bytes]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source, work)
        return contents(written)

    def finish() -> dict[str, bytes]:
        """Return what it writes; of a run only the weights, because the rest tells of time."""
        result = invoke(*arguments)
        assert result.exit_code == 0, f"{scene}: {result.stderr}"
        files = contents(written)
        kept = [file for file in files if name != "run" or file.endswith(".safetensors")]
        return {file: files[file] for file in kept}

    begin()
    filler.fill_at(0)
    expected, writes = finish(), filler.opened
    for at in sorted(random.Random(0).sample(range(1, writes + 1), min(most, writes))):
        before = begin()
        filler.fill_at(at)
        result = invoke(*arguments)
        filler.fill_at(0)
        where = f"{scene}, write {at} of {writes}: {result.exception} {result.stderr}"
        assert (type(result.exception), result.exit_code) == (SystemExit, 1), where
        assert re.search(naming(filler.disk, " bytes"), result.stderr.splitlines()[-1]), where
        if scene == "train":  # what it has saved since is whole
            assert check_best(written, read_run(written)[0]), where
            assert find_last(written), where
        else:
            assert before in (contents(written), contents(written / REPLACED)), where
        assert finish() == expected, where
    return writes


def main() -> None:
    source, filler, most = Path(sys.argv[1]), Filler(Path(sys.argv[2])), int(sys.argv[3])
    recorder.SECONDS_BETWEEN_CHECKPOINTS = reporting.TRIAL_SECONDS = 0.0
    # Which takes long, and writes nothing while it makes the network.
    network = onnx.load(source / "model" / "model.onnx")
    onnx_export.to_onnx = lambda *_: network
    writes = {scene: fill_at_writes(scene, source, filler, most) for scene in COMMANDS}
    json.dump(writes, sys.stdout)


if __name__ == "__main__":
    main()
