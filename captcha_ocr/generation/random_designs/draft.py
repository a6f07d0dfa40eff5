"""A random design while it is drawn: its document so far, and the draws that all its parts need."""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

_Value = TypeVar("_Value")
HEIGHT = 64  # pixels of the canvas, for which all ranges are
Document = dict[str, Any]


class Chance(NamedTuple):
    """An operator that a design may get, how likely it is to get it, and what draws its fields.

    disturbs: whether it disturbs reading, so that harder levels have it more often.
    """

    kind: str
    probability: float
    draw_fields: Callable[["DesignDraft"], Document]
    disturbs: bool = True


class DesignDraft:
    """A document while it is drawn; disturb: how likely disturbances are, 1 being usual."""

    def __init__(self, rng: random.Random, disturb: float) -> None:
        self.rng, self.disturb = rng, disturb
        self.canvas: Document = {"height": HEIGHT}
        self.text: Document = {}
        self.fonts: Document = {}
        self.operators: list[Document] = []
        # By how much a background may come closer to the colour of the text, and whether that is
        # darker (-1) or lighter (1).
        self.reach, self.toward = 0, 0
        self.hollow = False  # glyphs of the colour of the canvas, which what lies under them shows
        # Of little contrast, or on a background of many colours, nobody reads inverted letters.
        self.may_invert = True

    def chance(self, probability: float) -> bool:
        """Tell, at random, whether something comes in that does not disturb reading."""
        return self.rng.random() < probability

    def disturbs(self, probability: float) -> bool:
        """Tell, at random, whether a disturbance comes in."""
        return self.rng.random() < probability * self.disturb

    def pick(self, probability: float, value: _Value, otherwise: _Value) -> _Value:
        """Draw one of two values; the first has this probability at all levels."""
        return value if self.chance(probability) else otherwise

    def number(self, low: float, high: float) -> float:
        """Draw a number with three decimals."""
        return round(self.rng.uniform(low, high), 3)

    def part(self, low: float, high: float) -> list[float]:
        """Draw a range within a range."""
        return sorted((self.number(low, high), self.number(low, high)))

    def whole_part(self, low: int, high: int) -> list[int]:
        """Draw a range of whole numbers within a range."""
        return sorted((self.rng.randint(low, high), self.rng.randint(low, high)))

    def add(self, kind: str, **fields: Any) -> None:
        """Append an operator."""
        self.operators.append({"kind": kind, **fields})

    def add_some(self, chances: Sequence[Chance]) -> None:
        """Append each of some operators by its chance."""
        for kind, probability, draw_fields, disturbs in chances:
            if self.disturbs(probability) if disturbs else self.chance(probability):
                self.add(kind, **draw_fields(self))

    def add_one(self, chances: Sequence[Chance]) -> None:
        """Append one of some operators at most, each by its chance, the same at all levels."""
        point = self.rng.random()
        for kind, probability, draw_fields, _ in chances:
            point -= probability
            if point < 0:
                self.add(kind, **draw_fields(self))
                return
