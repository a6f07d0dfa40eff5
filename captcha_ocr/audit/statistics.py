"""The statistics of an audit: pure functions and values."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from captcha_ocr.scores import wilson_interval

BEND = 0.25  # a curve may bend between two measured points: an interval of labels gets that share of a segment wider


class Estimate(NamedTuple):
    """A value with its 95 % interval; 0 and infinity stand for what lies below and above all that was measured."""

    value: float
    low: float
    high: float


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t (Hill 1970, CACM 13:619, algorithm 396, here for one probability)."""
    probability = 0.05  # of both tails
    if freedom == 1:
        return 1 / math.tan(probability * math.pi / 2)
    if freedom == 2:
        return math.sqrt(2 / (probability * (2 - probability)) - 2)
    a = 1 / (freedom - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * freedom
    y = (d * probability) ** (2 / freedom)
    if y > 0.05 + a:
        x = -1.959964
        if freedom < 5:
            c += 0.3 * (freedom - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = x * x
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (
                1 / (((freedom + 6) / (freedom * y) - 0.089 * d - 0.822) * (freedom + 2) * 3)
                + 0.5 / (freedom + 4)
            )
            * y
            - 1
        ) * (freedom + 1) / (freedom + 2) + 1 / y
    return math.sqrt(freedom * y)


def logit(share: float) -> float:
    """Return the logarithm of the odds of a share; minus and plus infinity at 0 and 1."""
    return math.log(share / (1 - share)) if 0 < share < 1 else math.copysign(math.inf, share - 0.5)


def angle(share: float) -> float:
    """Return the arcsine of the root of a share, 0 to pi / 2."""
    return math.asin(math.sqrt(min(max(share, 0.0), 1.0)))


def share_of(turn: float) -> float:
    """Invert `angle`; beyond its ends, 0 and 1."""
    return math.sin(min(max(turn, 0.0), math.pi / 2)) ** 2


def mean_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of a few independent values, with Student's interval, which has no ends for a single one."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, -math.inf, math.inf)
    reach = t_quantile(count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Estimate(mean, mean - reach, mean + reach)


@dataclass(frozen=True)
class Score:
    """Exact matches after training on so many labels: of each draw of them, all on the same test images."""

    labels: int
    right: tuple[int, ...]
    tested: int

    @property
    def share(self) -> float:
        """The mean exact match of the draws, 0 to 1."""
        return sum(self.right) / len(self.right) / self.tested

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the exact match to expect of a new draw's like, over draws and over images.

        As angles, whose spread does not depend on the share, the distances to Wilson's limits (the images) and to
        Student's (the draws, of which there are few) are added as squares, each side for itself (Zou and Donner 2008,
        Statistics in Medicine 27:1693).
        """
        low, high = wilson_interval(self.share * self.tested, self.tested)
        middle = angle(self.share)
        draws = [
            angle((right + 3 / 8) / (self.tested + 3 / 4)) for right in self.right
        ]  # Anscombe 1948
        between = mean_interval(draws).high - float(np.mean(draws)) if len(draws) > 1 else 0.0
        return (
            share_of(middle - math.hypot(middle - angle(low), between)),
            share_of(middle + math.hypot(angle(high) - middle, between)),
        )


@dataclass(frozen=True)
class Curve:
    """Exact match against labels: scores in the order of their labels, joined by lines over log odds and log labels.

    More labels are taken never to make it worse. Nothing is said beyond the measured numbers of labels.
    """

    scores: tuple[Score, ...]

    @cached_property
    def odds(self) -> np.ndarray:
        """Log odds of the exact match, of its lower and of its upper limit: (3, S), none falling with the labels."""
        shares = np.array(
            [(score.share, *score.interval) for score in self.scores], dtype=np.float64
        ).T  # (3, S)
        with np.errstate(divide="ignore"):
            odds = np.log(shares) - np.log1p(-shares)
        odds[:2] = np.maximum.accumulate(odds[:2], axis=1)
        odds[2] = np.minimum.accumulate(odds[2, ::-1])[::-1]
        return odds

    def labels_for(self, share: float) -> Estimate:
        """Return the labels that an exact match needs: 0 for fewer than the fewest, infinity for not reached."""
        values, lows, highs = self.odds
        odds = logit(share)
        return Estimate(
            self.crossing(values, odds),
            self.crossing(highs, odds, -BEND),
            self.crossing(lows, odds, BEND),
        )

    def crossing(self, line: np.ndarray, odds: float, bend: float = 0.0) -> float:
        """Return the labels from which a line lies above some log odds.

        bend: by which share of a segment, at most, its middle is moved towards more labels.
        """
        above = np.flatnonzero(line >= odds)
        if not len(above):
            return math.inf
        number = int(above[0])
        if number == 0:
            return 0.0
        left, right = float(line[number - 1]), float(line[number])
        fewer, more = self.scores[number - 1].labels, self.scores[number].labels
        if math.isinf(left):
            return float(more)  # the line is not known between them: no earlier than at its end
        if math.isinf(right):
            return float(fewer)
        place = (odds - left) / (right - left)  # 0 to 1, on the scale of log labels
        return float(fewer * (more / fewer) ** (place + 4 * bend * place * (1 - place)))


def attempts(share: float) -> float:
    """Return how many captchas are tried, on average, until one is solved."""
    return 1 / share if share else math.inf


def solved_within(share: float, tries: int) -> float:
    """Return the probability to solve at least one of so many captchas."""
    return 1 - (1 - share) ** tries


def solved_before_lock(share: float, failures: int) -> float:
    """Return how many captchas are solved, on average, before so many failures in a row lock the solver out."""
    fails = (1 - share) ** failures
    return (1 - fails) / fails if fails else math.inf


def solved_in_hour(share: float, failures: int) -> float:
    """Return how many captchas are solved in an hour, on average, in which so many failures are allowed."""
    return failures * share / (1 - share) if share < 1 else math.inf


class Answered(NamedTuple):
    """The readings of the highest confidence: their share of all, their number, and how many of them are right."""

    coverage: float
    images: int
    right: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share that is right."""
        return wilson_interval(self.right, self.images)


def precision_by_coverage(
    readings: Sequence[tuple[float, bool]], coverages: Sequence[float]
) -> list[Answered]:
    """Return how good the surest readings are, for each share of all; readings: (confidence, whether it is right)."""
    ranked = [right for _, right in sorted(readings, key=lambda reading: -reading[0])]
    counts = [max(1, round(coverage * len(ranked))) for coverage in coverages]
    return [
        Answered(coverage, n, sum(ranked[:n]))
        for coverage, n in zip(coverages, counts, strict=True)
    ]


def equivalent_labels(curve: Curve, share: float) -> float:
    """Return with how many labels the curve has an exact match, within the measured numbers of labels."""
    labels = curve.labels_for(share).value
    return min(max(labels, curve.scores[0].labels), curve.scores[-1].labels)


class Reached(NamedTuple):
    """The exact match of a solver that learned from so many labels."""

    labels: int
    share: float


def log_factor(curve: Curve, reached: Reached) -> float:
    """Return the logarithm of how many times as many labels as the curve a solver needed to become as good."""
    return math.log(reached.labels / equivalent_labels(curve, reached.share))


def factor_on_labels(curve: Curve, base: Sequence[Reached], changed: Sequence[Reached]) -> Estimate:
    """Return by what factor a change multiplies the labels that are needed.

    base, changed: solvers without and with the change; the same places have the same seed and texts. curve: that of the
    base, which says with how many labels it would be as bad.
    """
    logs = [
        log_factor(curve, after) - log_factor(curve, before)
        for before, after in zip(base, changed, strict=True)
    ]
    return Estimate(*map(math.exp, bounded(mean_interval(logs))))


def bounded(estimate: Estimate) -> Estimate:
    """Return an estimate of a logarithm whose exponential is finite."""
    return Estimate(*(min(max(value, -50.0), 50.0) for value in estimate))


def screening_design(factors: int) -> np.ndarray:
    """Return a two-level design of resolution IV, (runs, factors) of -1 and 1: no effect is confounded with a pair.

    The columns are products of an odd number of the columns of a full design, so that each defining word has an even
    length, of four or more (Box and Hunter 1961, Technometrics 3:311): 8 runs for 4 factors, 16 for 8, 32 for 16.
    """
    basic = max(3, math.ceil(math.log2(2 * factors)))
    levels = np.array(
        [[1 if run >> bit & 1 else -1 for bit in range(basic)] for run in range(2**basic)]
    )
    odd = [
        columns for size in range(1, basic + 1, 2) for columns in combinations(range(basic), size)
    ]
    return np.stack([levels[:, list(columns)].prod(axis=1) for columns in odd[:factors]], axis=1)


def confounded_pairs(design: np.ndarray) -> list[list[tuple[int, int]]]:
    """Return groups of pairs of factors whose interactions a design cannot tell apart."""
    groups: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for pair in combinations(range(design.shape[1]), 2):
        product = design[:, pair[0]] * design[:, pair[1]]
        groups[(product * product[0]).tobytes()].append(pair)
    return [pairs for pairs in groups.values() if len(pairs) > 1]


def main_effects(design: np.ndarray, values: np.ndarray) -> list[Estimate]:
    """Return the effect of each factor, from its low to its high level, with Student's interval.

    values: (runs, draws). What the factors do not explain, interactions included, is the error: rather too much.
    """
    runs, factors = design.shape
    means = values.mean(axis=1)
    slopes = design.T @ means / runs
    left = means - means.mean() - design @ slopes
    freedom = runs - 1 - factors
    reach = t_quantile(freedom) * math.sqrt(float(left @ left) / freedom / runs)
    return [
        Estimate(2 * slope, 2 * (slope - reach), 2 * (slope + reach))
        for slope in map(float, slopes)
    ]
