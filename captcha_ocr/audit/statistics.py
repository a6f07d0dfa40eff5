"""The statistics of an audit: pure functions and values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from captcha_ocr.scores import wilson_interval

# A curve may bend between two measured points: an interval of labels is that share of a segment
# wider.
_BEND = 0.25
# The 97.5 % quantiles of Student's t for 1, 2 ... degrees of freedom. Draws have 1 or 2, screening
# designs 7 to 10.
T_QUANTILES = (
    *(12.706204736174694, 4.302652729749462, 3.182446, 2.776445, 2.570582),
    *(2.446912, 2.364624, 2.306004, 2.262157, 2.228139),
)


class Estimate(NamedTuple):
    """A value with its 95 % interval.

    0 and infinity stand for what lies below and above all that was measured.
    """

    value: float
    low: float
    high: float


def logit(share: float) -> float:
    """Return the logarithm of the odds of a share; minus and plus infinity at 0 and 1."""
    if 0 < share < 1:
        return math.log(share / (1 - share))
    return math.copysign(math.inf, share - 0.5)


def _to_angle(share: float) -> float:
    """Return the arcsine of the root of a share, 0 to pi / 2."""
    return math.asin(math.sqrt(min(max(share, 0.0), 1.0)))


def _to_share(angle: float) -> float:
    """Invert `_to_angle`; beyond its ends, 0 and 1."""
    return math.sin(min(max(angle, 0.0), math.pi / 2)) ** 2


def mean_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of one to eleven independent values, with Student's interval.

    That of a single value has no ends.
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Estimate(mean, -math.inf, math.inf)
    reach = T_QUANTILES[count - 2] * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Estimate(mean, mean - reach, mean + reach)


@dataclass(frozen=True)
class Score:
    """Exact matches after training on so many labels.

    right: of each draw of labels, all on the same test images.
    """

    labels: int
    right: tuple[int, ...]
    tested: int

    @property
    def shares(self) -> list[float]:
        """The exact match of each draw, 0 to 1."""
        return [right / self.tested for right in self.right]

    @property
    def share(self) -> float:
        """The mean exact match of the draws, 0 to 1."""
        return sum(self.right) / len(self.right) / self.tested

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the exact match to expect of a new draw, over draws and images.

        Shares become angles, whose spread does not depend on the share. The distances to Wilson's
        limits (the images) and to Student's (the draws, of which there are few) are added as
        squares, each side for itself (Zou and Donner 2008, Statistics in Medicine 27:1693).
        """
        low, high = wilson_interval(self.share * self.tested, self.tested)
        middle, between = _to_angle(self.share), 0.0
        if len(self.right) > 1:
            # Anscombe 1948
            draws = [_to_angle((right + 3 / 8) / (self.tested + 3 / 4)) for right in self.right]
            between = mean_interval(draws).high - float(np.mean(draws))
        below = math.hypot(middle - _to_angle(low), between)
        above = math.hypot(_to_angle(high) - middle, between)
        return _to_share(middle - below), _to_share(middle + above)


@dataclass(frozen=True)
class Curve:
    """Exact match against labels: lines between scores, over log odds and log labels.

    The scores are in the order of their labels. More labels are taken never to make it worse.
    Nothing is known beyond the measured numbers of labels.
    """

    scores: tuple[Score, ...]

    @property
    def sizes(self) -> list[int]:
        """The measured numbers of labels."""
        return [score.labels for score in self.scores]

    @cached_property
    def odds(self) -> np.ndarray:
        """Log odds of the exact match, of its lower and of its upper limit: (3, scores).

        None falls with the labels.
        """
        rows = [(score.share, *score.interval) for score in self.scores]
        shares = np.array(rows, dtype=np.float64).T
        with np.errstate(divide="ignore"):
            odds = np.log(shares) - np.log1p(-shares)
        odds[:2] = np.maximum.accumulate(odds[:2], axis=1)
        odds[2] = np.minimum.accumulate(odds[2, ::-1])[::-1]
        return odds

    def labels_for(self, share: float) -> Estimate:
        """Return the labels that an exact match needs.

        0 stands for fewer than the fewest, infinity for not reached.
        """
        values, lows, highs = self.odds
        odds = logit(share)
        return Estimate(
            self._find_crossing(values, odds),
            self._find_crossing(highs, odds, -_BEND),
            self._find_crossing(lows, odds, _BEND),
        )

    def _find_crossing(self, line: np.ndarray, odds: float, bend: float = 0.0) -> float:
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
    """Return how many captchas are solved, on average, before so many failures in a row."""
    fails = (1 - share) ** failures
    return (1 - fails) / fails if fails else math.inf


def solved_in_hour(share: float, failures: int) -> float:
    """Return how many captchas are solved in an hour that allows so many failures, on average."""
    return failures * share / (1 - share) if share < 1 else math.inf


@dataclass(frozen=True)
class Proportion:
    """How many of some images were read right."""

    images: int
    right: int

    @property
    def share(self) -> float:
        """The share that is right, 0 to 1."""
        return self.right / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return wilson_interval(self.right, self.images)


@dataclass(frozen=True)
class Answered(Proportion):
    """Answers of the highest confidence. coverage: their share of all."""

    coverage: float


def precision_by_coverage(
    judged: Sequence[tuple[float, bool]], coverages: Sequence[float]
) -> list[Answered]:
    """Return how good the most confident answers are, for each share of all.

    judged: (confidence, whether it is right).
    """
    ranked = [right for _, right in sorted(judged, key=lambda answer: -answer[0])]
    counts = [max(1, round(coverage * len(ranked))) for coverage in coverages]
    return [
        Answered(count, sum(ranked[:count]), coverage)
        for count, coverage in zip(counts, coverages, strict=True)
    ]


def log_factor(curve: Curve, labels: int, share: float) -> float:
    """Return the logarithm of the ratio of the labels that a solver needed for a share.

    The ratio is to the labels of the curve, within the measured numbers of labels.
    """
    on_curve = curve.labels_for(share).value
    return math.log(labels / min(max(on_curve, curve.sizes[0]), curve.sizes[-1]))


def exp_estimate(estimate: Estimate) -> Estimate:
    """Return the exponential of an estimate of a logarithm, within finite bounds."""
    return Estimate(*(math.exp(min(max(value, -50.0), 50.0)) for value in estimate))


def screening_design(factors: int) -> np.ndarray:
    """Return a two-level design of resolution IV, (runs, factors) of -1 and 1.

    No effect is confounded with a pair. The columns are products of an odd number of the columns of
    a full design, so that each defining word has an even length, of four or more (Box and Hunter
    1961, Technometrics 3:311): 8 runs for 4 factors, 16 for 8, 32 for 16.
    """
    basic = max(3, math.ceil(math.log2(2 * factors)))
    runs = np.arange(2**basic)[:, None]
    levels = 2 * (runs >> np.arange(basic) & 1) - 1
    products = [
        levels[:, columns].prod(axis=1)
        for size in range(1, basic + 1, 2)
        for columns in combinations(range(basic), size)
    ]
    return np.stack(products[:factors], axis=1)


def main_effects(design: np.ndarray, values: np.ndarray) -> list[Estimate]:
    """Return the effect of each factor, from its low to its high level, with Student's interval.

    values: (runs, draws). What the factors do not explain, interactions included, is the error:
    rather too much.
    """
    runs, factors = design.shape
    means = values.mean(axis=1)
    slopes = design.T @ means / runs
    left = means - means.mean() - design @ slopes
    freedom = runs - 1 - factors
    reach = T_QUANTILES[freedom - 1] * math.sqrt(float(left @ left) / freedom / runs)
    return [
        Estimate(2 * slope, 2 * (slope - reach), 2 * (slope + reach))
        for slope in map(float, slopes)
    ]
