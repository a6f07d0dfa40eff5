"""Training in the background while a person labels: in a process of its own, at a low priority."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from captcha_ocr.errors import DamagedError
from captcha_ocr.system.files import remove_stale, write_atomic
from captcha_ocr.training.run.folder import read_run

FIRST, STEP = (
    150,
    100,
)  # labels before the first training; the distance to the next doubles each time
NICENESS = 10


def next_milestone(labels: int) -> int:
    """Return the number of labels at which to train next: 150, 250, 450, 850, …"""
    milestone, step = FIRST, STEP
    while milestone <= labels:
        milestone, step = milestone + step, 2 * step
    return milestone


class BackgroundTraining:
    """Runs `prepare` and `train` on the labels of a folder, one training at a time.

    Both have their defaults: the weights of the package are the start while there are few labels. out: gets a folder
    for each training. on_model: called with the run folder of a finished training and the number of labels, in a
    thread.
    """

    def __init__(self, folder: Path, out: Path, on_model: Callable[[Path, int], None]) -> None:
        self.folder, self.out, self.on_model = folder, out, on_model
        self.process: subprocess.Popen[bytes] | None = None
        self.thread: threading.Thread | None = None
        self.lock, self.is_stopped, self.problem = threading.Lock(), False, ""

    @property
    def is_running(self) -> bool:
        """Whether a training runs."""
        return self.thread is not None and self.thread.is_alive()

    def finished(self) -> list[tuple[int, Path]]:
        """Return the trainings that have ended, here or in an earlier session: the numbers of labels, and the runs."""
        folders = {
            int(folder.name.rpartition("-")[2]): folder / "run"
            for folder in self.out.glob("labels-*")
        }
        return [
            (labels, run)
            for labels, run in sorted(folders.items())
            if score_of_test(run) is not None
        ]

    def start(self, table: bytes, labels: int) -> None:
        """Train on a table of labels."""
        if not self.is_running and not self.is_stopped:
            self.thread = threading.Thread(target=self.train, args=(table, labels), daemon=True)
            self.thread.start()

    def train(self, table: bytes, labels: int) -> None:
        """Prepare and train; on_model gets the run folder."""
        out = self.out / f"labels-{labels}"
        out.mkdir(parents=True, exist_ok=True)
        remove_stale(out)
        write_atomic(out / "labels.csv", table)
        shards, run = out / "shards", out / "run"
        prepared = self.run(
            "prepare", self.folder, "--labels", out / "labels.csv", "--out", shards, "--force"
        )
        if prepared and self.run("train", "--data", shards, "--out", run, "--force"):
            self.on_model(run, labels)

    def run(self, *arguments: object) -> bool:
        """Run a command; its last line becomes `problem` if it fails."""
        command = [sys.executable, "-m", "captcha_ocr", *map(str, arguments)]
        with self.lock:
            if self.is_stopped:
                return False
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=lower,
            )
        _, errors = self.process.communicate()
        failed = self.process.returncode != 0 and not self.is_stopped
        self.problem = (
            errors.decode("utf-8", "replace").strip().rpartition("\n")[2] if failed else ""
        )
        return self.process.returncode == 0

    def stop(self) -> None:
        """End the training that runs."""
        with self.lock:
            self.is_stopped = True
            if self.process is not None and self.process.poll() is None:
                self.process.terminate()
        if self.thread is not None:
            self.thread.join()


def lower() -> None:
    """Lower the priority of a process that begins."""
    os.nice(NICENESS)


def score_of_test(run: Path) -> tuple[int, int] | None:
    """Return the exact matches of a run among its test images, and their number; None if it has not finished."""
    try:
        finished = read_run(run)[1]
    except DamagedError:
        return None
    return (
        None
        if finished is None or finished.test is None
        else (finished.test["exact"], finished.test["images"])
    )
