"""Plots: curves over the epochs, the confusions, and accuracy against the number of images."""

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, LogLocator, MaxNLocator, NullLocator

from captcha_ocr.config import TrainConfig
from captcha_ocr.metrics import Scores
from captcha_ocr.pictures.script_fonts import OWN_FONTS, fonts_for, visible
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import write_atomic

BLUE, RED, GREY = "#0072B2", "#D55E00", "#666666"  # also for the colour-blind (Okabe and Ito 2008)
MAX_MARKED = 40  # epochs; the points of more make one thick line
MAX_BARS = 20  # confusions
MIN_CELLS, MAX_CELLS = (
    8,
    36,
)  # rows, and columns, that the confusion matrix has room for, and that it shows
CELL, BARS_WIDTH = (
    0.25,
    4.5,
)  # inches: the side of a cell, and the width of all bars with their labels
LEAST_ERROR = 0.005  # where 100 % stands on an axis of exact match, unless an error is smaller
MOST_EXPECTED = 0.9998  # exact match to which an extrapolation stretches the axis; a steep one would squeeze the rest
MIN_BETWEEN_TICKS = 0.08  # of the width of a log axis, for labels of six digits


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, on white: it is read on light and on dark pages."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100, facecolor="white")
    write_atomic(path, picture.getvalue())


def draw_curves(rows: Sequence[dict[str, Any]], best_epoch: int, config: TrainConfig) -> Figure:
    """Draw loss and exact match in training and validation over the epochs, from the rows of metrics of epochs."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs, best = (
        [row["epoch"] for row in rows],
        next(row for row in rows if row["epoch"] == best_epoch),
    )
    for axes, what, title, value in (
        (left, "loss", "loss (log scale)", f"{best['validation_loss']:.3g}"),
        (right, "exact", "exact match (log scale of the error)", f"{best['validation_exact']:.2%}"),
    ):
        for kind, colour, line, size in (("training", RED, "--", 5), ("validation", BLUE, "-", 3)):
            values = [row[f"{kind}_{what}"] for row in rows]
            marker = "o" if len(rows) <= MAX_MARKED else ""
            style: dict[str, Any] = {
                "color": colour,
                "linestyle": line,
                "marker": marker,
                "markersize": size,
            }
            axes.plot(epochs, values, label=kind, clip_on=False, **style)
        axes.axvline(
            best_epoch, color=GREY, linestyle=":", label=f"best epoch {best_epoch}: {value}"
        )
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.set_xlim(0.5, epochs[-1] + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
        axes.grid(alpha=0.3)
        axes.legend()
    if any(
        row["training_loss"] > 0 for row in rows
    ):  # the loss of an alphabet of one character is 0
        left.set_yscale("log")
        low, high = left.get_ylim()
        subs = (1, 2, 5) if high > 10 * low else range(1, 10)
        left.yaxis.set_major_locator(LogLocator(subs=subs) if high > 4 * low else AutoLocator())
        left.yaxis.set_major_formatter("{x:g}")
        left.yaxis.set_minor_locator(NullLocator())
    scale_by_error(
        right, [row[f"{kind}_exact"] for row in rows for kind in ("training", "validation")]
    )
    if best["training_loss"] > best["validation_loss"]:
        figure.supxlabel(textwrap.fill(why_training_loss_is_higher(config), 130), fontsize=9)
    return figure


def why_training_loss_is_higher(config: TrainConfig) -> str:
    """Explain a training loss above the validation loss by what only training images and labels go through."""
    reasons = ["training images are augmented"] * config.augment
    reasons += [f"training labels are smoothed (by {config.smoothing:g})"] * (config.smoothing > 0)
    reasons += ["in training the characters that are hard to read count more"] * (config.focus > 0)
    reasons += ["training loss is the mean over an epoch, and validation follows at its end"]
    return f"Training loss is higher than validation loss: {'; '.join(reasons)}."


def scale_by_error(axes: Axes, matches: Iterable[float]) -> None:
    """Let an axis of exact match (0 to 1) grow with the logarithm of the error, and label it in percent.

    An error of 0 has no logarithm: 100 % stands at half of the smallest error.
    """
    least = min([LEAST_ERROR, *((1 - match) / 2 for match in matches if match < 1)])
    axes.set_yscale(
        "function", functions=(lambda y: -np.log10(np.maximum(1 - y, least)), lambda v: 1 - 10**-v)
    )
    errors = [digit * 10.0**-power for power in range(8) for digit in (1, 0.5, 0.2)]
    axes.set_yticks([1 - error for error in errors if error > 1.3 * least] + [1])
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.7g} %")
    axes.set_ylim(-0.1, 1)


def draw_confusions(scores: Scores, characters: Sequence[str]) -> Figure:
    """Draw the most frequent confusions as bars, and the matrix of the misread characters.

    characters: the alphabet, in the order of rows and columns; an empty one is the text's end. The matrix has no
    empty rows and columns; if it is too large, it has those of the most frequent confusions.
    """
    wrong = {(true, read): count for true, read, count in scores.worst(len(scores.pairs))}
    title = f"wrong characters: {sum(wrong.values()):,} of {scores.pairs.total():,}"
    if not wrong:
        figure = Figure(figsize=(6, 1))
        figure.text(0.5, 0.5, title, ha="center", va="center", fontsize=12)
        return figure
    rows, columns = set[str](), set[str]()
    for true, read in wrong:
        if max(len(rows | {true}), len(columns | {read})) <= MAX_CELLS:
            rows.add(true)
            columns.add(read)
    bars = dict(islice(wrong.items(), MAX_BARS))
    shown = rows | columns | {*chain.from_iterable(bars)}
    fonts = fonts_for(shown - {""})
    names = {
        character: visible(character, fonts) if character else "nothing" for character in shown
    }
    families = [*dict.fromkeys(font.name for font in fonts.values()), *OWN_FONTS]
    width, height = (CELL * max(MIN_CELLS, len(side)) + 1 for side in (columns, rows))
    figure = Figure(
        figsize=(BARS_WIDTH + width, max(height, CELL * len(bars)) + 1), layout="constrained"
    )
    figure.suptitle(title)
    left, right = figure.subplots(1, 2, width_ratios=(BARS_WIDTH, width))
    # The marks (U+200E) keep true before read between characters of scripts from right to left.
    labels = [f"\u200e{names[true]} → \u200e{names[read]}" for true, read in bars]
    draw_bars(left, labels, list(bars.values()), families)
    across, down = ([c for c in characters if c in side] for side in (columns, rows))
    matrix = np.array([[wrong.get((true, read), 0) for read in across] for true in down])
    draw_matrix(
        right, matrix, [names[true] for true in down], [names[read] for read in across], families
    )
    misread = len({true for true, _ in wrong})
    part = f"{len(rows)} of " if len(rows) < misread else ""
    errors = counted(int(matrix.sum()), "error")
    right.set_title(f"{part}{counted(misread, 'misread character')}, {errors}", fontsize=10)
    return figure


def draw_bars(axes: Axes, labels: list[str], counts: list[int], families: list[str]) -> None:
    """Draw horizontal bars with their counts, the first on top."""
    bars = axes.barh(range(len(counts)), counts, color=BLUE, height=0.7)
    axes.bar_label(bars, [f"{count:,}" for count in counts], padding=3, fontsize=9)
    axes.set_yticks(range(len(counts)), labels, fontsize=10, family=families)
    axes.set_ylim(max(len(counts), MIN_CELLS) - 0.5, -0.5)
    axes.set_title("most frequent confusions (true → read)", fontsize=10)
    axes.margins(x=0.12)
    axes.xaxis.set_visible(False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def draw_matrix(
    axes: Axes, matrix: np.ndarray, rows: list[str], columns: list[str], families: list[str]
) -> None:
    """Draw the counts of a matrix in square cells, the first row on top."""
    axes.pcolormesh(
        matrix, cmap="Blues", vmin=0, vmax=1.2 * matrix.max(), edgecolors="lightgrey", linewidth=0.5
    )
    axes.set_aspect("equal", anchor="NW")
    axes.set_xlim(0, max(len(columns), MIN_CELLS))
    axes.set_ylim(max(len(rows), MIN_CELLS), 0)
    axes.spines[:].set_visible(False)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("read as", loc="left")
    axes.set_ylabel("true character", loc="top")
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, fontsize=9, family=families)
    for label in axes.get_xticklabels():
        label.set_rotation(90 if len(label.get_text()) > 2 else 0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize=9, family=families)
    axes.tick_params(length=0)
    for row, column in zip(*matrix.nonzero(), strict=True):
        count = matrix[row, column]
        colour = "white" if count > 0.8 * matrix.max() else "black"
        size = min(8, 24 / len(str(count)))
        axes.text(
            column + 0.5,
            row + 0.5,
            str(count),
            ha="center",
            va="center",
            fontsize=size,
            color=colour,
        )


def draw_learning_curve(
    points: Sequence[tuple[int, float, tuple[float, float]]],
    laws: Sequence[Callable[[float], float]],
    targets: Sequence[float],
) -> Figure:
    """Draw exact match against the number of images, from points (images, exact match, its 95 % interval).

    laws: the exact match to expect of a number of images, and the same from points that are as likely; none if there is
    no law. targets: exact matches to mark. All shares are 0 to 1.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    images, matches, intervals = zip(*points, strict=True)
    lows, highs = zip(*intervals, strict=True)
    shown = [*matches]
    axes.plot(images, matches, color=BLUE, marker="o", label="measured", clip_on=False)
    axes.vlines(images, lows, highs, color=BLUE)  # the band of a single point has no width
    axes.fill_between(
        images,
        lows,
        highs,
        color=BLUE,
        alpha=0.2,
        linewidth=0,
        label="95 % interval of the measured",
    )
    if laws:
        counts = np.geomspace(images[0], 10 * images[-1], 100)
        expected = np.array([[law(count) for count in counts] for law in laws])
        low, high = np.percentile(expected, (2.5, 97.5), axis=0)
        axes.plot(
            counts, expected[0], color=RED, linestyle="--", label="extrapolated by a power law"
        )
        axes.fill_between(
            counts, low, high, color=RED, alpha=0.15, linewidth=0, label="95 % interval of the law"
        )
        shown.append(min(expected[0].max(), MOST_EXPECTED))
    beside = axes.get_yaxis_transform()
    for target in targets:
        axes.axhline(target, linewidth=1, linestyle=":", color=GREY)
        axes.text(
            1.01,
            target,
            f"target {100 * target:g} %",
            transform=beside,
            va="center",
            fontsize=9,
            color=GREY,
        )
    scale_by_error(axes, shown)
    axes.set_xscale("log")
    axes.set_xticks(ticks_at(images, 10 * images[-1] if laws else images[-1]))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("training images")
    axes.set_ylabel("exact match (log scale of the error)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def ticks_at(counts: Sequence[int], end: float) -> list[float]:
    """Return the ticks of a log axis: counts, then 1, 3, 10, … times a power of ten up to `end`, if they have room."""
    beyond = LogLocator(subs=(1, 3)).tick_values(counts[-1], end) if end > counts[-1] else ()
    ticks: list[float] = []
    for tick in (*counts, *(tick for tick in beyond if counts[-1] < tick <= end)):
        if not ticks or np.log(tick / ticks[-1]) > MIN_BETWEEN_TICKS * np.log(end / counts[0]):
            ticks.append(tick)
    return ticks
