"""Parts of the page of an audit: paragraphs, lists, tables, and how it shows numbers."""

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

MOST_SHOWN = 1e6  # captchas, labels: beyond it the number says nothing


def finite(value: Any) -> Any:
    """Return JSON types without infinities, which JSON has not: None."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def listed(lines: Sequence[str]) -> str:
    """Return a list of plain texts."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of plain texts; a number and its percent sign, and an interval, stay on one line."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{unbroken(escape(str(cell)))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    caption = f"<caption>{escape(caption)}</caption>"
    return f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def unbroken(text: str) -> str:
    """Return a text that no line breaks before a percent sign, nor in an interval."""
    text = text.replace(" %", "\u00a0%")
    return re.sub(
        r"\([^()]* to [^()]*\)", lambda interval: interval[0].replace(" ", "\u00a0"), text
    )


def figure(svg: str) -> str:
    """Return a figure; its numbers are in the table below it."""
    return f"<figure>{svg}</figure>"


def percent(share: float) -> str:
    """Return a share: 12.3 %, and more digits near 0 and 1."""
    digits = 1 if 0.01 <= share <= 0.99 or share in (0, 1) else 2
    return f"{100 * share:.{digits}f} %"


def with_interval(share: float, interval: Sequence[float]) -> str:
    """Return a share with its interval."""
    return f"{percent(share)} ({percent(interval[0])} to {percent(interval[1])})"


def number(value: float) -> str:
    """Return a number: two significant digits, below 10 two decimals."""
    if value > MOST_SHOWN:
        return "more than a million"
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2f}"


def labels_needed(needed: Sequence[float], least: int, most: int) -> str:
    """Return how many labels are needed, with the interval, as far as it was measured."""

    def shown(value: float) -> str:
        return (
            f"fewer than {least:,}"
            if value == 0
            else f"more than {most:,}"
            if math.isinf(value)
            else number(value)
        )

    value, low, high = needed
    if math.isinf(value) and math.isinf(low):
        return f"not reached with {most:,}"
    return shown(value) if low == high else f"{shown(value)} ({shown(low)} to {shown(high)})"
