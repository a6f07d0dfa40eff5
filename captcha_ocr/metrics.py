"""Scores: exact match, per character, confusions, and the interval that belongs to a proportion."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from captcha_ocr.charset import merge_lookalikes, mixes_cases
from captcha_ocr.errors import in_one_line
from captcha_ocr.system.documents import finite

LEAST_TO_JUDGE, GROUPS, SUREST = 300, 15, 0.95  # for confidences


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson 1927, JASA 22:209): honest near 0, near 1 and for few."""
    if total == 0:
        return 0.0, 1.0
    z = 1.959964  # the normal distribution's 97.5 % quantile
    share = right / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return (centre - reach if right else 0.0), (centre + reach if right < total else 1.0)


def is_worse(right: int, other: int, total: int) -> bool:
    """Whether `right` of `total` are fewer than `other` of as many beyond chance, at 95 %.

    Newcombe 1998, Statistics in Medicine 17:873, method 10, which takes the two for independent.
    """
    highest, lowest = wilson_interval(right, total)[1], wilson_interval(other, total)[0]
    return (other - right) / total > math.hypot(other / total - lowest, highest - right / total)


def loss_or_infinity(loss: float | None) -> float:
    """A loss that can be compared: infinite where it is no number."""
    return math.inf if loss is None or math.isnan(loss) else loss


@dataclass(frozen=True)
class Scores:
    """Counts over a set of images, never averages of averages.

    pairs: how often each (true, read) pair of characters stood in the same place; either is empty where
    the text had ended there. loss: the mean over the images, None where there is none.
    folded, lookalike: the images that are wrong only by the case of letters, or by a look-alike, such as O for 0.
    """

    images: int
    exact: int
    pairs: Counter[tuple[str, str]]
    loss: float | None = None
    folded: int = 0
    lookalike: int = 0

    def __add__(self, other: "Scores") -> "Scores":
        """The score of both sets of images; the loss is left out."""
        pairs = self.pairs + other.pairs
        return Scores(
            self.images + other.images,
            self.exact + other.exact,
            pairs,
            folded=self.folded + other.folded,
            lookalike=self.lookalike + other.lookalike,
        )

    def counts(self) -> dict[str, Any]:
        """The counts, without the loss, as JSON types."""
        pairs = [[true, read, count] for (true, read), count in self.pairs.items()]
        wrong_only_by = {"folded": self.folded, "lookalike": self.lookalike}
        return {"images": self.images, "exact": self.exact, "pairs": pairs, **wrong_only_by}

    @classmethod
    def from_counts(cls, counts: dict[str, Any]) -> "Scores":
        """The inverse of `counts`."""
        pairs = Counter({(true, read): count for true, read, count in counts["pairs"]})
        names = ("images", "exact", "folded", "lookalike")
        return cls(pairs=pairs, **{name: counts[name] for name in names})

    @property
    def exact_match(self) -> float:
        """The share of images whose whole text is right, 0 to 1."""
        return self.exact / self.images if self.images else 0.0

    @property
    def folded_match(self) -> float:
        """The share of images that are right when case does not count, 0 to 1."""
        return (self.exact + self.folded) / self.images if self.images else 0.0

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

    def matrix(self, characters: Sequence[str]) -> np.ndarray:
        """The (K, K) counts of true (rows) against read (columns) characters, of which one may be empty."""
        return np.array([[self.pairs[true, read] for read in characters] for true in characters])

    def summary(self) -> dict[str, Any]:
        """The scores as JSON types."""
        low, high = self.interval
        return {
            "images": self.images,
            "exact": self.exact,
            "exact_match": self.exact_match,
            "folded": self.folded,
            "folded_match": self.folded_match,
            "lookalike": self.lookalike,
            "merged_match": self.merged_match,
            "interval": [low, high],
            "character_accuracy": self.character_accuracy,
            "loss": finite(self.loss),
            "confusions": [list(row) for row in self.worst()],
        }

    def __str__(self) -> str:
        """Some lines for people; that on case only where there are letters of both."""
        low, high = self.interval
        worst = [(in_one_line(true), in_one_line(read), number) for true, read, number in self.worst()]
        confusions = ", ".join(f"{true or 'nothing'} as {read or 'nothing'} {number}" for true, read, number in worst)
        both_cases = mixes_cases({character for pair in self.pairs for character in pair})
        rows = [
            f"exact match     {self.exact_match:7.2%}  ({self.exact:,} of {self.images:,}; "
            f"95 % interval {low:.2%} to {high:.2%})",
            f"but case        {self.folded_match:7.2%}  ({self.folded:,} more wrong only by that of letters)",
            f"but look-alikes {self.merged_match:7.2%}  ({self.lookalike:,} more wrong only by one, such as O for 0)",
            f"per character   {self.character_accuracy:7.2%}",
            f"confusions      {confusions or 'none'}",
        ]
        return "\n".join(row for row in rows if both_cases or not row.startswith("but case"))


def score_texts(truths: Sequence[str], codes: Sequence[str]) -> Scores:
    """Score texts that were read against the true ones, place by place."""
    both = list(zip(truths, codes, strict=True))
    pairs: Counter[tuple[str, str]] = Counter()
    for truth, code in both:
        pairs.update(zip_longest(truth, code, fillvalue=""))
    exact = sum(truth == code for truth, code in both)
    folded = sum(truth.casefold() == code.casefold() for truth, code in both)
    merged = sum(merge_lookalikes(truth) == merge_lookalikes(code) for truth, code in both)
    return Scores(len(truths), exact, pairs, folded=folded - exact, lookalike=merged - exact)


@dataclass(frozen=True)
class Reliability:
    """What confidences are worth over a set of images.

    calibration_error: how far they are, on average, from the share that is right, both over 15 groups of as many images
    with confidences next to each other (Guo et al. 2017, arXiv:1706.04599); surest: the share that is right of the
    19 in 20 that are surest. Both are None for too few images to tell.
    """

    calibration_error: float | None
    surest: float | None

    def summary(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {"calibration_error": self.calibration_error, "surest_95_match": self.surest}

    def __str__(self) -> str:
        """A line for people."""
        if self.calibration_error is None or self.surest is None:
            return f"confidences      not judged by fewer than {LEAST_TO_JUDGE} images"
        return (
            f"confidences     {self.calibration_error:7.2%}  off on average; "
            f"{self.surest:.2%} right of the 95 % that are surest"
        )


def reliability_of(judged: Sequence[tuple[float, bool]]) -> Reliability:
    """What confidences are worth: (how sure, whether it was right) of every reading."""
    if len(judged) < LEAST_TO_JUDGE:
        return Reliability(None, None)
    surest_first = np.array(sorted(judged, key=lambda row: -row[0]), dtype=np.float64)  # (N, 2)
    gaps = [len(group) * abs(np.subtract(*group.mean(0))) for group in np.array_split(surest_first, GROUPS)]
    surest = surest_first[: round(SUREST * len(judged)), 1]
    return Reliability(float(sum(gaps) / len(judged)), float(surest.mean()))
