"""The learning curves of an audit: trainings on more and more labels, as long as they tell something and fit."""

from collections.abc import Iterable
from pathlib import Path

from captcha_ocr.audit.schedule import Schedule
from captcha_ocr.audit.statistics import Curve, Score
from captcha_ocr.audit.trainings import DRAWS, NAMES, SIZES, STARTS, Training
from captcha_ocr.data.labels import Label
from captcha_ocr.system.console import duration, say

ENOUGH = 0.98  # exact match of a solver, from which more labels are left out


class CurveMeasurement:
    """Trains on labels of a pool, and tests on others.

    seconds: that a training took, by start and labels. notes: what was not measured, and why; a sentence each.
    """

    def __init__(
        self,
        images: Path,
        pool: tuple[Label, ...],
        tested: tuple[Label, ...],
        schedule: Schedule,
        seed: int,
        largest: int,
    ) -> None:
        self.images, self.pool, self.tested = images, pool, tested
        self.schedule, self.seed, self.largest = schedule, seed, largest
        self.seconds: dict[tuple[str, int], float] = {}
        self.notes: list[str] = []

    def run(self) -> dict[str, Curve]:
        """Return the curve of each start."""
        sizes = self.sizes()
        self.schedule.run(
            [self.training(start, sizes[0], 0) for start in STARTS]
        )  # to learn how fast it is
        self.tell_plan(sizes)
        scores: dict[str, list[Score]] = {start: [] for start in STARTS}
        starts = [*STARTS]
        for size in sizes:
            starts = self.worth_training(size, starts, scores) if size > sizes[0] else starts
            self.schedule.run(self.block(size, starts))
            for start in starts:
                results = [self.schedule.trained[each.name] for each in self.block(size, [start])]
                scores[start].append(
                    Score(size, tuple(each.right for each in results), results[0].tested)
                )
                self.seconds[start, size] = sum(each.seconds for each in results) / len(results)
        most = max(size for _, size in self.seconds)
        if most > len(self.pool) / 2:
            shared = f"Draws of {most:,} labels are of the same {len(self.pool):,} images and share most of them"
            self.notes.append(f"{shared}: other labels may differ by more than the interval says.")
        return {start: Curve(tuple(rows)) for start, rows in scores.items()}

    def tell_plan(self, sizes: list[int]) -> None:
        """Tell which numbers of labels fit into the budget, and how long they take."""
        trainings: list[Training] = []
        fitting = 0
        for size in sizes:
            more = [*trainings, *self.block(size, STARTS)]
            if fitting and not self.schedule.fits(more):
                break
            trainings, fitting = more, fitting + 1
        seconds = duration(self.schedule.expected_s(trainings))
        plan = f"{seconds} for {', '.join(f'{n:,}' for n in sizes[:fitting])} labels, {DRAWS} draws of each"
        rest = f"; the budget is too short for {sizes[fitting]:,}" if sizes[fitting:] else ""
        say(f"expected   {plan}{rest}", self.schedule.quiet)

    def block(self, size: int, starts: Iterable[str]) -> list[Training]:
        """Return the trainings on so many labels."""
        return [self.training(start, size, draw) for draw in range(DRAWS) for start in starts]

    def worth_training(
        self, size: int, starts: list[str], scores: dict[str, list[Score]]
    ) -> list[str]:
        """Return those starts from which more labels tell something, and fit into the budget; note the others."""
        worth = [start for start in starts if scores[start][-1].share < ENOUGH]
        for start in starts:
            if start not in worth:
                what = f"{size:,} labels or more, from {NAMES[start]}"
                self.notes.append(f"Not measured: {what}; with fewer, a solver reads nearly all.")
        while worth and not self.schedule.fits(self.block(size, worth)):
            slowest = max(
                worth, key=lambda start: self.schedule.expected_s(self.block(size, [start]))
            )
            seconds = self.schedule.expected_s(self.block(size, worth))
            worth.remove(slowest)
            seconds -= self.schedule.expected_s(self.block(size, worth))
            left = duration(self.schedule.left)
            what = f"{size:,} labels or more, from {NAMES[slowest]}"
            note = (
                f"{what}: that takes about {duration(seconds)} more, and the budget has {left} left"
            )
            self.notes.append(f"Not measured: {note}.")
            say(f"left out   {note}", self.schedule.quiet)
        return worth

    def sizes(self) -> list[int]:
        """Return the numbers of labels to train on; note which the images do not allow."""
        allowed = [size for size in SIZES if size <= self.largest]
        sizes = [size for size in allowed if size <= len(self.pool)]
        if sizes != allowed:
            more = f"{allowed[len(sizes)]:,} labels or more"
            self.notes.append(
                f"Not measured: {more}; {len(self.pool):,} images are left to learn from."
            )
        return sizes

    def training(self, start: str, size: int, draw: int) -> Training:
        """Return a training on the images of the source."""
        return Training(self.images, self.pool, self.tested, start, size, draw, self.seed)
