"""The trainings of an audit: which there are, how long they take, and several side by side.

Each is `prepare` and `train` in processes of their own, on one thread, in a folder of its own; one that has finished is
not repeated.
"""

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.audit.sources import write_table
from captcha_ocr.config import PRESETS, derive_epochs
from captcha_ocr.data.labels import LABELS_FILE, Label
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.training.run.folder import read_run

STARTS = {"general": "finetune", "random": "few"}  # their presets
NAMES = {"general": "captcha-ocr's model", "random": "random weights"}
SIZES = (30, 100, 300, 1_000, 3_000, 10_000)  # labels
DRAWS = 3  # of so many labels
VALIDATION = 10  # one in so many labels validates


@dataclass(frozen=True)
class Training:
    """Training on so many labels: the draw's first ones, of the images that are not tested.

    images, labels, tested: a folder, the labels from which to draw, those to test on. setting: the name of the knobs'
    levels. seed: of the draw, and of the training.
    """

    images: Path
    labels: tuple[Label, ...]
    tested: tuple[Label, ...]
    start: str
    size: int
    draw: int
    seed: int
    setting: str = "base"

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.setting}-{self.start}-{self.size}-{self.draw}"

    @property
    def cost(self) -> float:
        """How many images it shows to the network, about."""
        preset = PRESETS[STARTS[self.start]]
        training = self.size - self.size // VALIDATION
        return training * (derive_epochs(preset.training, training) or preset.max_epochs or 1)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table of labels: file name, text, split. Smaller draws are part of larger ones."""
        drawn = random.Random(f"draw-{self.seed}-{self.draw}").sample(
            self.labels, len(self.labels)
        )[: self.size]
        validation = self.size // VALIDATION
        splits = ["val"] * validation + ["train"] * (self.size - validation)
        return [
            *((label.file, label.text, split) for label, split in zip(drawn, splits, strict=True)),
            *((label.file, label.text, "test") for label in self.tested),
        ]


@dataclass(frozen=True)
class Trained:
    """What a training gave: exact matches among the tested images, where case does not count, and its seconds."""

    right: int
    tested: int
    seconds: float


class Runner:
    """Runs trainings side by side. options: more of those of `train`."""

    def __init__(self, out: Path, workers: int, options: tuple[str, ...] = ()) -> None:
        self.out, self.workers, self.options = out, workers, options
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.lock, self.is_stopped = threading.Lock(), False

    def run(
        self, trainings: Sequence[Training], on_end: Callable[[Training, Trained], None]
    ) -> None:
        """Run trainings; CaptchaOcrError if one fails. Whatever ends this ends those that run, too."""
        self.is_stopped = False
        with ThreadPoolExecutor(self.workers) as pool:
            jobs = {pool.submit(self.train, training): training for training in trainings}
            try:
                for job in as_completed(jobs):
                    on_end(jobs[job], job.result())
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the processes that run, and begin no more."""
        with self.lock:
            self.is_stopped = True
            for process in self.processes:
                process.terminate()

    def folder(self, training: Training) -> Path:
        """Return the folder of a training; its run is in `run`."""
        return self.out / training.name

    def result(self, training: Training) -> Trained | None:
        """Return what a training gave; None if it has not finished."""
        return result_of(self.folder(training) / "run")

    def train(self, training: Training) -> Trained:
        """Train, unless that was done before."""
        found = self.result(training)
        if found is not None:
            return found
        folder = self.folder(training)
        folder.mkdir(parents=True, exist_ok=True)
        table, shards, run = folder / LABELS_FILE, folder / "shards", folder / "run"
        write_table(table, ("filename", "text", "split"), training.rows())
        preset = STARTS[training.start]
        prepare = (
            "prepare",
            training.images,
            "--labels",
            table,
            "--out",
            shards,
            "--preset",
            preset,
            "--workers",
            1,
        )
        self.command(*prepare, "--force")
        seed = ("--seed", training.seed * 1000 + training.draw)
        self.command(
            "train",
            "--data",
            shards,
            "--out",
            run,
            "--preset",
            preset,
            *seed,
            "--threads",
            1,
            *self.options,
        )
        found = self.result(training)
        if found is None:
            raise DamagedError(f"{run} has no score after training")
        return found

    def command(self, *arguments: object) -> None:
        """Run a command of ours; CaptchaOcrError with its last line if it fails."""
        words = [sys.executable, "-m", "captcha_ocr", *map(str, arguments)]
        with self.lock:
            if self.is_stopped:
                raise CaptchaOcrError("stopped")
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            self.processes.add(process)
        _, errors = process.communicate()
        self.processes.discard(process)
        if process.returncode != 0:
            raise CaptchaOcrError(
                errors.decode("utf-8", "replace")
                .strip()
                .rpartition("\n")[2]
                .removeprefix("captcha-ocr: ")
            )


def result_of(run: Path) -> Trained | None:
    """Return what a finished run gave; None if there is none."""
    try:
        finished = read_run(run)[1]
    except (DamagedError, UsageError, OSError):
        return None
    if finished is None or finished.test is None:
        return None
    test = finished.test
    return Trained(test["exact"] + test["folded"], test["images"], finished.seconds)
