"""How the page of an audit shows numbers."""

import math
import re
from collections.abc import Sequence

from captcha_ocr.audit.human_answers import HumanAnswers
from captcha_ocr.audit.statistics import Answered, Estimate, Score
from captcha_ocr.audit.verdict import Attack, Cost, format_money

_MOST_SHOWN = 1e6  # captchas, labels: beyond it the number says nothing


def keep_together(text: str) -> str:
    """Return a text that no line breaks before a percent sign, nor in an interval."""
    text = text.replace(" %", "\u00a0%")
    return re.sub(
        r"\([^()]* to [^()]*\)", lambda interval: interval[0].replace(" ", "\u00a0"), text
    )


def format_percent(share: float) -> str:
    """Return a share: 12.3 %, and more digits near 0 and 1."""
    digits = 1 if 0.01 <= share <= 0.99 or share in (0, 1) else 2
    return f"{100 * share:.{digits}f} %"


def format_share(measured: Attack | Score | Answered | HumanAnswers) -> str:
    """Return a share with its interval."""
    share, low, high = map(format_percent, (measured.share, *measured.interval))
    return f"{share} ({low} to {high})"


def format_number(value: float) -> str:
    """Return a number: two significant digits, below 10 two decimals."""
    if value > _MOST_SHOWN:
        return "more than a million"
    if value < 10:
        return f"{value:.2f}"
    return f"{float(f'{value:.2g}'):,.0f}"


def format_factor(factor: Estimate) -> str:
    """Return a factor with its interval."""
    value, low, high = map(format_number, factor)
    return f"×{value} ({low} to {high})"


def format_cost(cost: Cost) -> str:
    """Return what 1,000 solved cost, with the interval where it shows."""
    return with_ends(*map(format_money, (cost.for_1000, *cost.interval)))


def with_ends(value: str, low: str, high: str) -> str:
    """Return a value with the ends of its interval, where these differ from it."""
    if low == high == value:
        return value
    return f"{value} ({low} to {high})"


def format_needed(needed: Estimate, sizes: Sequence[int]) -> str:
    """Return how many labels are needed, with the interval, as far as it was measured.

    sizes: the measured numbers of labels, in their order.
    """
    least, most = sizes[0], sizes[-1]

    def bound(labels: float) -> str:
        if labels == 0:
            return f"fewer than {least:,}"
        if math.isinf(labels):
            return f"more than {most:,}"
        return format_number(labels)

    value, low, high = needed
    if math.isinf(value) and math.isinf(low):
        return f"not reached with {most:,}"
    if low == high:
        return bound(value)
    return f"{bound(value)} ({bound(low)} to {bound(high)})"
