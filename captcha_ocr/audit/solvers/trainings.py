"""The trainings of an audit: which there are, and several side by side.

Each is `prepare` and `train` in processes of their own, on one thread, in a folder of its own. One
that has finished is not repeated.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.audit.images.generators import write_table
from captcha_ocr.data.labels import LABELS_FILE, Label
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.options.training import PRESETS, derive_epochs
from captcha_ocr.training.run.folder import read_run

STARTS = {"general": "finetune", "random": "few"}  # their presets
NAMES = {"general": "captcha-ocr's model", "random": "random weights"}
SIZES = (30, 100, 300, 1_000, 3_000, 10_000)  # labels
DRAWS = 3  # of so many labels
_VALIDATION = 10  # one in so many labels validates


@dataclass(frozen=True)
class Training:
    """Training on so many labels: the draw's first ones, of the images that are not tested.

    images, labels, tested: a folder, the labels from which to draw, those to test on. setting: the
    name of the knobs' levels. seed: of the draw, and of the training.
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
        labels = self.size - self.size // _VALIDATION
        return labels * (derive_epochs(preset.training, labels) or preset.max_epochs or 1)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table of labels: file name, text, split.

        Smaller draws are part of larger ones.
        """
        rng = random.Random(f"draw-{self.seed}-{self.draw}")
        drawn = rng.sample(self.labels, len(self.labels))[: self.size]
        validation = self.size // _VALIDATION
        splits = {"val": drawn[:validation], "train": drawn[validation:], "test": self.tested}
        return [
            (label.file, label.text, split) for split, labels in splits.items() for label in labels
        ]


@dataclass(frozen=True)
class Trained:
    """What a training gave: exact matches among the tested images, and its seconds.

    Case does not count.
    """

    right: int
    tested: int
    seconds: float


class Runner:
    """Runs trainings side by side."""

    def __init__(self, out: Path, workers: int) -> None:
        self.out, self.workers = out, workers

    def run(
        self, trainings: Sequence[Training], on_end: Callable[[Training, Trained], None]
    ) -> None:
        """Run trainings; CaptchaOcrError if one fails.

        Whatever ends this ends those that run, too.
        """
        children = ChildRuns()
        with ThreadPoolExecutor(self.workers) as pool:
            jobs = {
                pool.submit(self._train, training, children): training for training in trainings
            }
            try:
                for job in as_completed(jobs):
                    on_end(jobs[job], job.result())
            except BaseException:
                children.stop()
                raise

    def folder(self, training: Training) -> Path:
        """Return the folder of the run of a training."""
        return self.out / training.name / "run"

    def result(self, training: Training) -> Trained | None:
        """Return what a training gave; None if it has not finished."""
        return read_result(self.folder(training))

    def _train(self, training: Training, children: ChildRuns) -> Trained:
        """Train, unless that was done before."""
        result = self.result(training)
        if result is not None:
            return result
        run = self.folder(training)
        run.parent.mkdir(parents=True, exist_ok=True)
        table, shards = run.parent / LABELS_FILE, run.parent / "shards"
        write_table(table, ("filename", "text", "split"), training.rows())
        preset = {"preset": STARTS[training.start]}
        preparation = {"labels": table, "out": shards, **preset, "workers": 1, "force": True}
        children.run_command("prepare", [training.images], preparation)
        seed = training.seed * 1000 + training.draw
        recipe = {"data": shards, "out": run, **preset, "seed": seed, "threads": 1}
        children.run_command("train", [], recipe)
        result = self.result(training)
        if result is None:
            raise DamagedError(f"{run} has no score after training")
        return result


def read_result(run: Path) -> Trained | None:
    """Return what a finished run gave; None if there is none."""
    try:
        finished = read_run(run)[1]
    except (DamagedError, UsageError, OSError):
        return None
    if finished is None or finished.test is None:
        return None
    test = finished.test
    return Trained(test["exact"] + test["folded"], test["images"], finished.seconds)
