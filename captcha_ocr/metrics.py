"""Scores: exact match, per character, confusions, and the interval that belongs to a proportion."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from captcha_ocr.charset import merge_lookalikes
from captcha_ocr.files import finite


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson 1927, JASA 22:209): honest near 0, near 1 and for few."""
    if total == 0:
        return 0.0, 1.0
    z = 1.959964  # the normal distribution's 97.5 % quantile
    share = right / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return (centre - reach if right else 0.0), (centre + reach if right < total else 1.0)


def loss_of(loss: float | None) -> float:
    """A loss that can be compared: infinite where it is no number."""
    return math.inf if loss is None or math.isnan(loss) else loss


@dataclass(frozen=True)
class Scores:
    """Counts over a set of images, never averages of averages.

    pairs: how often each (true, read) pair of characters stood in the same place; the read one is
    empty where nothing was read there. loss: the mean over the images, None where there is none.
    lookalike: the images that are wrong only by a look-alike, such as O for 0.
    """

    images: int
    exact: int
    pairs: Counter[tuple[str, str]]
    loss: float | None = None
    lookalike: int = 0

    def __add__(self, other: "Scores") -> "Scores":
        """The score of both sets of images; the loss is left out."""
        pairs = self.pairs + other.pairs
        return Scores(
            self.images + other.images, self.exact + other.exact, pairs, lookalike=self.lookalike + other.lookalike
        )

    def counts(self) -> dict[str, Any]:
        """The counts, without the loss, as JSON types."""
        pairs = [[true, read, count] for (true, read), count in self.pairs.items()]
        return {"images": self.images, "exact": self.exact, "pairs": pairs, "lookalike": self.lookalike}

    @classmethod
    def from_counts(cls, counts: dict[str, Any]) -> "Scores":
        """The inverse of `counts`."""
        pairs = Counter({(true, read): count for true, read, count in counts["pairs"]})
        return cls(counts["images"], counts["exact"], pairs, lookalike=counts["lookalike"])

    @property
    def exact_match(self) -> float:
        """The share of images whose whole text is right, 0 to 1."""
        return self.exact / self.images if self.images else 0.0

    @property
    def merged_match(self) -> float:
        """The share of images that are right when look-alikes count as one character, 0 to 1."""
        return (self.exact + self.lookalike) / self.images if self.images else 0.0

    @property
    def character_accuracy(self) -> float:
        """The share of characters that are right, 0 to 1."""
        right = sum(count for (true, read), count in self.pairs.items() if true == read)
        return right / max(1, self.pairs.total())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `exact_match`."""
        return wilson_interval(self.exact, self.images)

    def worst(self, most: int = 8) -> list[tuple[str, str, int]]:
        """The most frequent confusions: (true, read, how often)."""
        wrong = [(true, read, count) for (true, read), count in self.pairs.items() if true != read]
        return sorted(wrong, key=lambda row: (-row[2], row[0], row[1]))[:most]

    def matrix(self, characters: str) -> np.ndarray:
        """The (K, K) counts of true (rows) against read (columns) characters."""
        return np.array([[self.pairs[true, read] for read in characters] for true in characters])

    def summary(self) -> dict[str, Any]:
        """The scores as JSON types."""
        low, high = self.interval
        return {
            "images": self.images,
            "exact": self.exact,
            "exact_match": self.exact_match,
            "lookalike": self.lookalike,
            "merged_match": self.merged_match,
            "interval": [low, high],
            "character_accuracy": self.character_accuracy,
            "loss": finite(self.loss),
            "confusions": [list(row) for row in self.worst()],
        }

    def __str__(self) -> str:
        """Four lines for people."""
        low, high = self.interval
        confusions = ", ".join(f"{true} as {read or 'nothing'} {count}" for true, read, count in self.worst())
        return (
            f"exact match     {self.exact_match:7.2%}  ({self.exact:,} of {self.images:,}; "
            f"95 % interval {low:.2%} to {high:.2%})\n"
            f"but look-alikes {self.merged_match:7.2%}  ({self.lookalike:,} more wrong only by one, such as O for 0)\n"
            f"per character   {self.character_accuracy:7.2%}\n"
            f"confusions      {confusions or 'none'}"
        )


def score_texts(truths: Sequence[str], codes: Sequence[str]) -> Scores:
    """Score texts that were read against the true ones, place by place."""
    pairs: Counter[tuple[str, str]] = Counter()
    for truth, code in zip(truths, codes, strict=True):
        pairs.update(zip(truth, code.ljust(len(truth), "\0"), strict=False))
    pairs = Counter({(true, read.strip("\0")): count for (true, read), count in pairs.items()})
    exact = sum(truth == code for truth, code in zip(truths, codes, strict=True))
    merged = sum(merge_lookalikes(truth) == merge_lookalikes(code) for truth, code in zip(truths, codes, strict=True))
    return Scores(len(truths), exact, pairs, lookalike=merged - exact)
