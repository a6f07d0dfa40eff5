"""Plots: curves over the epochs, the confusions, and accuracy against the number of images."""

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, LogLocator, MaxNLocator, NullLocator

from captcha_ocr.options.training import TrainConfig
from captcha_ocr.pictures.script_fonts import OWN_FONTS, fonts_for, visible
from captcha_ocr.scores import Scores
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import write_atomic

MAX_BARS = 20  # confusions
MAX_CELLS = 36  # rows, and columns, that the confusion matrix shows
_BLUE, _RED, _GREY = "#0072B2", "#D55E00", "#666666"  # also for the colour-blind (Okabe, Ito 2008)
_MAX_MARKED = 40  # epochs; the points of more make one thick line
_MIN_CELLS = 8  # rows, and columns, that the confusion matrix has room for
_CELL = 0.25  # inches: the side of a cell
_BARS_WIDTH = 4.5  # inches: all bars with their labels
_LEAST_ERROR = 0.005  # where 100 % stands on an axis of exact match, unless an error is smaller
# Exact match to which an extrapolation stretches the axis; a steep one would squeeze the rest.
_MOST_EXPECTED = 0.9998
_Row = dict[str, Any]  # the metrics of an epoch
_MIN_BETWEEN_TICKS = 0.08  # of the width of a log axis, for labels of six digits


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, on white: it is read on light and on dark pages."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100, facecolor="white")
    write_atomic(path, picture.getvalue())


def draw_curves(rows: Sequence[_Row], best_epoch: int, config: TrainConfig) -> Figure:
    """Draw loss and exact match over the epochs, in training and validation.

    rows: the metrics of the epochs.
    """
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    best = next(row for row in rows if row["epoch"] == best_epoch)
    _draw_metric(left, rows, "loss", "loss (log scale)", best, ".3g")
    _draw_metric(right, rows, "exact", "exact match (log scale of the error)", best, ".2%")
    # The loss of an alphabet of one character is 0.
    if any(row["training_loss"] > 0 for row in rows):
        left.set_yscale("log")
        low, high = left.get_ylim()
        subs = (1, 2, 5) if high > 10 * low else range(1, 10)
        left.yaxis.set(
            major_locator=LogLocator(subs=subs) if high > 4 * low else AutoLocator(),
            major_formatter="{x:g}",
            minor_locator=NullLocator(),
        )
    _scale_by_error(
        right, [row[name] for row in rows for name in ("training_exact", "validation_exact")]
    )
    if best["training_loss"] > best["validation_loss"]:
        # What only training images and labels go through.
        causes = {
            "training images are augmented": config.augment,
            f"training labels are smoothed (by {config.smoothing:g})": config.smoothing > 0,
            "in training the characters that are hard to read count more": config.focus > 0,
            "validation is read with the average of the weights": "average_exact" in best,
            "training loss is the mean over an epoch, and validation follows at its end": True,
        }
        reasons = "; ".join(cause for cause, is_given in causes.items() if is_given)
        figure.supxlabel(
            textwrap.fill(f"Training loss is higher than validation loss: {reasons}.", 130),
            fontsize=9,
        )
    return figure


def _draw_metric(
    axes: Axes, rows: Sequence[_Row], name: str, title: str, best: _Row, number_format: str
) -> None:
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) <= _MAX_MARKED else ""
    for kind, colour, line, size in (("training", _RED, "--", 5), ("validation", _BLUE, "-", 3)):
        axes.plot(
            epochs,
            [row[f"{kind}_{name}"] for row in rows],
            label=kind,
            clip_on=False,
            color=colour,
            linestyle=line,
            marker=marker,
            markersize=size,
        )
    mark = f"best epoch {best['epoch']}: {best[f'validation_{name}']:{number_format}}"
    axes.axvline(best["epoch"], color=_GREY, linestyle=":", label=mark)
    axes.set(title=title, xlabel="epoch", xlim=(0.5, epochs[-1] + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axes.grid(alpha=0.3)
    axes.legend()


def _scale_by_error(axes: Axes, matches: Iterable[float]) -> None:
    """Let an axis of exact match (0 to 1) grow with the logarithm of the error; label in percent.

    An error of 0 has no logarithm: 100 % stands at half of the smallest error.
    """
    least = min([_LEAST_ERROR, *((1 - match) / 2 for match in matches if match < 1)])
    axes.set_yscale(
        "function", functions=(lambda y: -np.log10(np.maximum(1 - y, least)), lambda v: 1 - 10**-v)
    )
    errors = [digit * 10.0**-power for power in range(8) for digit in (1, 0.5, 0.2)]
    axes.set_yticks([1 - error for error in errors if error > 1.3 * least] + [1])
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.7g} %")
    axes.set_ylim(-0.1, 1)


def draw_confusions(scores: Scores, characters: Sequence[str]) -> Figure:
    """Draw the most frequent confusions as bars, and the matrix of the misread characters.

    characters: the alphabet, in the order of rows and columns; an empty one is the text's end. The
    matrix has no empty rows and columns; if it is too large, it has those of the most frequent
    confusions.
    """
    wrong = {(true, read): count for true, read, count in scores.worst(len(scores.pairs))}
    title = f"wrong characters: {sum(wrong.values()):,} of {scores.pairs.total():,}"
    if not wrong:
        figure = Figure(figsize=(6, 1))
        figure.text(0.5, 0.5, title, ha="center", va="center", fontsize=12)
        return figure
    rows, columns = _choose_cells(list(wrong), characters)
    bars = dict(islice(wrong.items(), MAX_BARS))
    shown = {*rows, *columns, *chain.from_iterable(bars)}
    fonts = fonts_for(shown - {""})
    names = {character: visible(character, fonts) for character in shown} | {"": "nothing"}
    families = [*dict.fromkeys(font.name for font in fonts.values()), *OWN_FONTS]
    width = _CELL * max(_MIN_CELLS, len(columns)) + 1
    height = max(_CELL * max(_MIN_CELLS, len(rows)) + 1, _CELL * len(bars)) + 1
    figure = Figure(figsize=(_BARS_WIDTH + width, height), layout="constrained")
    figure.suptitle(title)
    left, right = figure.subplots(1, 2, width_ratios=(_BARS_WIDTH, width))
    # The marks (U+200E) keep true before read between characters of scripts from right to left.
    labels = [f"\u200e{names[true]} → \u200e{names[read]}" for true, read in bars]
    _draw_bars(left, labels, list(bars.values()), families)
    cells = [wrong.get(pair, 0) for pair in product(rows, columns)]
    matrix = np.reshape(cells, (len(rows), len(columns)))
    name = names.__getitem__
    _draw_matrix(right, matrix, list(map(name, rows)), list(map(name, columns)), families)
    misread = len({true for true, _ in wrong})
    part = f"{len(rows)} of " if len(rows) < misread else ""
    right.set_title(
        f"{part}{counted(misread, 'misread character')}, {counted(sum(cells), 'error')}",
        fontsize=10,
    )
    return figure


def _choose_cells(
    confusions: Sequence[tuple[str, str]], characters: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the rows and the columns, in the order of the alphabet, of a matrix that holds the
    first of these confusions.
    """
    rows, columns = set[str](), set[str]()
    for true, read in confusions:
        if max(len(rows | {true}), len(columns | {read})) <= MAX_CELLS:
            rows.add(true)
            columns.add(read)
    return [*filter(rows.__contains__, characters)], [*filter(columns.__contains__, characters)]


def _draw_bars(axes: Axes, labels: list[str], counts: list[int], families: list[str]) -> None:
    bars = axes.barh(range(len(counts)), counts, color=_BLUE, height=0.7)
    axes.bar_label(bars, [f"{count:,}" for count in counts], padding=3, fontsize=9)
    axes.set_yticks(range(len(counts)), labels, fontsize=10, family=families)
    axes.set(ylim=(max(len(counts), _MIN_CELLS) - 0.5, -0.5), xmargin=0.12)
    axes.set_title("most frequent confusions (true → read)", fontsize=10)
    axes.xaxis.set_visible(False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _draw_matrix(
    axes: Axes, matrix: np.ndarray, rows: list[str], columns: list[str], families: list[str]
) -> None:
    most = matrix.max()
    axes.pcolormesh(
        matrix, cmap="Blues", vmin=0, vmax=1.2 * most, edgecolors="lightgrey", linewidth=0.5
    )
    axes.set_aspect("equal", anchor="NW")
    axes.set(xlim=(0, max(len(columns), _MIN_CELLS)), ylim=(max(len(rows), _MIN_CELLS), 0))
    axes.spines[:].set_visible(False)
    axes.xaxis.set(ticks_position="top", label_position="top")
    axes.set_xlabel("read as", loc="left")
    axes.set_ylabel("true character", loc="top")
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, fontsize=9, family=families)
    for label in axes.get_xticklabels():
        label.set_rotation(90 if len(label.get_text()) > 2 else 0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize=9, family=families)
    axes.tick_params(length=0)
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            axes.text(
                column + 0.5,
                row + 0.5,
                str(count),
                ha="center",
                va="center",
                fontsize=min(8, 24 / len(str(count))),
                color="white" if count > 0.8 * most else "black",
            )


def draw_learning_curve(
    points: Sequence[tuple[int, float, tuple[float, float]]],
    laws: Sequence[Callable[[float], float]],
    targets: Sequence[float],
) -> Figure:
    """Draw exact match against the number of images.

    points: (images, exact match, its 95 % interval). laws: the exact match to expect of a number
    of images, and the same from points that are as likely; none if there is no law. targets: exact
    matches to mark. All shares are 0 to 1.
    """
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    images, matches, intervals = zip(*points, strict=True)
    lows, highs = zip(*intervals, strict=True)
    axes.plot(images, matches, color=_BLUE, marker="o", label="measured", clip_on=False)
    axes.vlines(images, lows, highs, color=_BLUE)  # the band of a single point has no width
    axes.fill_between(
        images,
        lows,
        highs,
        color=_BLUE,
        alpha=0.2,
        linewidth=0,
        label="95 % interval of the measured",
    )
    shown, end = [*matches], images[-1]
    if laws:
        end = 10 * images[-1]
        counts = np.geomspace(images[0], end, 100)
        expected = np.array([[*map(law, counts)] for law in laws])
        low, high = np.percentile(expected, (2.5, 97.5), axis=0)
        axes.plot(
            counts, expected[0], color=_RED, linestyle="--", label="extrapolated by a power law"
        )
        axes.fill_between(
            counts, low, high, color=_RED, alpha=0.15, linewidth=0, label="95 % interval of the law"
        )
        shown.append(min(expected[0].max(), _MOST_EXPECTED))
    for target in targets:
        axes.axhline(target, linewidth=1, linestyle=":", color=_GREY)
        axes.text(
            1.01,
            target,
            f"target {100 * target:g} %",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9,
            color=_GREY,
        )
    _scale_by_error(axes, shown)
    axes.set(xscale="log", xticks=_place_ticks(images, end))
    axes.xaxis.set(major_formatter="{x:,.0f}", minor_locator=NullLocator())
    axes.set(xlabel="training images", ylabel="exact match (log scale of the error)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _place_ticks(counts: Sequence[int], end: float) -> list[float]:
    """Return the ticks of a log axis that have room: counts, then 1, 3, 10, … up to `end`."""
    places: list[float] = [*counts]
    if end > counts[-1]:
        beyond = LogLocator(subs=(1, 3)).tick_values(counts[-1], end)
        places += [tick for tick in beyond if counts[-1] < tick <= end]
    ticks = places[:1]
    for tick in places[1:]:
        if np.log(tick / ticks[-1]) > _MIN_BETWEEN_TICKS * np.log(end / counts[0]):
            ticks.append(tick)
    return ticks
