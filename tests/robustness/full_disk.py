"""Commands on a small disk that fills up just before one of their writes; started by test_full_disk.py, alone on it.

    python full_disk.py SOURCE DISK SCENE MOST

SOURCE holds `work`, what is there beforehand, and command.json. The tmpfs DISK is full, or but for a page, from the Nth
time on that a file is opened to write, for every N or MOST of them. Prints how many there are as a JSON object.
"""

import contextlib
import io
import json
import os
import random
import shutil
import sys
from pathlib import Path

from killing import contents

PAGE = 4096


class Filler:
    """Fills the disk at the Nth time that a file is opened to write; before that it counts."""

    def __init__(self, disk: Path) -> None:
        self.disk, self.file = disk, disk / "filler"
        self.opened, self.at, self.pages_left, self.busy = 0, 0, 0, True
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple) -> None:
        if self.busy or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        mode = arguments[1] or ""
        if "w" in mode and os.fspath(arguments[0]).startswith(str(self.disk)):
            self.opened += 1
            if self.opened == self.at:
                self.fill()

    def fill(self) -> None:
        self.busy = True
        with open(self.file, "wb", buffering=0) as stream, contextlib.suppress(OSError):
            while stream.write(bytes(PAGE)):
                pass
        os.truncate(self.file, max(0, self.file.stat().st_size - self.pages_left * PAGE))
        self.busy = False

    @contextlib.contextmanager
    def filling(self, at: int, pages_left: int = 0):
        """Within it the disk fills at the write `at`; afterwards there is room again."""
        self.opened, self.at, self.pages_left, self.busy = 0, at, pages_left, False
        try:
            yield
        finally:
            self.busy = True
            self.file.unlink(missing_ok=True)


def run(arguments: list[str]) -> tuple[int, str]:
    """The exit status of a command, and what it said."""
    from captcha_ocr.cli.app import main

    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(arguments, standalone_mode=True)
        except SystemExit as leaving:
            return int(leaving.code or 0), errors.getvalue()
    return 0, errors.getvalue()


def still_whole(scene: str, work: Path, before: dict[str, bytes]) -> bool:
    """Whether what was there beforehand, or for a run what has been saved since, is whole."""
    from captcha_ocr.training.checkpoint import check_files, find_last
    from captcha_ocr.training.run_folder import REPLACED, check_best, read_run

    if scene == "prepare":
        return contents(work / "shards") == before
    if scene == "export":
        return contents(work / "model") == before and bool(check_files(work / "model"))
    if scene == "train --force":
        return before in (contents(work / "run"), contents(work / "run" / REPLACED))
    return bool(check_best(work / "run", read_run(work / "run")[0]) and find_last(work / "run"))


def folder_of(scene: str, work: Path) -> Path:
    """What the command writes to."""
    return work / {"export": "model", "prepare": "shards"}.get(scene, "run")


def results(scene: str, work: Path) -> dict[str, bytes]:
    """What has to be the same in the end: for a run its weights, for they are all that takes no time."""
    found = contents(folder_of(scene, work))
    return {name: data for name, data in found.items() if "train" not in scene or name.endswith(".safetensors")}


def give_network(file: Path) -> None:
    """Let every export write this network, for to make one takes long, and writes nothing."""
    import onnx

    import captcha_ocr.network.onnx_export

    network = onnx.load(file)
    captcha_ocr.network.onnx_export.to_onnx = lambda _: network


def main() -> None:
    """Fill the disk at every write, or at `most` of them, and look at what is left."""
    source, disk, scene, most = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    import torch

    import captcha_ocr.training.train
    from captcha_ocr.config import PRESETS, InputSize, NetworkConfig, Preset, TrainConfig

    torch.set_num_threads(1)
    captcha_ocr.training.loop.SECONDS_BETWEEN_CHECKPOINTS = captcha_ocr.training.train.TRIAL_SECONDS = 0.0
    PRESETS["tiny"] = Preset(
        InputSize(16, 48, 1),
        NetworkConfig(width=8, stem="3x3"),
        TrainConfig(preset="tiny", batch_size=10, patience=3),
        images_seen=96,
    )
    if scene == "export":
        give_network(source / "work" / "model" / "model.onnx")
    work = disk / "work"
    arguments = json.loads((source / "command.json").read_text())
    arguments = [word.replace("WORK", str(work)) for word in arguments]

    def begin() -> dict[str, bytes]:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(source / "work", work)
        return contents(folder_of(scene, work))

    begin()
    filler = Filler(disk)
    with filler.filling(0):
        status, said = run(arguments)
    assert status == 0, said
    writes, expected = filler.opened, results(scene, work)
    chance = random.Random(0)
    chosen = range(1, writes + 1) if writes <= most else sorted(chance.sample(range(1, writes + 1), most))
    for at in chosen:
        for pages_left in (chance.choice([0, 0, 1]), 0):
            before = begin()
            with filler.filling(at, pages_left):
                status, said = run(arguments)
            if status != 0 or pages_left == 0:  # else that page was enough
                break
        sentence = said.strip().splitlines()[-1]
        assert status == 1, f"write {at}: exit status {status}: {said}"
        assert str(disk) in sentence, f"write {at}: {said}"
        assert " bytes" in sentence, sentence
        assert "Traceback" not in said, said
        assert still_whole(scene, work, before), f"write {at} of {writes}: what was there is not whole"
        status, said = run(arguments)
        assert status == 0, f"write {at}, again: {said}"
        assert results(scene, work) == expected, f"write {at}: another result"
    json.dump({"writes": writes, "filled": len(chosen)}, sys.stdout)


if __name__ == "__main__":
    main()
