"""Scores: exact match, character accuracy, confusions, intervals of proportions, and how good
confidences are.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from captcha_ocr.charset import merge_lookalikes, mixes_cases, split_characters
from captcha_ocr.errors import in_one_line
from captcha_ocr.system.documents import finite

_MIN_READINGS = 300  # to score confidences
_CALIBRATION_GROUPS = 15
_MOST_CONFIDENT = 0.95  # of the readings


def wilson_interval(right: float, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion, valid near 0 and 1 and for small totals (Wilson
    1927, JASA 22:209).
    """
    if total == 0:
        return 0.0, 1.0
    z = 1.959964  # the normal distribution's 97.5 % quantile
    share = right / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    deviation = math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    reach = z * deviation / (1 + z * z / total)
    low = centre - reach if right else 0.0
    high = centre + reach if right < total else 1.0
    return low, high


def is_worse(right: int, other: int, total: int) -> bool:
    """Tell whether `right` of `total` are significantly fewer than `other` of as many, at 95 %.

    Newcombe 1998, Statistics in Medicine 17:873, method 10, for independent proportions.
    """
    highest, lowest = wilson_interval(right, total)[1], wilson_interval(other, total)[0]
    return (other - right) / total > math.hypot(other / total - lowest, highest - right / total)


def loss_or_infinity(loss: float | None) -> float:
    """Return a loss that can be compared: infinite if there is none, or it is not a number."""
    return math.inf if loss is None or math.isnan(loss) else loss


@dataclass(frozen=True)
class Scores:
    """Counts over a set of images, which can be added up.

    exact: the exact matches. pairs: how often each (true, read) pair of characters shares a
    position; a text that has ended gives an empty one. loss: the mean over the images. folded,
    lookalike: the images that are wrong only by case, or only by look-alikes such as O for 0.
    """

    images: int
    exact: int
    pairs: Counter[tuple[str, str]]
    loss: float | None = None
    folded: int = 0
    lookalike: int = 0

    def __add__(self, other: "Scores") -> "Scores":
        """Return the scores of both sets of images, without a loss."""
        return Scores(
            self.images + other.images,
            self.exact + other.exact,
            self.pairs + other.pairs,
            folded=self.folded + other.folded,
            lookalike=self.lookalike + other.lookalike,
        )

    def counts(self) -> dict[str, Any]:
        """Return the counts, without the loss, as JSON types."""
        return {
            "images": self.images,
            "exact": self.exact,
            "pairs": [[true, read, count] for (true, read), count in self.pairs.items()],
            "folded": self.folded,
            "lookalike": self.lookalike,
        }

    @classmethod
    def from_counts(cls, counts: dict[str, Any]) -> "Scores":
        """Invert `counts`; further keys are ignored."""
        return cls(
            counts["images"],
            counts["exact"],
            Counter({(true, read): count for true, read, count in counts["pairs"]}),
            folded=counts["folded"],
            lookalike=counts["lookalike"],
        )

    @property
    def exact_match(self) -> float:
        """The share of images whose whole text is correct, 0 to 1."""
        return self._compute_share(self.exact)

    def _compute_share(self, images: int) -> float:
        return images / self.images if self.images else 0.0

    @property
    def character_accuracy(self) -> float:
        """The share of characters that are correct, 0 to 1."""
        right = sum(count for (true, read), count in self.pairs.items() if true == read)
        return right / max(1, self.pairs.total())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of `exact_match`."""
        return wilson_interval(self.exact, self.images)

    def worst(self, limit: int = 8) -> list[tuple[str, str, int]]:
        """Return the most frequent confusions: (true, read, count)."""
        wrong = [(true, read, count) for (true, read), count in self.pairs.items() if true != read]
        return sorted(wrong, key=lambda row: (-row[2], row[0], row[1]))[:limit]

    def summary(self) -> dict[str, Any]:
        """Return the scores as JSON types."""
        return {
            "images": self.images,
            "exact": self.exact,
            "exact_match": self.exact_match,
            "folded": self.folded,
            "folded_match": self._compute_share(self.exact + self.folded),
            "lookalike": self.lookalike,
            "merged_match": self._compute_share(self.exact + self.lookalike),
            "interval": list(self.interval),
            "character_accuracy": self.character_accuracy,
            "loss": finite(self.loss),
            "confusions": list(map(list, self.worst())),
        }

    def __str__(self) -> str:
        summary, (low, high) = self.summary(), self.interval
        lines = [
            f"exact match            {self.exact_match:7.2%}  ({self.exact:,} of {self.images:,}; "
            f"95 % interval {low:.2%} to {high:.2%})"
        ]
        if mixes_cases({character for pair in self.pairs for character in pair}):
            lines.append(
                f"ignoring case          {summary['folded_match']:7.2%}  "
                f"({self.folded:,} wrong only by case)"
            )
        confusions = ", ".join(
            f"{in_one_line(true) or 'nothing'} as {in_one_line(read) or 'nothing'} {count}"
            for true, read, count in self.worst()
        )
        lines += [
            f"ignoring look-alikes   {summary['merged_match']:7.2%}  "
            f"({self.lookalike:,} wrong only by look-alikes, such as O for 0)",
            f"per character          {self.character_accuracy:7.2%}",
            f"confusions             {confusions or 'none'}",
        ]
        return "\n".join(lines)


def score_texts(truths: Sequence[str], texts: Sequence[str]) -> Scores:
    """Score predicted texts against the true ones, position by position."""
    pairs: Counter[tuple[str, str]] = Counter()
    exact = folded = merged = 0
    for truth, text in zip(truths, texts, strict=True):
        pairs.update(zip_longest(split_characters(truth), split_characters(text), fillvalue=""))
        exact += truth == text
        folded += truth.casefold() == text.casefold()
        merged += merge_lookalikes(truth) == merge_lookalikes(text)
    return Scores(len(truths), exact, pairs, folded=folded - exact, lookalike=merged - exact)


class Reliability(NamedTuple):
    """How good confidences are; None if there are too few images to tell.

    calibration_error: the mean difference between confidence and exact match over 15 groups of
    similar confidence and equal size (Guo et al. 2017, arXiv:1706.04599). surest_95_match: the
    exact match of the most confident 95 %.
    """

    calibration_error: float | None
    surest_95_match: float | None

    def __str__(self) -> str:
        if self.calibration_error is None or self.surest_95_match is None:
            return f"confidences            not scored with fewer than {_MIN_READINGS} images"
        return (
            f"confidences            {self.calibration_error:7.2%}  off on average; "
            f"of the most confident 95 %, {self.surest_95_match:.2%} are correct"
        )


def score_confidences(readings: Sequence[tuple[float, bool]]) -> Reliability:
    """Score confidences: (confidence, whether the text is correct) of every reading."""
    if len(readings) < _MIN_READINGS:
        return Reliability(None, None)
    ranked = np.array(sorted(readings, key=lambda row: -row[0]), dtype=np.float64)  # (N, 2)
    gaps = [
        len(group) * abs(np.subtract(*group.mean(0)))
        for group in np.array_split(ranked, _CALIBRATION_GROUPS)
    ]
    confident = ranked[: round(_MOST_CONFIDENT * len(readings)), 1]
    return Reliability(float(sum(gaps) / len(readings)), float(confident.mean()))
