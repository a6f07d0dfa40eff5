"""The learning curves of an audit: more and more labels, as long as they tell something and fit."""

from collections.abc import Iterable
from statistics import mean

from captcha_ocr.audit.solvers.trainings import (
    DRAWS,
    NAMES,
    SIZES,
    STARTS,
    LabelPool,
    TimeBudget,
    Training,
)
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.system.console import duration, say

_ENOUGH = 0.98  # exact match of a solver, from which more labels are left out


class CurveMeasurement:
    """Trains on labels of a pool, and tests on others. largest: the most labels of a training.

    scores: by start. seconds: that a training took, by start and labels.
    """

    def __init__(self, labels: LabelPool, budget: TimeBudget, largest: int) -> None:
        self.scores: dict[str, list[Score]] = {start: [] for start in STARTS}
        self.seconds: dict[tuple[str, int], float] = {}
        self._labels, self._budget, self._largest = labels, budget, largest

    def run(self) -> dict[str, Curve]:
        """Return the curve of each start."""
        images, notes = len(self._labels.labels), self._budget.notes
        allowed = [size for size in SIZES if size <= self._largest]
        sizes = [size for size in allowed if size <= images]
        if sizes != allowed:
            more = f"{allowed[len(sizes)]:,} labels or more"
            notes.append(f"Not measured: {more}; {images:,} images are left to learn from.")
        speed_trials = [Training(self._labels, start, sizes[0], 0) for start in STARTS]
        self._budget.run(speed_trials)
        self._tell_plan(sizes)
        starts = [*STARTS]
        for size in sizes:
            if size > sizes[0]:
                starts = self._choose_starts(size, starts)
            self._budget.run(self._block(size, starts))
            for start in starts:
                names = [training.name for training in self._block(size, [start])]
                results = [self._budget.trained[name] for name in names]
                self.seconds[start, size] = mean(result.seconds for result in results)
                right = tuple(result.right for result in results)
                self.scores[start].append(Score(size, right, results[0].tested))
        most = max(size for _, size in self.seconds)
        if most > images / 2:
            shared = f"Draws of {most:,} labels are of the same {images:,} images"
            differ = "other labels may differ by more than the interval says"
            notes.append(f"{shared} and share most of them: {differ}.")
        return {start: Curve(tuple(rows)) for start, rows in self.scores.items()}

    def _tell_plan(self, sizes: list[int]) -> None:
        """Tell which numbers of labels fit into the budget, and how long they take."""
        trainings: list[Training] = []
        fitting, rest = list[str](), ""
        for size in sizes:
            more = [*trainings, *self._block(size, STARTS)]
            if fitting and not self._budget.fits(more):
                rest = f"; the budget is too short for {size:,}"
                break
            trainings = more
            fitting.append(f"{size:,}")
        seconds = duration(self._budget.expected_s(trainings))
        plan = f"{seconds} for {', '.join(fitting)} labels, {DRAWS} draws of each{rest}"
        say(f"expected   {plan}", self._budget.quiet)

    def _block(self, size: int, starts: Iterable[str]) -> list[Training]:
        return [
            Training(self._labels, start, size, draw) for draw in range(DRAWS) for start in starts
        ]

    def _choose_starts(self, size: int, starts: list[str]) -> list[str]:
        """Return the starts from which more labels tell something, and fit into the budget.

        Note the other starts.
        """
        useful, budget = [], self._budget
        for start in starts:
            if self.scores[start][-1].share < _ENOUGH:
                useful.append(start)
            else:
                what = f"{size:,} labels or more, from {NAMES[start]}"
                budget.notes.append(f"Not measured: {what}; with fewer, a solver reads nearly all.")

        def expected_s(starts: list[str]) -> float:
            return budget.expected_s(self._block(size, starts))

        while expected_s(useful) > budget.left:
            slowest = max(useful, key=lambda start: expected_s([start]))
            rest = [start for start in useful if start != slowest]
            time = f"that takes about {duration(expected_s(useful) - expected_s(rest))} more"
            left = f"the budget has {duration(budget.left)} left"
            note = f"{size:,} labels or more, from {NAMES[slowest]}: {time}, and {left}"
            budget.notes.append(f"Not measured: {note}.")
            say(f"left out   {note}", budget.quiet)
            useful = rest
        return useful
