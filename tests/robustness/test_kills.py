"""Commands that a signal ends in the middle, and that a user then repeats, end as if nobody had touched them."""

import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import DRAWN_ALIKE, contents, invoke

from captcha_ocr.data.shards import check_shards, read_manifest
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import STATE_FILE
from captcha_ocr.system.files import TEMPORARY
from captcha_ocr.training.run.checkpoint import LAST, PREVIOUS, check_files

RESULTS = ("best/model.safetensors", "last/model.safetensors", "last/optimizer.safetensors")
ENDS = {  # the signals in turn, and how many with --soak, else one
    "inside the saving": ([None], 50),
    "SIGKILL": ([signal.SIGKILL], 50),
    "SIGINT and SIGTERM": ([signal.SIGINT, signal.SIGTERM], 40),
}
# `captcha-ocr`, with a checkpoint several times a second and the shortest trial.
BETWEEN_CHECKPOINTS_S = 0.3
COMMAND = f"""
import sys
if sys.argv[1] == "train":
    from captcha_ocr.training import reporting
    from captcha_ocr.training.run import recorder
    recorder.SECONDS_BETWEEN_CHECKPOINTS, reporting.TRIAL_SECONDS = {BETWEEN_CHECKPOINTS_S}, 0.0
from captcha_ocr.cli.app import main
main()
"""
# Code before it: the process kills itself just before the Nth operation that changes files or folders;
# otherwise it prints how many operations there were.
DYING = """
import atexit, os, signal, sys
last, done = int(sys.argv.pop()), 0
def watch(event, arguments):
    global done
    writing = event == "open" and ("w" in (arguments[1] or "") or "+" in (arguments[1] or ""))
    if writing or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
        done += 1
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
atexit.register(lambda: print(done, file=sys.stderr))
"""


@dataclass
class Command:
    """A captcha-ocr command, the folder that it writes, a file that appears when its work begins, and its end."""

    arguments: list[str]
    out: Path
    begins_with: Path
    has_ended: Callable[[int], bool]  # by its exit status

    def start(self, dying_at: int | None = None) -> subprocess.Popen[str]:
        """Start it; it kills itself at an operation on files, where one is named."""
        code = COMMAND if dying_at is None else DYING + COMMAND
        words = [
            sys.executable,
            "-c",
            code,
            *self.arguments,
            *([] if dying_at is None else [str(dying_at)]),
        ]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self) -> None:
        """Run it to its end, and check that it succeeds."""
        with self.start() as process:
            _, errors = process.communicate()
        assert process.returncode == 0, errors

    def measure(self, watched: Path) -> SimpleNamespace:
        """Return the seconds of its work, its operations on files, and the longest time that a file stays as it is."""
        with self.start(dying_at=10**9) as process:
            self.wait(process)
            moments = [begun := time.time()]
            while process.poll() is None:
                with contextlib.suppress(FileNotFoundError):
                    moments.append(max(moments[-1], watched.stat().st_mtime))
                time.sleep(0.002)
            _, errors = process.communicate()
        assert process.returncode == 0, errors
        operations, between_s = (
            int(errors.splitlines()[-1]),
            max(b - a for a, b in pairwise(moments)),
        )
        return SimpleNamespace(
            seconds=time.time() - begun, operations=operations, between_s=between_s
        )

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Wait until its work begins."""
        while process.poll() is None and not self.begins_with.exists():
            time.sleep(0.005)

    def end(self, sent: signal.Signals | None, measured: SimpleNamespace, generator: random.Random):
        """Send a signal at any moment, or let it kill itself while it saves, until that is not too late.

        Return its exit status, and the seconds from the signal to its end.
        """
        while True:
            shutil.rmtree(self.out, ignore_errors=True)
            with self.start(None if sent else generator.randint(1, measured.operations)) as process:
                self.wait(process)
                begun = now = time.monotonic()
                if sent:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(generator.uniform(0, measured.seconds))
                    now = time.monotonic()
                    process.send_signal(sent)
                process.communicate()
            if not self.has_ended(process.returncode):
                return process.returncode, time.monotonic() - now if sent else 0.0
            if sent:
                measured.seconds = now - begun  # the machine had another load when it was measured


def draw(folder: Path, count: int) -> Path:
    assert (
        invoke("generate", "--out", folder, "--count", count, *DRAWN_ALIKE, "--quiet").exit_code
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def many_images(soak, tmp_path_factory) -> Path:
    """Images for several shards."""
    return draw(tmp_path_factory.mktemp("kills") / "images", 2500 if soak else 1100)


@pytest.mark.parametrize("way", ["inside the saving", "at any moment"])
def test_prepare_that_was_killed_and_repeated_gives_the_same_bytes(
    many_images, tmp_path, soak, figure, way
):
    def prepare(out: Path) -> Command:
        workers = "1" if way == "inside the saving" else "2"  # only one process can kill itself
        words = [
            "prepare",
            "--size",
            "48x16",
            "--quiet",
            "--workers",
            workers,
            str(many_images),
            "--out",
            str(out),
        ]
        return Command(words, out, out / ("new" + TEMPORARY), lambda status: status == 0)

    generator, kills = random.Random(3), 100 if soak else 2
    measured = prepare(tmp_path / "whole").measure(tmp_path / "whole" / "manifest.json")
    for number in range(kills):
        command = prepare(tmp_path / str(number))
        status, _ = command.end(signal.SIGKILL if "moment" in way else None, measured, generator)
        assert status == -signal.SIGKILL
        if (command.out / "manifest.json").exists():  # without it nobody takes them for shards
            check_shards(command.out, read_manifest(command.out).shards)
        command.finish()
        assert contents(command.out) == contents(tmp_path / "whole")
        shutil.rmtree(command.out)
    figure(
        f"{kills} of {kills} byte-equal ({measured.operations} operations on files, {measured.seconds:.1f} s)"
    )


def training(shards: Path, out: Path, epochs: int) -> Command:
    options = ["--epochs", str(epochs), "--batch-size", "32", "--device", "cpu", "--quiet"]

    def has_ended(_: int) -> bool:
        return (out / "run.json").exists() and json.loads((out / "run.json").read_bytes())[
            "finished"
        ] is not None

    return Command(
        ["train", "--data", str(shards), "--out", str(out), *options],
        out,
        out / "metrics.jsonl",
        has_ended,
    )


@pytest.fixture(scope="module")
def undisturbed(soak, tmp_path_factory) -> tuple[Path, int, SimpleNamespace, list[bytes]]:
    """Shards, and for an undisturbed training on them its epochs, what is measured, and its results."""
    folder, epochs = tmp_path_factory.mktemp("kills"), 4 if soak else 2
    images, shards, out = (
        draw(folder / "images", 800 if soak else 200),
        folder / "shards",
        folder / "run",
    )
    assert invoke("prepare", "--size", "48x16", "--quiet", images, "--out", shards).exit_code == 0
    measured = training(shards, out, epochs).measure(out / LAST / "config.json")
    return shards, epochs, measured, [(out / name).read_bytes() for name in RESULTS]


def training_lost_s(out: Path, epochs: int) -> float:
    """Return the age of the newest whole checkpoint, in seconds.

    0 where there is none yet, or where it holds the whole training: only scoring and drawing follow.
    """
    for folder in (out / LAST, out / PREVIOUS):
        if folder.exists():
            try:
                check_files(folder)
            except CaptchaOcrError:
                continue
            age_s = time.time() - (folder / "config.json").stat().st_mtime
            return (
                age_s
                if json.loads((folder / STATE_FILE).read_bytes())["progress"]["epoch"] < epochs
                else 0.0
            )
    return 0.0


@pytest.mark.parametrize("way", ENDS)
def test_training_that_was_ended_and_repeated_gives_the_same_bits(
    undisturbed, tmp_path, soak, figure, way
):
    generator, (signals, ends) = random.Random(3), ENDS[way] if soak else (ENDS[way][0], 1)
    (shards, epochs, measured, expected), slowest_s, most_lost_s = undisturbed, 0.0, 0.0
    measured_now = copy(measured)
    for number in range(ends):
        sent = signals[number % len(signals)]
        command = training(shards, tmp_path / str(number), epochs)
        status, took_s = command.end(sent, measured_now, generator)
        assert status == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(sent, -signal.SIGKILL)
        lost_s = (
            training_lost_s(command.out, epochs) - took_s
        )  # SIGINT and SIGTERM save before they end it
        slowest_s, most_lost_s = max(slowest_s, took_s), max(most_lost_s, lost_s)
        command.finish()
        assert [(command.out / name).read_bytes() for name in RESULTS] == expected
        shutil.rmtree(command.out)
    figure(
        f"{ends} of {ends} bit-identical ({measured.operations} operations on files, {measured.seconds:.1f} s); "
        f"{most_lost_s:.2f} s of training lost at most, a checkpoint being due every {BETWEEN_CHECKPOINTS_S} s and "
        f"undisturbed written within {measured.between_s:.2f} s of the one before; {slowest_s:.1f} s to end at most"
    )
    assert (
        not soak or most_lost_s < 2 * BETWEEN_CHECKPOINTS_S
    )  # the interval, and the time that writing takes
