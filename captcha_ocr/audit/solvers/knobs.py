"""The knobs of a captcha: what can be changed, and by what factor that changes the labels needed.

Solvers are trained again for each setting, since an attacker adapts.
"""

import hashlib
import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from captcha_ocr.audit.images.generators import ImageGenerator
from captcha_ocr.audit.solvers.trainings import DRAWS, SIZES, LabelPool, TimeBudget, Training
from captcha_ocr.audit.statistics import (
    Curve,
    Estimate,
    Reached,
    confounded_pairs,
    exp_estimate,
    factor_on_labels,
    log_factor,
    logit,
    main_effects,
    screening_design,
)
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import UsageError, check
from captcha_ocr.experiments.judge import judge
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted, duration, say

_MOST_ALONE = 4  # knobs that are changed one at a time; more share a screening design
_MOST_KNOBS = 8
_WISHED = 0.6  # exact match of the base where knobs are compared: neither 0 nor 1

KNOBS_LEFT_OUT = "Not measured: knobs"  # how the reason begins
_TESTED = 500  # images, of each setting and draw
_FEWEST_DRAWS = 2  # of changes one at a time; a screening design shows the spread in its settings
_LEAST_SHARE = 0.02  # that the base must read, to be compared
_LEAST_READ = 0.5  # of a setting; with less, it gets more labels

Knobs = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Setting:
    """Levels of all knobs; label: in a screening design, the knobs at their last level."""

    label: str
    levels: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A name for its files."""
        text = json.dumps(dict(self.levels), sort_keys=True)
        return f"knobs-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Effect:
    """What a change of a knob does: by what factor it multiplies the labels that are needed."""

    knob: str
    change: str
    factor: Estimate


def read_knobs(path: Path) -> dict[str, list[Any]]:
    """Read the levels of each knob, the present one first, from [knobs] of a TOML file.

    UsageError that names the file.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    table = document.get("knobs", {})
    check(isinstance(table, dict) and bool(table), f"{path} has no table [knobs]")
    knobs = _flatten(table)
    for name, levels in knobs.items():
        message = f"{path}: {name} needs a list of two levels or more, the present one first"
        check(isinstance(levels, list), message)
        check(len({json.dumps(level, default=str) for level in levels}) >= 2, message)
    count = f"{path} has {len(knobs)} knobs"
    check(len(knobs) <= _MOST_KNOBS, f"{count}; {_MOST_KNOBS} are the most that are measured")
    return knobs


def _flatten(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the leaves of nested tables with dotted names: TOML reads text.spacing as a table."""
    leaves: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            leaves |= _flatten(value, f"{before}{name}.")
        else:
            leaves[before + name] = value
    return leaves


def list_settings(knobs: Knobs) -> list[Setting]:
    """Return the settings to measure.

    The base and one change at a time, or the runs of a screening design.
    """
    base = {name: levels[0] for name, levels in knobs.items()}
    if len(knobs) <= _MOST_ALONE:
        changes = [
            Setting(f"{name} = {level}", {**base, name: level})
            for name, level in _list_changes(knobs)
        ]
        return [Setting("base", base), *changes]
    settings = []
    for run in screening_design(len(knobs)):
        changed = [name for name, side in zip(knobs, run, strict=True) if side > 0]
        last = {name: knobs[name][-1] for name in changed}
        settings.append(Setting(", ".join(changed) or "none", base | last))
    return settings


def _list_changes(knobs: Knobs) -> list[tuple[str, Any]]:
    return [(name, level) for name, levels in knobs.items() for level in levels[1:]]


def where_to_compare(curves: Mapping[str, Curve]) -> tuple[str, int]:
    """Return the start and the number of labels where the exact match is far from 0 and 1.

    A curve that passes _WISHED goes first: only on both sides of it can a factor on labels be read
    off.
    """
    passing = {
        start: curve
        for start, curve in curves.items()
        if curve.scores[0].share < _WISHED < curve.scores[-1].share
    }
    distances = []
    for start, curve in (passing or curves).items():
        for score in curve.scores:
            odds = logit(min(max(score.share, 1e-4), 0.9999))
            distances.append((abs(odds - logit(_WISHED)), start, score.labels))
    _, start, labels = min(distances, key=lambda row: row[0])
    return start, labels


def effects_alone(knobs: Knobs, curve: Curve, reached: Sequence[Sequence[Reached]]) -> list[Effect]:
    """Return the effect of each change, alone. reached: (settings, draws), as `list_settings`."""
    effects = []
    for row, (name, level) in zip(reached[1:], _list_changes(knobs), strict=True):
        factor = factor_on_labels(curve, reached[0], row)
        effects.append(Effect(name, f"{knobs[name][0]} → {level}", factor))
    return effects


def effects_together(
    knobs: Knobs, curve: Curve, reached: Sequence[Sequence[Reached]]
) -> list[Effect]:
    """Return the main effects of a screening design. reached: (runs, draws)."""
    logs = np.array([log_factor(curve, draw) for row in reached for draw in row])
    estimates = main_effects(screening_design(len(knobs)), logs.reshape(len(reached), -1))
    return [
        Effect(name, f"{levels[0]} → {levels[-1]}", exp_estimate(estimate))
        for (name, levels), estimate in zip(knobs.items(), estimates, strict=True)
    ]


def confounded(knobs: Knobs) -> list[str]:
    """Return which pairs of knobs a screening design cannot tell apart, a line for each group."""
    names, lines = list(knobs), []
    for group in confounded_pairs(screening_design(len(knobs))):
        pairs = [f"{names[first]} × {names[second]}" for first, second in group]
        lines.append(" = ".join(pairs))
    return lines


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
        self._fewest = _FEWEST_DRAWS if len(knobs) <= _MOST_ALONE else 1
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
        if len(self._knobs) <= _MOST_ALONE:
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
