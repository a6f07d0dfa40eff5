"""The verdict of an audit, and what an attack costs: pure functions of what was measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from captcha_ocr.audit.statistics import Curve, attempts
from captcha_ocr.scores import wilson_interval

PRICE_OF_CORE_HOUR = 0.05  # $, of a rented processor
PRICE_OF_PEOPLE = 0.50  # $ for 1,000 captchas that people solve (the client of anti-captcha.com)
PRICE_OF_LABEL = 2 * PRICE_OF_PEOPLE / 1000  # $: two of them read the same image
MILLISECONDS = 4.0  # of a core, to read an image
SOLVED = 100_000  # captchas, over which the costs of an attack are spread
LEAST_TESTED = 381  # images, of which none is read, for an upper end below BROKEN
TARGETS = (0.01, 0.5, 0.9)  # shares, for which labels are counted
BROKEN, MOSTLY = 0.01, 0.5  # shares that are solved: Bursztein et al. 2011 call 1 % broken


@dataclass(frozen=True)
class Attack:
    """A solver that was measured: its start, its labels, the share it solves, with the interval, and its training."""

    start: str
    labels: int
    share: float
    interval: tuple[float, float]
    training_s: float

    @property
    def cost(self) -> dict[str, Any]:
        """What SOLVED captchas cost this attacker, in $: labels, training, reading, and all of it for 1,000 solved.

        The interval is that of the whole: the more images a solver reads, the fewer it must try.
        """
        labels = self.labels * PRICE_OF_LABEL
        training = self.training_s / 3600 * PRICE_OF_CORE_HOUR
        readings = [
            SOLVED * attempts(p) * MILLISECONDS / 3.6e6 * PRICE_OF_CORE_HOUR
            for p in (self.share, *self.interval)
        ]
        whole, most, least = ((labels + training + reading) / SOLVED * 1000 for reading in readings)
        return {
            "labels": labels,
            "training": training,
            "reading": readings[0],
            "for_1000": whole,
            "interval": (least, most),
        }


@dataclass(frozen=True)
class Verdict:
    """One of KINDS, and why, in a sentence."""

    kind: str
    why: str


KINDS = {
    "trick": "It falls to a trick",
    "cheaply": "It is broken cheaply",
    "broken": "It is broken",
    "undecided": "Undecided",
    "holds": "Not broken by this solver",
}


def attacks_of(
    curves: Mapping[str, Curve], zero_shot: tuple[int, int], seconds: dict[tuple[str, int], float]
) -> list[Attack]:
    """Return every solver that was measured.

    zero_shot: (right, tested) without any label. seconds: of the trainings.
    """
    right, tested = zero_shot
    found = [Attack("general", 0, right / tested, wilson_interval(right, tested), 0.0)]
    for start, curve in curves.items():
        found += [
            Attack(start, each.labels, each.share, each.interval, seconds[start, each.labels])
            for each in curve.scores
        ]
    return found


def verdict_of(attacks: Sequence[Attack], findings: Sequence[str]) -> Verdict:
    """Return the verdict. A share is a lower bound on the best attacker, so it never says that a captcha is safe."""
    if findings:
        return Verdict("trick", findings[0])
    cheap = [
        attack
        for attack in attacks
        if attack.interval[0] >= MOSTLY and attack.cost["for_1000"] < PRICE_OF_PEOPLE
    ]
    if cheap:
        best = best_of(cheap)
        return Verdict(
            "cheaply", f"{sentence(best)}. 1,000 solved cost {money(best.cost['for_1000'])}."
        )
    best = max(attacks, key=lambda attack: attack.interval[0])
    if best.interval[0] >= BROKEN:
        return Verdict("broken", f"{sentence(best)}.")
    highest = max(attacks, key=lambda attack: attack.interval[1])
    if highest.interval[1] >= BROKEN:
        return Verdict(
            "undecided", f"{sentence(highest)}: the interval includes {100 * BROKEN:g} %."
        )
    most = max(attack.labels for attack in attacks)
    return Verdict(
        "holds",
        f"With up to {most:,} labels it read fewer than {100 * highest.interval[1]:.1f} % of the images.",
    )


def sentence(attack: Attack) -> str:
    """Return what a solver does, without the full stop."""
    low, high = attack.interval
    trained = (
        f"Trained on {attack.labels:,} labels, the solver"
        if attack.labels
        else "Without a label of it, the model in captcha-ocr"
    )
    interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
    return f"{trained} reads {100 * attack.share:.1f} % of new images ({interval})"


def money(dollars: float) -> str:
    """Return dollars and cents."""
    if math.isinf(dollars):
        return "no limit"
    return f"${dollars:,.2f}" if dollars >= 0.005 or not dollars else "less than $0.01"


def best_of(attacks: Sequence[Attack]) -> Attack:
    """Return the solver that reads most."""
    return max(attacks, key=lambda attack: (attack.share, -attack.labels))


def as_json(attack: Attack) -> dict[str, Any]:
    """Return a solver as JSON types."""
    return {**vars(attack), "interval": list(attack.interval), "cost": attack.cost}
