import math
from itertools import combinations

import numpy as np
import pytest

from captcha_ocr.audit.statistics import (
    T_QUANTILES,
    Answered,
    Curve,
    Score,
    attempts,
    log_factor,
    mean_interval,
    precision_by_coverage,
    screening_design,
    solved_before_lock,
    solved_in_hour,
)
from captcha_ocr.scores import wilson_interval

SIZES = (30, 100, 300, 1000)
LABELS_MEASURED = Curve(
    tuple(
        Score(size, (right,) * 3, 1000)
        for size, right in zip(SIZES, (10, 300, 900, 990), strict=True)
    )
)


# Tables of Student's t in any textbook, such as section 1.3.6.7.2 of the NIST/SEMATECH e-Handbook
# of Statistical Methods.
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228)],
)
def test_quantiles_of_student(freedom, quantile):
    assert T_QUANTILES[freedom - 1] == pytest.approx(quantile, abs=6e-4)


def test_labels_needed_lie_between_measured_numbers_and_are_censored_at_both_ends():
    value, low, high = LABELS_MEASURED.labels_for(0.5)
    assert 100 < low < value < high < 300
    assert LABELS_MEASURED.labels_for(0.005).value == 0
    assert LABELS_MEASURED.labels_for(0.999) == (math.inf, math.inf, math.inf)


def test_a_curve_never_falls():
    scores = [
        Score(size, (right,) * 3, 1000) for size, right in ((30, 500), (100, 400), (300, 900))
    ]
    assert (np.diff(Curve(tuple(scores)).odds) >= 0).all()


def test_a_single_draw_has_the_interval_of_its_images_and_one_value_none():
    assert Score(100, (300,), 1000).interval == pytest.approx(wilson_interval(300, 1000), abs=1e-3)
    assert mean_interval([3.0]) == (3, -math.inf, math.inf)


def test_attempts_at_the_ends():
    assert (attempts(0), solved_before_lock(0, 3), solved_in_hour(0, 100)) == (math.inf, 0, 0)
    assert (attempts(1), solved_before_lock(1, 3), solved_in_hour(1, 100)) == (
        1,
        math.inf,
        math.inf,
    )


def test_the_surest_readings_come_first():
    readings = [(0.9, True), (0.8, True), (0.2, False), (0.1, False)]
    assert precision_by_coverage(readings, (1, 0.5)) == [Answered(4, 2, 1), Answered(2, 2, 0.5)]


def test_a_change_may_be_measured_with_more_labels():
    more, usual = (log_factor(LABELS_MEASURED, labels, 0.9) for labels in (1000, 300))
    assert math.exp(more - usual) == pytest.approx(10 / 3)


@pytest.mark.parametrize(("factors", "runs"), [(4, 8), (5, 16), (6, 16), (8, 16)])
def test_screening_designs_have_resolution_four(factors, runs):
    design = screening_design(factors)
    assert design.shape == (runs, factors)
    assert (design.T @ design == runs * np.eye(factors)).all()
    pairs = np.stack([design[:, pair].prod(axis=1) for pair in combinations(range(factors), 2)])
    assert (pairs @ design == 0).all()  # no main effect is confounded with a pair
