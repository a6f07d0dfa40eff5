"""The trainings of an audit, side by side: what time they take, and what no longer fits.

Each is `prepare` and `train` in processes of their own, on one thread, in a folder of its own.
"""

import heapq
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captcha_ocr.data.label_sources.tables import to_csv
from captcha_ocr.data.labels import LABELS_FILE, Label
from captcha_ocr.errors import DamagedError, check
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.experiments.judge import judge
from captcha_ocr.options.training import PRESETS, derive_epochs
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted, duration, say
from captcha_ocr.system.documents import read_json, to_json
from captcha_ocr.system.files import write_atomic
from captcha_ocr.system.processors import available_workers
from captcha_ocr.training.run.folder import read_run

STARTS = {"general": "finetune", "random": "few"}  # their presets
NAMES = {"general": "captcha-ocr's model", "random": "random weights"}
SIZES = (30, 100, 300, 1_000, 3_000, 10_000)  # labels
DRAWS = 3  # of so many labels
_VALIDATION = 10  # one in so many labels validates
_STATE_FILE, _RUNS = "audit.json", "runs"
_RESERVED = 0.05  # of the budget, for reading images and for the page
_OVERHEAD_S = 8.0  # of a training: two processes start, and decode images
_MARGIN = 1.1  # by which a block may take longer than it seems


@dataclass(frozen=True)
class LabelPool:
    """A folder of images, the labels from which trainings draw, and those to test on.

    seed: of the draws, and of the trainings. setting: the name of the knobs' levels.
    """

    images: Path
    labels: tuple[Label, ...]
    tested: tuple[Label, ...]
    seed: int
    setting: str = "base"

    def judge(self, reader: Recognizer) -> list[tuple[float, bool]]:
        """Return a reader's confidence in each test image, and whether it is right."""
        return [judged.answer for judged in judge(reader, self.images, self.tested)]


@dataclass(frozen=True)
class Training:
    """Training on so many labels of a pool: the draw's first ones."""

    pool: LabelPool
    start: str
    size: int
    draw: int

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.pool.setting}-{self.start}-{self.size}-{self.draw}"

    @property
    def title(self) -> str:
        """What it is, for people."""
        setting = "" if self.pool.setting == "base" else f"{self.pool.setting}: "
        labels = counted(self.size, "label")
        return f"{setting}{labels} from {NAMES[self.start]}, draw {self.draw + 1}"

    @property
    def cost(self) -> float:
        """How many images it shows to the network, about."""
        preset = PRESETS[STARTS[self.start]]
        labels = self.size - self.size // _VALIDATION
        return labels * (derive_epochs(preset.training, labels) or preset.max_epochs)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table of labels: file name, text, split.

        Smaller draws are part of larger ones.
        """
        rng = random.Random(f"draw-{self.pool.seed}-{self.draw}")
        drawn = rng.sample(self.pool.labels, len(self.pool.labels))[: self.size]
        validation = self.size // _VALIDATION
        splits = {"val": drawn[:validation], "train": drawn[validation:], "test": self.pool.tested}
        return [
            (label.file, label.text, split) for split, labels in splits.items() for label in labels
        ]

    def run(self, folder: Path, children: ChildRuns) -> None:
        """Prepare and train in a folder: the run folder is `run` in it."""
        folder.mkdir(parents=True, exist_ok=True)
        table, shards = folder / LABELS_FILE, folder / "shards"
        write_atomic(table, to_csv([("filename", "text", "split"), *self.rows()]).encode())
        preset = {"preset": STARTS[self.start]}
        preparation = {"labels": table, "out": shards, **preset, "workers": 1, "force": True}
        children.run_command("prepare", [self.pool.images], preparation)
        seed = self.pool.seed * 1000 + self.draw
        recipe = {"data": shards, "out": folder / "run", **preset, "seed": seed, "threads": 1}
        children.run_command("train", [], recipe)

    def result(self, run: Path) -> "Trained | None":
        """Return what a finished run gave; None if there is none."""
        with suppress(DamagedError):
            spec, finished = read_run(run)
            if finished is not None and finished.test is not None:
                right = finished.test["exact"] + finished.test["folded"]
                epochs = derive_epochs(spec.training, spec.images["train"]) or finished.epochs
                longest_s = finished.seconds * epochs / finished.epochs
                return Trained(right, finished.test["images"], finished.seconds, longest_s)
        return None


@dataclass(frozen=True)
class Trained:
    """What a training gave: exact matches among the tested images, and its seconds.

    Case does not count. longest_s: the seconds that all its epochs would have taken, for another
    one may not end so early.
    """

    right: int
    tested: int
    seconds: float
    longest_s: float


class TimeBudget:
    """Runs trainings as long as the budget lasts; the time of earlier sessions counts.

    identity: what must not change when an audit goes on; UsageError if `out` holds another one.
    trained: what each gave, by its name. notes: what was not measured, and why; a sentence each.
    """

    def __init__(self, out: Path, budget_s: float, identity: dict[str, Any], quiet: bool) -> None:
        self.budget_s, self.quiet = budget_s, quiet
        self.workers = available_workers()
        self.notes: list[str] = []
        self.trained: dict[str, Trained] = {}
        self.rates: dict[str, float] = {}  # seconds for each image that a training shows
        self._out, self._identity = out, identity
        self._started = time.monotonic()  # less what was spent before
        if (out / _STATE_FILE).exists():
            state = read_json(out / _STATE_FILE)
            check(
                state.get("options") == identity,
                f"{out} holds another audit (its images, seed or knobs differ);"
                " choose another `out`",
            )
            self._started -= float(state["spent"])
        say(
            f"budget     {duration(budget_s)} in all, on {counted(self.workers, 'processor')}",
            quiet,
        )

    @property
    def spent(self) -> float:
        """Seconds since the first start; those between sessions do not count."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left for trainings, 0 or more: what has finished always fits."""
        return max(0.0, self.budget_s * (1 - _RESERVED) - self.spent)

    def save(self) -> None:
        """Keep the time that was spent."""
        state = {"options": self._identity, "spent": self.spent}
        write_atomic(self._out / _STATE_FILE, to_json(state), durable=False)

    def leave_out(self, what: str) -> None:
        """Note what is not measured, with the reason, and tell it."""
        self.notes.append(f"Not measured: {what}.")
        say(f"left out   {what}", self.quiet)

    def run_folder(self, training: Training) -> Path:
        """Return the folder of the run of a training."""
        return self._out / _RUNS / training.name / "run"

    def result(self, training: Training) -> Trained | None:
        """Return what a training gave; None if it has not finished."""
        return self.trained.get(training.name) or training.result(self.run_folder(training))

    def unfinished(self, trainings: Sequence[Training]) -> list[Training]:
        """Return the trainings that have no result yet."""
        return [training for training in trainings if self.result(training) is None]

    def expected_s(self, trainings: Sequence[Training]) -> float:
        """Return how long trainings take at most, side by side, by the speed of those that have
        ended.

        Those that have finished take no time.
        """
        ends = [0.0] * self.workers
        for training in self._sort_slowest_first(self.unfinished(trainings)):
            seconds = training.cost * self.rates[training.start] + _OVERHEAD_S
            heapq.heapreplace(ends, ends[0] + seconds)
        return _MARGIN * max(ends)

    def _sort_slowest_first(self, trainings: Sequence[Training]) -> list[Training]:
        """Return trainings in the order in which several side by side end soonest."""
        return sorted(
            trainings, key=lambda training: -training.cost * self.rates.get(training.start, 1.0)
        )

    def run(self, trainings: Sequence[Training]) -> None:
        """Run trainings side by side; CaptchaOcrError if one fails.

        One that has finished is not repeated. Whatever ends this ends those that run, too.
        """
        children = ChildRuns()
        with ExitStack() as stack:
            stack.callback(self.save)  # an interruption, too: the time until then counts
            pool = stack.enter_context(ThreadPoolExecutor(self.workers))
            stack.callback(children.stop)  # then the pool waits for no training
            jobs = {
                pool.submit(self._train, training, children): training
                for training in self._sort_slowest_first(trainings)
            }
            for job in as_completed(jobs):
                training, result = jobs[job], job.result()
                self.rates[training.start] = result.longest_s / training.cost
                if training.name not in self.trained:
                    scores = f"{result.right:,} of {result.tested:,}, {duration(result.seconds)}"
                    say(f"trained    {training.title}: reads {scores}", self.quiet)
                self.trained[training.name] = result

    def _train(self, training: Training, children: ChildRuns) -> Trained:
        if self.result(training) is None:
            training.run(self.run_folder(training).parent, children)
        result = self.result(training)
        assert result is not None, "each training has images to test on"
        return result
