"""What the statistics of an audit promise, by simulation."""

import math
from collections import namedtuple

import numpy as np
import pytest

from captcha_ocr.audit.solvers.knobs import find_effects
from captcha_ocr.audit.statistics import (
    Curve,
    Score,
    attempts,
    log_factor,
    logit,
    main_effects,
    precision_by_coverage,
    screening_design,
    solved_before_lock,
    solved_in_hour,
    solved_within,
)
from captcha_ocr.scores import wilson_interval

SIZES = (30, 100, 300, 1000)
TIMES = 1000


@pytest.fixture
def covers(soak, figure):
    """A function that takes whether each interval holds the truth, and checks how many do.

    With --soak it also records their share.
    """

    def check(what, covered):
        if soak:
            figure(f"{what}: {100 * np.mean(covered):.1f} %")
        assert np.mean(covered) >= 0.9

    return check


class Truth(namedtuple("Truth", "half slope between ceiling")):
    """A learning curve that reaches half of its ceiling at `half` labels.

    Its draws differ by `between` log odds.
    """

    def share(self, labels):
        """The exact match to expect."""
        return self.ceiling / (1 + (self.half / labels) ** self.slope)

    def labels_for(self, share):
        """The labels at which it reaches a share."""
        return (
            self.half / (self.ceiling / share - 1) ** (1 / self.slope)
            if share < self.ceiling
            else math.inf
        )

    def right(self, rng, labels, tested):
        """How many test images the solvers of three draws read."""
        odds = logit(min(self.share(labels), 1 - 1e-9)) + self.between * rng.normal(size=3)
        return tuple(map(int, rng.binomial(tested, 1 / (1 + np.exp(-odds)))))

    def curve(self, rng):
        """What an audit measures of it, on 1,000 images."""
        return Curve(tuple(Score(labels, self.right(rng, labels, 1000), 1000) for labels in SIZES))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5, 0.93])
def test_wilson_intervals_cover(share):
    intervals = [
        wilson_interval(int(n), 1000)
        for n in np.random.default_rng(0).binomial(1000, share, 10 * TIMES)
    ]
    assert 0.92 <= np.mean([low <= share <= high for low, high in intervals]) <= 0.98


@pytest.mark.parametrize("between", [0.1, 0.5, 1])
@pytest.mark.parametrize("slope", [1.5, 3, 5])
@pytest.mark.parametrize("ceiling", [0.9, 0.995, 1])
def test_intervals_of_the_curve_and_of_labels_cover(soak, covers, slope, between, ceiling):
    rng = np.random.default_rng(1)
    of_curve, of_labels = [], []
    for _ in range(TIMES if soak else 300):
        # Half of the ceiling is among the measured numbers of labels, or beyond them.
        half = math.exp(rng.uniform(math.log(20), math.log(1500)))
        truth = Truth(half, slope, between, ceiling)
        curve = truth.curve(rng)
        for score in curve.scores:
            low, high = score.interval
            of_curve.append(low <= truth.share(score.labels) <= high)
        for share in (0.01, 0.5, 0.9):
            _, low, high = curve.labels_for(share)
            needed = truth.labels_for(share)
            below, above = needed < SIZES[0] and low == 0, needed > SIZES[-1] and high == math.inf
            of_labels.append(below or above or low <= needed <= high)
    covers("curve", of_curve)
    covers("labels", of_labels)


@pytest.mark.parametrize("factor", [0.5, 1, 2, 4])
@pytest.mark.parametrize("between", [0.1, 0.5])
def test_intervals_of_a_knobs_factor_cover(covers, factor, between):
    rng, covered = np.random.default_rng(2), []
    for _ in range(TIMES):
        base = Truth(math.exp(rng.uniform(math.log(80), math.log(250))), 2, between, 1)
        changed = Truth(base.half * factor, 2, between, 1)
        rights = [truth.right(rng, 300, 500) for truth in (base, changed)]
        curve = base.curve(rng)
        logs = [[log_factor(curve, 300, right / 500) for right in row] for row in rights]
        (effect,) = find_effects({"knob": [0, 1]}, np.array(logs))
        covered.append(effect.factor.low <= factor <= effect.factor.high)
    covers("factor", covered)


def test_main_effects_cover(covers):
    rng, design, covered = np.random.default_rng(4), screening_design(6), []
    effects = np.array([1, 0, -2, 0.5, 0, 0])
    for _ in range(TIMES):
        values = (design @ effects / 2)[:, None] + rng.normal(0, 0.5, (len(design), 3))
        found = main_effects(design, values)
        covered += [
            low <= true <= high for true, (_, low, high) in zip(effects, found, strict=True)
        ]
    covers("main effects", covered)


@pytest.mark.parametrize("coverage", [1, 0.5, 0.1])
def test_precision_of_the_surest_readings_covers(covers, coverage):
    rng, covered = np.random.default_rng(6), []
    truth = 1 - coverage / 2  # of confidences that are even between 0 and 1, and calibrated
    for _ in range(TIMES):
        sure = rng.random(1000)
        readings = [*zip(sure.tolist(), (rng.random(1000) < sure).tolist(), strict=True)]
        (row,) = precision_by_coverage(readings, [coverage])
        low, high = row.interval
        covered.append(low <= truth <= high)
    covers("precision", covered)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_attempts(share):
    rng, solved, in_hour = np.random.default_rng(5), [], []
    for _ in range(3 * TIMES):
        tries = rng.random(2000) < share
        failed = np.flatnonzero(~tries)
        lock = next(
            n for n in range(2, len(failed)) if failed[n] - failed[n - 2] == 2
        )  # the third in a row
        solved.append(failed[lock] - lock)
        in_hour.append(failed[19] - 19)  # 20 failures are allowed
    assert solved_before_lock(share, 3) == pytest.approx(np.mean(solved), rel=0.1)
    assert solved_in_hour(share, 20) == pytest.approx(np.mean(in_hour), rel=0.1)
    assert solved_within(share, 3) == pytest.approx(
        np.mean(rng.random((20_000, 3)).min(axis=1) < share), abs=0.02
    )
    assert attempts(share) == pytest.approx(np.mean(rng.geometric(share, 20_000)), rel=0.03)
