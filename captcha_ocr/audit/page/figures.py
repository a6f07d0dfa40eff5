"""The plots of an audit as SVG: readable in black and white, and on a telephone.

Text stays text.
"""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from captcha_ocr.audit.solvers.knobs import Effect
from captcha_ocr.audit.solvers.trainings import NAMES
from captcha_ocr.audit.statistics import Answered, Curve
from captcha_ocr.audit.verdict import Attack

_SIZE = (5.2, 3.6)  # inches: 374 points, so that 10 points can still be read on 400 pixels
_LONGEST = 30  # characters beside an axis
_BESIDE = 1.1  # factor, of the room at both ends of a logarithmic axis
_TICKS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_STYLES = {  # colour, marker, line, and a factor that keeps intervals apart
    "general": ("black", "o", "-", 0.96),
    "random": ("#0B62A4", "s", "--", 1.04),
}
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "captcha-ocr",
    "font.size": 10,
    "font.family": "sans-serif",
}


def as_svg(figure: Figure, title: str) -> str:
    """Return a figure as an element of HTML. title: what it shows, for a screen reader."""
    stream = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    _, tag, svg = stream.getvalue().partition("<svg")
    return f'{tag} role="img" aria-label="{title}"{svg}'


def _new_axes() -> tuple[Figure, Axes]:
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def draw_solver_curves(curves: Mapping[str, Curve], without_labels: Sequence[Attack]) -> Figure:
    """Draw exact match against labels: a dash for each draw, lines of means, and intervals.

    without_labels: the model in the package as it is, then what adapted to images without labels.
    """
    figure, axes = _new_axes()
    as_it_is, *adapted = without_labels
    axes.axhline(
        as_it_is.share, color="black", linestyle=":", linewidth=1.2, label="without a label"
    )
    if adapted:
        images = [attack.images for attack in adapted]
        shares = [attack.share for attack in adapted]
        name = "adapted to so many images without a label"
        axes.plot(images, shares, "^", linestyle=":", color="#B3541E", markersize=5, label=name)
    for attack in adapted:
        axes.vlines(attack.images, *attack.interval, color="#B3541E", linewidth=1)
    for start, curve in curves.items():
        colour, marker, line, shift = _STYLES[start]
        labels = [shift * size for size in curve.sizes]
        means = [score.share for score in curve.scores]
        name = f"from {NAMES[start]}"
        axes.plot(labels, means, marker, linestyle=line, color=colour, markersize=4, label=name)
        for place, score in zip(labels, curve.scores, strict=True):
            axes.vlines(place, *score.interval, color=colour, linewidth=1)
            places = [place] * len(score.shares)
            axes.plot(places, score.shares, color=colour, linestyle="", marker="_", markersize=7)
    axes.set_xscale("log")
    sizes = sorted(
        {attack.images for attack in adapted}.union(*(curve.sizes for curve in curves.values()))
    )
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter(PercentFormatter(1, 0))
    axes.set(ylim=(-0.03, 1.03), xlabel="labels", ylabel="images read")
    figure.legend(loc="outside lower center")
    return figure


def draw_coverage(rows: Sequence[Answered]) -> Figure:
    """Draw how many answers are right against how many images are answered.

    The most confident ones are answered first.
    """
    figure, axes = _new_axes()
    shares = {row.coverage: row.share for row in rows}
    axes.plot([*shares], [*shares.values()], color="black", marker="o", markersize=4)
    for row in rows:
        axes.vlines(row.coverage, *row.interval, color="black", linewidth=1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, 0))
    axes.set(
        xlim=(0, 1.03),
        ylim=(-0.03, 1.03),
        xlabel="images answered, the surest first",
        ylabel="answers that are right",
    )
    return figure


def draw_effects(effects: Sequence[Effect]) -> Figure:
    """Draw by what factor each change multiplies the labels that are needed: a forest plot."""
    figure, axes = _new_axes()
    figure.set_size_inches(_SIZE[0], 1.2 + 0.5 * len(effects))
    # Factors are shown as far as they lie from 1: from 2, so that the axis has a width, to 100.
    factors = [end for effect in effects for end in effect.factor if 0 < end < math.inf]
    most = max((max(factor, 1 / factor) for factor in factors), default=2.0)
    most = min(max(most, 2.0), 100.0)
    least, names = 1 / most, []
    for number, effect in enumerate(reversed(effects)):
        value, low, high = (min(max(factor, least), most) for factor in effect.factor)
        axes.hlines(number, low, high, color="black", linewidth=1.5)
        axes.plot([value], [number], color="black", marker="o", markersize=5)
        is_long = len(effect.change) > _LONGEST  # the table has all of it
        change = f"{effect.change[: _LONGEST - 1]}…" if is_long else effect.change
        names.append(f"{effect.knob}\n{change}")
    axes.axvline(1, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(effects)), names)
    axes.set(
        xscale="log",
        xlim=(least / _BESIDE, most * _BESIDE),
        xlabel="labels needed, as a multiple of now",
    )
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if least <= tick <= most]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("×{x:g}")
    return figure
