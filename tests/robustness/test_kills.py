"""Commands that a signal ends in the middle, and that a user then repeats, end as if undisturbed.

`label` has every acknowledged label on the disk, whatever kills it.
"""

import contextlib
import http.client
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import DRAWN_ALIKE, contents, invoke

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.shards import check_shards, read_dataset
from captcha_ocr.inference.model_folder import STATE_FILE
from captcha_ocr.system.files import TEMPORARY
from captcha_ocr.training.run.folder import find_last, read_run

RESULTS = ("best/model.safetensors", "last/model.safetensors", "last/optimizer.safetensors")
NEVER = 10**9
BETWEEN_CHECKPOINTS_S = 0.3
# `captcha-ocr`, with a checkpoint several times a second, the shortest trial and small shards.
# The process counts the operations that change files or folders in `done`, and kills itself just
# before number `last`.
COMMAND = f"""
import os, signal, sys
def watch(event, arguments):
    writing = event == "open" and not set("wx+").isdisjoint(arguments[1] or "")
    if writing or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
        done.value += 1
        if done.value == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
if words[0] == "train":
    from captcha_ocr.training import reporting
    from captcha_ocr.training.run import recorder
    recorder.SECONDS_BETWEEN_CHECKPOINTS, reporting.TRIAL_SECONDS = {BETWEEN_CHECKPOINTS_S}, 0.0
else:
    from captcha_ocr.data import prepare
    prepare.SAMPLES_PER_SHARD = prepare.IMAGES_PER_JOB = 64
from captcha_ocr.cli.app import main
main(words)
"""
# Its processes are forks of one that has imported torch.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["captcha_ocr.training.train", "captcha_ocr.cli.commands.data"])


@dataclass
class Command:
    """A command, the folder that it writes, what appears there when its work begins, its end."""

    words: str
    out: Path
    begins_with: str
    has_ended: Callable[[int], bool]  # by its exit status
    done: object = field(default_factory=lambda: FORKS.Value("q", lock=False))

    def run(
        self, dying_at: int = NEVER, sent: signal.Signals | None = None, after_s: float = 0
    ) -> tuple[int, float]:
        """Run it to its end, or to a signal after some time of work, or to an operation.

        Return its exit status, and the seconds of its work.
        """
        self.done.value = 0
        words = [*self.words.split(), "--quiet", "--out", str(self.out)]
        given = {"words": words, "last": dying_at, "done": self.done}
        process = FORKS.Process(target=exec, args=(COMMAND, given))
        process.start()
        while process.is_alive() and not any(self.out.glob(self.begins_with)):
            time.sleep(0.005)
        begun = time.monotonic()
        if sent:
            process.join(after_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, sent)
        process.join()
        return process.exitcode, time.monotonic() - begun

    def finish(self) -> tuple[float, int]:
        """Run it to its end; return the seconds of its work, and its operations on files."""
        status, lasted_s = self.run()
        assert status == 0
        return lasted_s, self.done.value

    def end(self, sent: signal.Signals | None, measured: tuple[float, int], chance: random.Random):
        """Send a signal at any moment, or let it kill itself while it saves, until it is in time.

        Return its exit status, and the seconds from the signal to its end.
        """
        work_s, operations = measured
        for _ in range(50):
            shutil.rmtree(self.out, ignore_errors=True)
            after_s = chance.uniform(0, work_s)
            dying_at = NEVER if sent else chance.randint(1, operations)
            status, lasted_s = self.run(dying_at, sent, after_s)
            if not self.has_ended(status):
                return status, lasted_s - after_s if sent else 0.0
            if sent:
                work_s = lasted_s  # the machine had another load when it was measured
        raise AssertionError("no signal came in time")


@pytest.fixture(scope="module")
def drawn(soak, tmp_path_factory) -> Path:
    """A folder with images for several shards."""
    folder, count = tmp_path_factory.mktemp("kills"), 800 if soak else 200
    words = ["generate", "--out", folder / "images", "--count", count, *DRAWN_ALIKE, "--quiet"]
    assert invoke(*words).exit_code == 0
    return folder


def test_prepare_that_was_killed_and_repeated_gives_the_same_bytes(drawn, tmp_path, soak, figure):
    def prepare(out: Path, workers: int) -> Command:
        words = f"prepare {drawn / 'images'} --size 48x16 --workers {workers}"
        return Command(words, out, "*" + TEMPORARY, lambda status: status == 0)

    chance, kills = random.Random(3), 200 if soak else 2
    measured = prepare(tmp_path / "whole", 1).finish()
    for number in range(kills):
        # Only one process can kill itself.
        sent, workers = [(None, 1), (signal.SIGKILL, 2)][number % 2]
        command = prepare(tmp_path / "ended", workers)
        assert command.end(sent, measured, chance)[0] == -signal.SIGKILL
        if (command.out / "manifest.json").exists():  # without it nobody takes them for shards
            check_shards(read_dataset([command.out]).refs)
        command.finish()
        assert contents(command.out) == contents(tmp_path / "whole")
    figure(
        f"{kills} of {kills} byte-equal ({measured[1]} operations on files, {measured[0]:.1f} s)"
    )


def _train(shards: Path, out: Path, epochs: int) -> Command:
    def has_ended(_: int) -> bool:
        return (out / "run.json").exists() and read_run(out)[1] is not None

    words = f"train --data {shards} --epochs {epochs} --batch-size 32 --device cpu"
    return Command(words, out, "metrics.jsonl", has_ended)


@pytest.fixture(scope="module")
def undisturbed(drawn, soak) -> tuple[Path, int, tuple[float, int], list[bytes]]:
    """Shards, and the epochs, cost and results of an undisturbed training on them."""
    shards, out, epochs = drawn / "shards", drawn / "run", 4 if soak else 2
    words = ["prepare", "--size", "48x16", "--quiet", drawn / "images", "--out", shards]
    assert invoke(*words).exit_code == 0
    measured = _train(shards, out, epochs).finish()
    return shards, epochs, measured, [(out / name).read_bytes() for name in RESULTS]


def _measure_lost_s(out: Path, epochs: int) -> float:
    """Return the age of the newest whole checkpoint, in seconds.

    0 where there is none yet, or where it holds the whole training: only scoring follows.
    """
    last = find_last(out)
    if last is None or json.loads((last / STATE_FILE).read_bytes())["progress"]["epoch"] == epochs:
        return 0.0
    return time.time() - (last / "config.json").stat().st_mtime


@pytest.mark.parametrize(
    ("signals", "ends_with_soak"),
    [((None, signal.SIGKILL), 100), ((signal.SIGINT, signal.SIGTERM), 40)],
)
def test_training_that_was_ended_and_repeated_gives_the_same_bits(
    undisturbed, tmp_path, soak, figure, signals, ends_with_soak
):
    chance, slowest_s, most_lost_s = random.Random(3), 0.0, 0.0
    shards, epochs, measured, expected = undisturbed
    ends = ends_with_soak if soak else 1
    for number in range(ends):
        sent = signals[number % 2]
        command = _train(shards, tmp_path / str(number), epochs)
        status, took_s = command.end(sent, measured, chance)
        assert status == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(sent, -signal.SIGKILL)
        # SIGINT and SIGTERM save before they end it.
        most_lost_s = max(most_lost_s, _measure_lost_s(command.out, epochs) - took_s)
        slowest_s = max(slowest_s, took_s)
        command.finish()
        assert [(command.out / name).read_bytes() for name in RESULTS] == expected
    figure(
        f"{ends} of {ends} bit-identical ({measured[1]} operations on files, {measured[0]:.1f} s); "
        f"{most_lost_s:.2f} s of training lost at most, a checkpoint being due every "
        f"{BETWEEN_CHECKPOINTS_S} s; {slowest_s:.1f} s to end at most"
    )
    # The interval, and the time that writing takes
    assert not soak or most_lost_s < 2 * BETWEEN_CHECKPOINTS_S


class Page:
    """The process `captcha-ocr label`, and what its page sends."""

    def __init__(self, folder: Path, out: Path) -> None:
        words = ["label", folder, "--port", "0", "--out", out, "--model", "pretrained"]
        command = [sys.executable, "-m", "captcha_ocr", *words]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        address = next(line.split()[1] for line in self.process.stderr if line.startswith("page"))
        host, _, token = address.removeprefix("http://").partition("/#token=")
        self.headers = {"Authorization": f"Bearer {token}", "Origin": f"http://{host}"}
        self.headers["Content-Type"] = "application/json"
        self.connection = http.client.HTTPConnection(host, timeout=30)

    def ask(self, method: str, path: str, document: object = None) -> dict[str, object]:
        """Send a request; OSError or HTTPException if the process is gone."""
        body = json.dumps(document) if document else None
        self.connection.request(method, path, body, self.headers)
        answer = self.connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200, content
        return content


def test_no_acknowledged_label_is_lost_when_the_process_is_killed(images, soak, figure, tmp_path):
    pytest.importorskip("starlette", reason="the extra web is not installed")
    chance, acknowledged, labels, kills = random.Random(0), {}, 0, 200 if soak else 2
    folder = shutil.copytree(images, tmp_path / "images", ignore=lambda *_: ["labels.csv"])
    count = len(list(folder.glob("*.png")))
    for _ in range(kills):
        page = Page(folder, tmp_path / "out")
        killer = threading.Timer(chance.uniform(0, 0.4), page.process.kill)
        killer.start()
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                number, labels = chance.randrange(count), labels + 1
                shown = page.ask("GET", f"/v1/images/{number}/view")
                label = {"number": number, "text": str(labels), "version": shown["version"]}
                page.ask("POST", "/v1/label", label)
                acknowledged[shown["file"]] = str(labels)
        killer.join()
        page.connection.close()
        page.process.communicate()
        assert page.process.returncode == -signal.SIGKILL
        rows = read_table(folder / "labels.csv") if acknowledged else []
        saved = {row.filename: row.text for row in rows}
        assert all(int(saved[file]) >= int(text) for file, text in acknowledged.items())
        assert all(row.problem is None for row in rows)
        acknowledged |= saved
    figure(f"{kills} kills, {labels} labels sent, none lost of those acknowledged")
