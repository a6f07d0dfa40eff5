"""The plots of an audit as SVG, with text as text: readable in black and white, and on a telephone."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from captcha_ocr.audit.trainings import NAMES

SIZE = (5.2, 3.6)  # inches: 374 points, so that 10 points can still be read on 400 pixels
LONGEST = 30  # characters beside an axis
BESIDE = 1.1  # factor, of the room at both ends of a logarithmic axis
STYLES = {"general": ("black", "o", "-"), "random": ("#0B62A4", "s", "--")}
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "captcha-ocr",
    "font.size": 10,
    "font.family": "sans-serif",
}


def as_svg(figure: Figure, title: str) -> str:
    """Return a figure as an element of HTML. title: what it shows, for a screen reader."""
    stream = io.StringIO()
    with matplotlib.rc_context(SETTINGS):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def new_axes() -> tuple[Figure, Axes]:
    """Return an empty figure."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def draw_curves(
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    intervals: Mapping[tuple[str, int], Any],
    without_labels: float,
) -> Figure:
    """Draw exact match against labels: a dash for each draw, a line through their means, and the intervals.

    without_labels: exact match of the model in the package.
    """
    figure, axes = new_axes()
    axes.axhline(
        without_labels, color="black", linestyle=":", linewidth=1.2, label="without a label"
    )
    for shift, (start, scores) in zip((0.96, 1.04), curves.items(), strict=True):
        colour, marker, line = STYLES[start]
        labels = [shift * score["labels"] for score in scores]
        means = [sum(score["right"]) / len(score["right"]) / score["tested"] for score in scores]
        axes.plot(
            labels,
            means,
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=4,
            label=f"from {NAMES[start]}",
        )
        for place, score in zip(labels, scores, strict=True):
            low, high = intervals[start, score["labels"]]
            axes.vlines(place, low, high, color=colour, linewidth=1)
            draws = [right / score["tested"] for right in score["right"]]
            axes.plot(
                [place] * len(draws), draws, color=colour, linestyle="", marker="_", markersize=7
            )
    axes.set_xscale("log")
    sizes = sorted({score["labels"] for scores in curves.values() for score in scores})
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("labels")
    axes.set_ylabel("images read")
    figure.legend(loc="outside lower center")
    return figure


def draw_coverage(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how many answers are right against how many images are answered, the surest ones."""
    figure, axes = new_axes()
    coverages = [row["coverage"] for row in rows]
    axes.plot(
        coverages,
        [row["right"] / row["images"] for row in rows],
        color="black",
        marker="o",
        markersize=4,
    )
    for row in rows:
        axes.vlines(row["coverage"], *row["interval"], color="black", linewidth=1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, 0))
    axes.set_xlim(0, 1.03)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("images answered, the surest first")
    axes.set_ylabel("answers that are right")
    return figure


def draw_effects(effects: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw by what factor each change multiplies the labels that are needed: a forest plot."""
    figure, axes = new_axes()
    figure.set_size_inches(SIZE[0], 1.2 + 0.5 * len(effects))
    ends = [value for effect in effects for value in effect["factor"] if 0 < value < math.inf]
    least, most = 1 / max(ends_of(ends)), max(ends_of(ends))
    for number, effect in enumerate(reversed(effects)):
        value, low, high = (min(max(each, least), most) for each in effect["factor"])
        axes.hlines(number, low, high, color="black", linewidth=1.5)
        axes.plot([value], [number], color="black", marker="o", markersize=5)
    axes.axvline(1, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(
        range(len(effects)),
        [f"{each['knob']}\n{shortened(each['change'])}" for each in reversed(effects)],
    )
    axes.set_xscale("log")
    axes.set_xlim(least / BESIDE, most * BESIDE)
    ticks = [tick for tick in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100) if least <= tick <= most]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("×{x:g}")
    axes.set_xlabel("labels needed, as a multiple of now")
    return figure


def shortened(text: str) -> str:
    """Return a text that fits beside an axis; the table has all of it."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def ends_of(values: Sequence[float]) -> list[float]:
    """Return how far values lie from 1, as factors: from 2, so that the axis has a width, to 100."""
    return [min(100.0, max(2.0, value, 1 / value)) for value in values] or [2.0]
