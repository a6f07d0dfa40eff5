"""The learning curves of an audit: more and more labels, as long as they tell something and fit."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.audit.solvers.time_budget import TimeBudget
from captcha_ocr.audit.solvers.trainings import DRAWS, NAMES, SIZES, STARTS, Training
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.data.labels import Label
from captcha_ocr.system.console import duration, say

_ENOUGH = 0.98  # exact match of a solver, from which more labels are left out


@dataclass(frozen=True)
class LabelPool:
    """A folder of images, the labels from which trainings draw, and those to test on."""

    images: Path
    pool: tuple[Label, ...]
    tested: tuple[Label, ...]
    seed: int

    def training(self, start: str, size: int, draw: int) -> Training:
        """Return a training on so many labels."""
        return Training(self.images, self.pool, self.tested, start, size, draw, self.seed)


class CurveMeasurement:
    """Trains on labels of a pool, and tests on others. largest: the most labels of a training.

    seconds: that a training took, by start and labels. notes: what was not measured, and why; a
    sentence each.
    """

    def __init__(self, labels: LabelPool, budget: TimeBudget, largest: int) -> None:
        self.seconds: dict[tuple[str, int], float] = {}
        self.notes: list[str] = []
        self._labels, self._budget, self._largest = labels, budget, largest

    def run(self) -> dict[str, Curve]:
        """Return the curve of each start."""
        sizes = self._choose_sizes()
        speed_trials = [self._labels.training(start, sizes[0], 0) for start in STARTS]
        self._budget.run(speed_trials)
        self._tell_plan(sizes)
        scores: dict[str, list[Score]] = {start: [] for start in STARTS}
        starts = [*STARTS]
        for size in sizes:
            if size > sizes[0]:
                starts = self._choose_starts(size, starts, scores)
            self._budget.run(self._block(size, starts))
            for start in starts:
                scores[start].append(self._score(start, size))
        most, images = max(size for _, size in self.seconds), len(self._labels.pool)
        if most > images / 2:
            shared = f"Draws of {most:,} labels are of the same {images:,} images"
            differ = "other labels may differ by more than the interval says"
            self.notes.append(f"{shared} and share most of them: {differ}.")
        return {start: Curve(tuple(rows)) for start, rows in scores.items()}

    def _choose_sizes(self) -> list[int]:
        """Return the numbers of labels to train on; note which the images do not allow."""
        images = len(self._labels.pool)
        allowed = [size for size in SIZES if size <= self._largest]
        sizes = [size for size in allowed if size <= images]
        if sizes != allowed:
            more = f"{allowed[len(sizes)]:,} labels or more"
            self.notes.append(f"Not measured: {more}; {images:,} images are left to learn from.")
        return sizes

    def _tell_plan(self, sizes: list[int]) -> None:
        """Tell which numbers of labels fit into the budget, and how long they take."""
        trainings = self._block(sizes[0], STARTS)
        fitting, rest = sizes[:1], ""
        for size in sizes[1:]:
            more = [*trainings, *self._block(size, STARTS)]
            if not self._budget.fits(more):
                rest = f"; the budget is too short for {size:,}"
                break
            trainings = more
            fitting.append(size)
        seconds = duration(self._budget.expected_s(trainings))
        labels = ", ".join(f"{size:,}" for size in fitting)
        plan = f"{seconds} for {labels} labels, {DRAWS} draws of each{rest}"
        say(f"expected   {plan}", self._budget.quiet)

    def _block(self, size: int, starts: Iterable[str]) -> list[Training]:
        """Return the trainings on so many labels."""
        return [
            self._labels.training(start, size, draw) for draw in range(DRAWS) for start in starts
        ]

    def _score(self, start: str, size: int) -> Score:
        results = [self._budget.trained[training.name] for training in self._block(size, [start])]
        self.seconds[start, size] = sum(result.seconds for result in results) / len(results)
        return Score(size, tuple(result.right for result in results), results[0].tested)

    def _choose_starts(
        self, size: int, starts: list[str], scores: dict[str, list[Score]]
    ) -> list[str]:
        """Return the starts from which more labels tell something, and fit into the budget.

        Note the other starts.
        """
        useful = []
        for start in starts:
            if scores[start][-1].share < _ENOUGH:
                useful.append(start)
            else:
                what = f"{size:,} labels or more, from {NAMES[start]}"
                self.notes.append(f"Not measured: {what}; with fewer, a solver reads nearly all.")
        while useful and not self._budget.fits(self._block(size, useful)):
            slowest = max(useful, key=lambda start: self._expected_s(size, [start]))
            rest = [start for start in useful if start != slowest]
            seconds = self._expected_s(size, useful) - self._expected_s(size, rest)
            useful = rest
            time = f"that takes about {duration(seconds)} more"
            left = f"the budget has {duration(self._budget.left)} left"
            note = f"{size:,} labels or more, from {NAMES[slowest]}: {time}, and {left}"
            self.notes.append(f"Not measured: {note}.")
            say(f"left out   {note}", self._budget.quiet)
        return useful

    def _expected_s(self, size: int, starts: list[str]) -> float:
        return self._budget.expected_s(self._block(size, starts))
