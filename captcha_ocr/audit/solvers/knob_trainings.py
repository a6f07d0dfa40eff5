"""Train again for each setting of the knobs, since an attacker adapts; compare with the base."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from captcha_ocr.audit.images.generators import ImageGenerator
from captcha_ocr.audit.solvers.knobs import (
    MOST_ALONE,
    Effect,
    Knobs,
    confounded,
    effects_alone,
    effects_together,
    list_settings,
    where_to_compare,
)
from captcha_ocr.audit.solvers.time_budget import TimeBudget
from captcha_ocr.audit.solvers.trainings import DRAWS, SIZES, LabelPool, Training
from captcha_ocr.audit.statistics import Curve, Reached
from captcha_ocr.data.labels import find_labels
from captcha_ocr.experiments.judge import judge
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted, duration, say

KNOBS_LEFT_OUT = "Not measured: knobs"  # how the reason begins
_TESTED = 500  # images, of each setting and draw
_FEWEST_DRAWS = 2  # of changes one at a time; a screening design shows the spread in its settings
_LEAST_SHARE = 0.02  # that the base must read, to be compared
_LEAST_READ = 0.5  # of a setting; with less, it gets more labels


@dataclass(frozen=True)
class SettingResult:
    """What solvers read of a setting, each draw. fixed: the mean of those that learned the base."""

    label: str
    labels: int
    shares: Sequence[float]
    fixed: float


@dataclass(frozen=True)
class KnobResults:
    """What the knobs do. confounded: pairs that a screening design cannot tell apart."""

    start: str
    draws: int
    settings: Sequence[SettingResult]
    effects: Sequence[Effect]
    confounded: Sequence[str]


class KnobMeasurement:
    """Trains for each setting, with the same texts and seeds.

    All settings begin with the same number of labels; one that is read less than half then gets
    more, as far as the budget goes: where a solver reads next to nothing, the labels that it needs
    cannot be compared. base: the labels of the audit; the settings' images go beside its own.
    largest: the most labels. failures: images that could not be drawn.
    """

    def __init__(
        self,
        generator: ImageGenerator,
        knobs: Knobs,
        base: LabelPool,
        budget: TimeBudget,
        largest: int,
    ) -> None:
        self.failures = 0
        self._generator, self._knobs, self._base = generator, knobs, base
        self._budget, self._largest = budget, largest
        self._settings = list_settings(knobs)
        self._fewest = _FEWEST_DRAWS if len(knobs) <= MOST_ALONE else 1
        self._start = ""
        self._draw_s = 0.0  # seconds that an image takes to draw

    def run(self, curves: Mapping[str, Curve]) -> KnobResults | None:
        """Return what the knobs do; None, and a note, if that cannot be measured."""
        self._start, size = where_to_compare(curves)
        curve = curves[self._start]
        if max(score.share for score in curve.scores) < _LEAST_SHARE:
            self._leave_out(", since a solver reads too little even before a change")
            return None
        sizes = [size] * len(self._settings)
        draws: list[list[Training]] = []
        while len(draws) < DRAWS and self._fits(sizes, len(draws)):
            row = self._train(sizes, len(draws))
            if not draws:
                row = self._train_with_enough_labels(row)
                sizes = [training.size for training in row]
            draws.append(row)
        if len(draws) < self._fewest:
            what = f"{counted(self._fewest, 'draw')} of {len(self._settings)} settings"
            self._leave_out(f"; the budget is too short for {what}")
            return None
        return self._compare(curve, draws)

    def _leave_out(self, reason: str) -> None:
        note = f"{KNOBS_LEFT_OUT}{reason}."
        self._budget.notes.append(note)
        say(f"left out   {note}", self._budget.quiet)

    def _train_with_enough_labels(self, row: list[Training]) -> list[Training]:
        """Train those settings that are read too little with more labels, while that fits."""
        while True:
            sizes = [self._choose_size(training) for training in row]
            if sizes == [training.size for training in row] or not self._fits(sizes, 0):
                return row
            row = self._train(sizes, 0)

    def _choose_size(self, training: Training) -> int:
        """Return the number of labels that a setting needs, for a solver to read some of it."""
        result = self._budget.trained[training.name]
        larger = [size for size in SIZES if training.size < size <= self._largest]
        if larger and result.right < _LEAST_READ * result.tested:
            return larger[0]
        return training.size

    def _fits(self, sizes: Sequence[int], draw: int) -> bool:
        """Tell whether a draw ends within the budget, with those without which it is void.

        Trainings that have finished take no time.
        """
        seconds = 0.0
        for number in range(draw, max(draw + 1, self._fewest)):
            new = self._budget.unfinished(self._place(sizes, number))
            images = sum(training.size + _TESTED for training in new)
            seconds += self._budget.expected_s(new) + self._draw_s * images
        if seconds <= self._budget.left:
            return True
        labels = f"draw {draw + 1} of the knobs with up to {max(sizes):,} labels"
        left = f"the budget has {duration(self._budget.left)} left"
        what = f"{labels} would take about {duration(seconds)}, and {left}"
        say(f"left out   {what}", self._budget.quiet)
        return False

    def _place(self, sizes: Sequence[int], draw: int) -> list[Training]:
        """Return the trainings of a draw without their labels."""
        trainings = []
        for setting, size in zip(self._settings, sizes, strict=True):
            folder = self._base.images.parent / f"{setting.name}-{size}-{draw}"
            pool = LabelPool(folder, (), (), self._base.seed, setting.name)
            trainings.append(Training(pool, self._start, size, draw))
        return trainings

    def _train(self, sizes: Sequence[int], draw: int) -> list[Training]:
        """Draw the images of all settings, and train on them; return the trainings."""
        started, images, row = time.monotonic(), 0, []
        for setting, training in zip(self._settings, self._place(sizes, draw), strict=True):
            pool, count = training.pool, training.size + _TESTED
            if not pool.images.exists():
                images += count
            seed = 1000 * pool.seed + draw + 1
            self.failures += self._generator.draw(pool.images, count, seed, setting.levels)
            labels = tuple(find_labels(pool.images).check().labels)
            learned, tested = labels[: training.size], labels[training.size :]
            row.append(replace(training, pool=replace(pool, labels=learned, tested=tested)))
        if images:
            self._draw_s = (time.monotonic() - started) / images
        self._budget.run(row)
        return row

    def _compare(self, curve: Curve, draws: list[list[Training]]) -> KnobResults:
        """Return what the knobs do. draws: (draws, settings)."""
        reached: list[list[Reached]] = []
        settings = []
        fixed = self._judge_unchanged(draws)
        for number, setting in enumerate(self._settings):
            size = draws[0][number].size
            results = [self._budget.trained[row[number].name] for row in draws]
            shares = [result.right / result.tested for result in results]
            reached.append([Reached(size, share) for share in shares])
            settings.append(SettingResult(setting.label, size, shares, fixed[number]))
        pairs: list[str] = []
        if len(self._knobs) <= MOST_ALONE:
            effects = effects_alone(self._knobs, curve, reached)
        else:
            effects, pairs = effects_together(self._knobs, curve, reached), confounded(self._knobs)
        return KnobResults(self._start, len(draws), settings, effects, pairs)

    def _judge_unchanged(self, draws: list[list[Training]]) -> list[float]:
        """Return how much of each setting the solvers read that learned the base."""
        means = [0.0] * len(self._settings)
        for row in draws:
            reader = Recognizer(self._budget.run_folder(row[0]))
            for number, training in enumerate(row):
                pool = training.pool
                answers = [judged.answer for judged in judge(reader, pool.images, pool.tested)]
                right = sum(is_right for _, is_right in answers)
                means[number] += right / len(answers) / len(draws)
        return means
