"""What to expect of a model that learnt from its own readings, without a label to tell."""

import math
from statistics import fmean
from typing import NamedTuple

from captcha_ocr.inference.decoding import Reading
from captcha_ocr.two_readers import agree

# In log odds, fitted to sets with labels: docs/decisions.md, Images without a label
_OFFSET, _SLOPE = -0.64, 0.94
_BELOW, _ABOVE = 1.0, 1.5
_FEW, _BELOW_OF_FEW = 300, 3.6  # images

Readings = dict[str, Reading]  # of image files


def measure_agreement(readings: Readings, others: Readings) -> float:
    """Return the part of the images, 0 to 1, in which both read the same, but for its case."""
    return fmean(agree(reading, others[file]) for file, reading in readings.items())


class Expectation(NamedTuple):
    """The exact match of new images, 0 to 1; its lower end was below those of all known sets."""

    expected: float
    expected_low: float
    expected_high: float

    def __str__(self) -> str:
        return "{:.1%} ({:.1%} to {:.1%})".format(*self)

    @classmethod
    def of(cls, agreement: float, images: int) -> "Expectation":
        """Return what to expect of a model that adapted to so many images.

        agreement: the part of them in which the models of the first two rounds read the same.
        """
        # As if two more were read alike and two otherwise (Agresti and Coull 1998)
        agreement = (agreement * images + 2) / (images + 4)
        odds = _OFFSET + _SLOPE * math.log(agreement / (1 - agreement))
        below = _BELOW_OF_FEW if images < _FEW else _BELOW
        return cls(*(1 / (1 + math.exp(-x)) for x in (odds, odds - below, odds + _ABOVE)))
