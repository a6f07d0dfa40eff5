import math

import pytest

from captcha_ocr.audit.verdict import (
    LEAST_TESTED,
    SOLVED,
    Attack,
    best_attack,
    decide,
    format_money,
)
from captcha_ocr.scores import wilson_interval


def attack(right, tested=1000, labels=100):
    return Attack("random", labels, right / tested, wilson_interval(right, tested), 60.0)


@pytest.mark.parametrize(
    ("attacks", "findings", "kind"),
    [
        ([attack(0)], ["The text stands in the file."], "trick"),
        ([attack(900)], [], "cheaply"),
        ([attack(900, labels=100_000_000)], [], "broken"),
        ([attack(50)], [], "broken"),
        ([attack(1, 60)], [], "undecided"),
        ([attack(0, 1000)], [], "holds"),
        ([attack(0, LEAST_TESTED - 1)], [], "undecided"),
        ([attack(0, LEAST_TESTED)], [], "holds"),
    ],
)
def test_verdicts(attacks, findings, kind):
    assert decide(attacks, findings).kind == kind


def test_the_best_cheap_attack_is_named():
    assert "300 labels" in decide([attack(950, labels=300), attack(900, labels=100)], []).why


def test_costs_are_those_of_so_many_solved():
    cost = attack(500).cost
    # Two people read each of 100 labels.
    assert (cost.labels, cost.training) == pytest.approx((0.1, 60 / 3600 * 0.05))
    assert cost.for_1000 == pytest.approx(
        (cost.labels + cost.training + cost.reading) / SOLVED * 1000
    )


def test_the_interval_of_a_cost_is_that_of_the_images_read():
    found = attack(100)
    at_low, at_high = (
        Attack("random", 100, share, found.interval, 60.0).cost.for_1000 for share in found.interval
    )
    assert found.cost.interval == (at_high, at_low)
    assert at_high < found.cost.for_1000 < at_low


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "$0.00"),
        (0.0031, "less than $0.01"),
        (1234.5, "$1,234.50"),
        (math.inf, "no limit"),
        (attack(0).cost.for_1000, "no limit"),  # of what reads nothing
    ],
)
def test_money(dollars, text):
    assert format_money(dollars) == text


def test_the_best_reads_most_with_fewest_labels():
    attacks = [attack(900), attack(950, labels=300), attack(950, labels=100)]
    assert best_attack(attacks) is attacks[2]
