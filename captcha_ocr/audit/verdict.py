"""The verdict of an audit, and what an attack costs: pure functions of what was measured."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from captcha_ocr.audit.statistics import attempts

PRICE_OF_CORE_HOUR = 0.05  # $, of a rented processor
PRICE_OF_PEOPLE = 0.50  # $ for 1,000 captchas that people solve (the client of anti-captcha.com)
PRICE_OF_LABEL = 2 * PRICE_OF_PEOPLE / 1000  # $: two of them read the same image
MILLISECONDS = 4.0  # of a core, to read an image
SOLVED = 100_000  # captchas, over which the costs of an attack are spread
LEAST_TESTED = 381  # images, of which none is read, for an upper end below BROKEN
TARGETS = (0.01, 0.5, 0.9)  # shares, for which labels are counted
BROKEN, MOSTLY = 0.01, 0.5  # shares that are solved: Bursztein et al. 2011 call 1 % broken


@dataclass(frozen=True)
class Cost:
    """What SOLVED captchas cost an attacker, in $: labels, training, reading.

    for_1000: all of it, for 1,000 solved, with its interval.
    """

    labels: float
    training: float
    reading: float
    for_1000: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Attack:
    """A solver that was measured: the share it reads, with its 95 % interval.

    labels, images: that it learned from; the images have no label. training_s: seconds of one core.
    """

    start: str
    labels: int
    share: float
    interval: tuple[float, float]
    training_s: float
    images: int = 0

    @property
    def cost(self) -> Cost:
        """What this attacker pays. The more images a solver reads, the fewer it must try."""
        labels = self.labels * PRICE_OF_LABEL
        training = self.training_s / 3600 * PRICE_OF_CORE_HOUR
        readings = [
            SOLVED * attempts(share) * MILLISECONDS / 3.6e6 * PRICE_OF_CORE_HOUR
            for share in (self.share, *self.interval)
        ]
        whole, most, least = ((labels + training + reading) / SOLVED * 1000 for reading in readings)
        return Cost(labels, training, readings[0], whole, (least, most))

    @property
    def summary(self) -> str:
        """What the solver does, without the full stop."""
        low, high = self.interval
        solver = "Without a label of it, the model in captcha-ocr"
        if self.images:
            solver = f"Without a label, the solver that adapted to {self.images:,} images of it"
        if self.labels:
            solver = f"Trained on {self.labels:,} labels, the solver"
        return (
            f"{solver} reads {100 * self.share:.1f} % of new images"
            f" (95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types, with its cost."""
        return asdict(self) | {"cost": asdict(self.cost)}


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


def decide(attacks: Sequence[Attack], findings: Sequence[str]) -> Verdict:
    """Return the verdict. findings: shortcuts, a sentence each.

    A share is a lower bound on the best attacker, so no verdict says that a captcha is safe.
    """
    if findings:
        return Verdict("trick", findings[0])
    mostly = [attack for attack in attacks if attack.interval[0] >= MOSTLY]
    cheap = [attack for attack in mostly if attack.cost.for_1000 < PRICE_OF_PEOPLE]
    if cheap:
        best = best_attack(cheap)
        why = f"{best.summary}. 1,000 solved cost {format_money(best.cost.for_1000)}."
        return Verdict("cheaply", why)
    surest = max(attacks, key=lambda attack: attack.interval[0])
    if surest.interval[0] >= BROKEN:
        return Verdict("broken", f"{surest.summary}.")
    highest = max(attacks, key=lambda attack: attack.interval[1])
    if highest.interval[1] >= BROKEN:
        return Verdict("undecided", f"{highest.summary}: the interval includes {100 * BROKEN:g} %.")
    most, limit = max(attack.labels for attack in attacks), 100 * highest.interval[1]
    why = f"With up to {most:,} labels it read fewer than {limit:.1f} % of the images."
    return Verdict("holds", why)


def best_attack(attacks: Sequence[Attack]) -> Attack:
    """Return the solver that reads most."""
    return max(attacks, key=lambda attack: (attack.share, -attack.labels, -attack.images))


def format_money(dollars: float) -> str:
    """Return dollars and cents."""
    if math.isinf(dollars):
        return "no limit"
    if 0 < dollars < 0.005:
        return "less than $0.01"
    return f"${dollars:,.2f}"
