"""The knobs of a captcha: what can be changed, and by what factor that changes the labels needed.

Solvers are trained again for each setting, since an attacker adapts.
"""

import json
import time
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from captcha_ocr.audit.images.generators import ImageGenerator
from captcha_ocr.audit.solvers.trainings import DRAWS, SIZES, LabelPool, TimeBudget, Training
from captcha_ocr.audit.statistics import (
    Curve,
    Estimate,
    Score,
    exp_estimate,
    log_factor,
    logit,
    main_effects,
    mean_interval,
    screening_design,
)
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import UsageError, check
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted, duration, say
from captcha_ocr.system.files import MAX_TOML_BYTES, read_text, sha256

_MOST_ALONE = 4  # knobs that are changed one at a time; more share a screening design
_MOST_KNOBS = 8
_WISHED = 0.6  # exact match of the base where knobs are compared: neither 0 nor 1
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
        return f"knobs-{sha256(json.dumps(dict(self.levels), sort_keys=True).encode())[:8]}"


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
        document = tomllib.loads(read_text(path, MAX_TOML_BYTES))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is not a TOML file: {error}") from None
    table = document.get("knobs", {})
    check(isinstance(table, dict) and bool(table), f"{path} has no table [knobs]")
    knobs = _flatten(table)
    for name, levels in knobs.items():
        values = levels if isinstance(levels, list) else [levels]
        check(
            len({json.dumps(level, default=str) for level in values}) >= 2,
            f"{path}: {name} needs a list of two levels or more, the present one first",
        )
    check(
        len(knobs) <= _MOST_KNOBS,
        f"{path} has {len(knobs)} knobs; {_MOST_KNOBS} are the most that are measured",
    )
    return knobs


def _flatten(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the leaves of nested tables with dotted names: TOML reads text.spacing as a table."""
    leaves: dict[str, Any] = {}
    for name, value in table.items():
        is_table = isinstance(value, dict)
        leaves |= _flatten(value, f"{before}{name}.") if is_table else {before + name: value}
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
        last = {name: knobs[name][-1] for name, side in zip(knobs, run, strict=True) if side > 0}
        settings.append(Setting(", ".join(last) or "none", base | last))
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
    measured = [
        (start, score) for start, curve in (passing or curves).items() for score in curve.scores
    ]

    def measure_distance(place: tuple[str, Score]) -> float:
        return abs(logit(min(max(place[1].share, 1e-4), 0.9999)) - logit(_WISHED))

    start, score = min(measured, key=measure_distance)
    return start, score.labels


def find_effects(knobs: Knobs, logs: np.ndarray) -> list[Effect]:
    """Return the effect of each change alone, or of each knob in a screening design.

    logs: of factors on the labels, (settings, draws), as `list_settings`.
    """
    if len(knobs) <= _MOST_ALONE:
        changes = _list_changes(knobs)
        estimates = [mean_interval(row - logs[0]) for row in logs[1:]]
    else:
        changes = [(name, levels[-1]) for name, levels in knobs.items()]
        estimates = main_effects(screening_design(len(knobs)), logs)
    return [
        Effect(name, f"{knobs[name][0]} → {level}", exp_estimate(estimate))
        for (name, level), estimate in zip(changes, estimates, strict=True)
    ]


def confounded(knobs: Knobs) -> list[str]:
    """Return which pairs of knobs a screening design cannot tell apart, a line for each group."""
    if len(knobs) <= _MOST_ALONE:
        return []
    groups: defaultdict[bytes, list[str]] = defaultdict(list)
    columns = zip(knobs, screening_design(len(knobs)).T, strict=True)
    for (first, one), (second, other) in combinations(columns, 2):
        product = one * other
        groups[(product * product[0]).tobytes()].append(f"{first} × {second}")
    return [" = ".join(pairs) for pairs in groups.values() if len(pairs) > 1]


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
    largest: the most labels.
    """

    def __init__(
        self,
        generator: ImageGenerator,
        knobs: Knobs,
        base: LabelPool,
        budget: TimeBudget,
        largest: int,
    ) -> None:
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
            self._budget.leave_out("knobs, since a solver reads too little even before a change")
            return None
        draws: list[list[Training]] = []
        sizes, larger = list[int](), [size] * len(self._settings)
        while larger != sizes and self._fits(larger, 0):
            sizes = larger
            draws = [self._train(sizes, 0)]
            larger = list(map(self._choose_size, draws[0]))
        while 0 < len(draws) < DRAWS and self._fits(sizes, len(draws)):
            draws.append(self._train(sizes, len(draws)))
        if len(draws) < self._fewest:
            self._budget.leave_out(
                f"knobs; the budget is too short for {counted(self._fewest, 'draw')}"
                f" of {len(self._settings)} settings"
            )
            return None
        return self._compare(curve, draws)

    def _choose_size(self, training: Training) -> int:
        """Return the number of labels that a setting needs, for a solver to read some of it."""
        result, size = self._budget.trained[training.name], training.size
        if result.right >= _LEAST_READ * result.tested:
            return size
        return min((more for more in SIZES if size < more <= self._largest), default=size)

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
        say(
            f"left out   draw {draw + 1} of the knobs with up to {max(sizes):,} labels would take"
            f" about {duration(seconds)}, and the budget has {duration(self._budget.left)} left",
            self._budget.quiet,
        )
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
        started, row = time.monotonic(), []
        for setting, training in zip(self._settings, self._place(sizes, draw), strict=True):
            pool, size = training.pool, training.size
            seed = 1000 * pool.seed + draw + 1
            count = size + _TESTED
            self._generator.draw(pool.images, count, seed, setting.levels)
            labels = tuple(find_labels(pool.images).labels)
            pool = replace(pool, labels=labels[:size], tested=labels[size:])
            row.append(replace(training, pool=pool))
        image_s = (time.monotonic() - started) / (sum(sizes) + _TESTED * len(sizes))
        self._draw_s = max(self._draw_s, image_s)  # an audit that goes on finds images drawn
        self._budget.run(row)
        return row

    def _compare(self, curve: Curve, draws: list[list[Training]]) -> KnobResults:
        """Return what the knobs do. draws: (draws, settings)."""
        unchanged = [Recognizer(self._budget.run_folder(row[0])) for row in draws]
        settings, logs = [], []
        for setting, row in zip(self._settings, zip(*draws, strict=True), strict=True):
            size = row[0].size
            results = [self._budget.trained[training.name] for training in row]
            shares = [result.right / result.tested for result in results]
            fixed = fmean(map(_read_share, unchanged, row))
            settings.append(SettingResult(setting.label, size, shares, fixed))
            logs.append([log_factor(curve, size, share) for share in shares])
        effects = find_effects(self._knobs, np.array(logs))
        return KnobResults(self._start, len(draws), settings, effects, confounded(self._knobs))


def _read_share(reader: Recognizer, training: Training) -> float:
    """Return the share of a training's test images that a model reads."""
    return fmean(is_right for _, is_right in training.pool.judge(reader))
