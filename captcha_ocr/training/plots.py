"""Plots: curves over the epochs, the confusion matrix, and accuracy against the number of images."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from captcha_ocr.metrics import Scores
from captcha_ocr.system.files import write_atomic

MAX_LABELLED = 64  # characters; the confusion matrix of more has no labels


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100)
    write_atomic(path, picture.getvalue())


def draw_curves(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a PNG of loss and exact match in training and validation over the epochs."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    epochs = [row["epoch"] for row in rows]
    for axes, what, title in zip(figure.subplots(1, 2), ("loss", "exact"), ("loss", "exact match (%)"), strict=True):
        scale = 1 if what == "loss" else 100
        for kind in ("training", "validation"):
            values = [row[f"{kind}_{what}"] * scale for row in rows]
            axes.plot(epochs, values, marker="o", markersize=3, label=kind)
        axes.set_xlabel("epoch")
        axes.set_title(title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend()
        if what == "exact":
            axes.set_ylim(-2, 102)
        elif any(row["training_loss"] > 0 for row in rows):  # the loss of an alphabet of one character is 0
            axes.set_yscale("log")
    save_figure(figure, path)


def draw_confusion(scores: Scores, characters: Sequence[str], path: Path) -> None:
    """Write a PNG of the wrong characters: rows are true, columns are read; an empty character is the text's end."""
    wrong = scores.matrix(characters)
    np.fill_diagonal(wrong, 0)
    labelled = len(characters) <= MAX_LABELLED
    font = get_font(findfont(FontProperties()))
    names = ["none" if not c else c if font.get_char_index(ord(c)) else f"U+{ord(c):04X}" for c in characters]
    side = 8 if labelled else 10
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    axes.imshow(wrong, cmap="Reds", vmin=0, vmax=max(1, wrong.max()))
    axes.set_title(f"wrong characters: {wrong.sum():,} of {scores.pairs.total():,}")
    axes.set_xlabel("read as")
    axes.set_ylabel("true character")
    if labelled:
        axes.set_xticks(range(len(names)), names, fontsize=8, rotation="vertical" if max(map(len, names)) > 1 else None)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        for true, read in zip(*wrong.nonzero(), strict=True):
            colour = "white" if wrong[true, read] > wrong.max() / 2 else "black"
            axes.text(read, true, str(wrong[true, read]), ha="center", va="center", fontsize=7, color=colour)
    save_figure(figure, path)


def draw_learning_curve(
    points: Sequence[tuple[int, float, tuple[float, float]]],
    law: Callable[[float], float] | None,
    targets: Sequence[float],
    path: Path,
) -> None:
    """Write a PNG of exact match against the number of images, from points (images, exact match, its interval).

    law: the exact match to expect of a number of images. targets: exact matches to mark. All shares are 0 to 1.
    """
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    images, matches = [point[0] for point in points], [100 * point[1] for point in points]
    reaches = np.array([[match - low, high - match] for _, match, (low, high) in points]).T * 100
    axes.errorbar(images, matches, yerr=reaches.clip(0), marker="o", capsize=3, label="measured, 95 % interval")
    if law is not None:
        counts = np.geomspace(images[0], 10 * images[-1], 100)
        expected = [100 * law(count) for count in counts]
        axes.plot(counts, expected, linestyle="--", color="grey", label="extrapolated by a power law")
    for target in targets:
        axes.axhline(100 * target, linewidth=0.8, linestyle=":", color="black")
        axes.annotate(f"{target:.0%}", (images[0], 100 * target), fontsize=8, va="bottom")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("training images")
    axes.set_ylabel("exact match (%)")
    axes.set_ylim(-2, 102)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)
