import math
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.options.training import PRESETS
from captcha_ocr.pictures.plots import (
    MAX_BARS,
    MAX_CELLS,
    draw_confusions,
    draw_curves,
    draw_learning_curve,
    save_figure,
)
from captcha_ocr.scores import Scores


def rows_of(*exact, loss=1.0):
    """Metrics of epochs with these validation matches.

    Training matches are half of them, at twice the loss.
    """
    names = ("training_loss", "validation_loss", "training_exact", "validation_exact")
    return [
        {"epoch": epoch, **dict(zip(names, (2 * loss, loss, match / 2, match), strict=True))}
        for epoch, match in enumerate(exact, 1)
    ]


def shown(axes):
    """The labels on the y axis in the range that the axis shows."""
    low, high = sorted(axes.get_ylim())
    return [
        label.get_text()
        for label, tick in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
        if low <= tick <= high
    ]


@pytest.mark.parametrize(
    ("exact", "ticks"),
    [
        ((0, 0), "0 50 80 90 95 98 99 100"),
        ((0.5,), "0 50 80 90 95 98 99 100"),
        ((0, 0.9, 1), "0 50 80 90 95 98 99 100"),
        ((0.1, 0.97, 0.998), "0 50 80 90 95 98 99 99.5 99.8 100"),
        ((0.9999, 1), "0 50 80 90 95 98 99 99.5 99.8 99.9 99.95 99.98 99.99 100"),
    ],
)
def test_the_axis_of_exact_match_shows_95_to_100_percent_whatever_was_read(exact, ticks):
    axes = draw_curves(rows_of(*exact), 1, PRESETS["few"].training).axes[1]
    assert " ".join(shown(axes)).replace(" %", "") == ticks
    places = axes.transData.transform([(1, value) for value in (0, 0.9, 0.95, 1)])
    zero, ninety, ninety_nine, all_read = places[:, 1]  # in pixels
    assert ninety - zero == pytest.approx(
        (ninety_nine - ninety) / np.log10(2)
    )  # the error falls by 10, and by 2
    assert zero < ninety < ninety_nine < all_read


def test_curves_show_every_epoch_and_mark_the_best():
    rows = rows_of(0.2, 0.8, 0.6)
    figure = draw_curves(rows, 2, PRESETS["few"].training)
    for axes, what, best in zip(figure.axes, ("loss", "exact"), ("1", "80.00%"), strict=True):
        training, validation, mark = axes.lines  # told apart without colours
        assert list(training.get_xdata()) == [1, 2, 3]
        assert list(training.get_ydata()) == [row[f"training_{what}"] for row in rows]
        assert list(validation.get_ydata()) == [row[f"validation_{what}"] for row in rows]
        assert (*mark.get_xdata(), mark.get_label()) == (2, 2, f"best epoch 2: {best}")
        assert (training.get_linestyle(), validation.get_linestyle()) == ("--", "-")


@pytest.mark.parametrize(
    ("epochs", "loss", "last"),
    [(1, 1.0, 1.0), (2, 0.0, 0.0), (50, 0.02, 0.02), (2, 1.0, math.nan), (2, 1.0, math.inf)],
)
def test_ticks_are_whole_epochs_and_plain_losses(epochs, loss, last, tmp_path):
    rows = rows_of(*[0.5] * epochs, loss=loss)
    rows[-1]["validation_loss"] = last
    figure = draw_curves(rows, epochs, PRESETS["few"].training)
    save_figure(figure, tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        assert (image.format, image.size) == ("PNG", (1000, 440))
        assert image.getextrema()[-1] == (255, 255)  # opaque, for dark pages
    assert all(tick == round(tick) for axes in figure.axes for tick in axes.get_xticks())
    assert not any("10^" in label for label in shown(figure.axes[0]))


@pytest.mark.parametrize(
    "losses",
    [(0.31, 0.24), (0.17, 0.066), (0.0342, 0.0112), (0.53, 0.131), (0.13, 0.061), (3, 0.01)],
)
def test_a_loss_axis_has_three_ticks_or_more(losses):
    rows = [
        row | {"training_loss": loss, "validation_loss": loss}
        for row, loss in zip(rows_of(0, 0), losses, strict=True)
    ]
    assert len(shown(draw_curves(rows, 2, PRESETS["few"].training).axes[0])) >= 3


@pytest.mark.parametrize(
    ("augment", "smoothing", "focus", "loss", "reasons"),
    [
        (True, 0.1, 0.0, 1.0, ["augmented", "smoothed", "0.1", "mean"]),
        (False, 0.2, 1.0, 1.0, ["smoothed", "0.2", "hard", "mean"]),
        (True, 0.0, 0.0, 1.0, ["augmented", "mean"]),
        (False, 0.0, 0.0, 1.0, ["mean"]),
        (True, 0.1, 1.0, -1.0, []),  # below the validation loss
    ],
)
def test_a_note_says_why_training_loss_is_higher(augment, smoothing, focus, loss, reasons):
    config = PRESETS["few"].training.with_options(augment=augment, smoothing=smoothing, focus=focus)
    note = draw_curves(rows_of(0.1, loss=loss), 1, config).get_supxlabel()
    assert [
        word for word in ("augmented", "smoothed", "0.1", "0.2", "hard", "mean") if word in note
    ] == reasons


def scores_of(*confusions):
    return Scores(
        1, 0, Counter({("a", "a"): 90, **{(true, read): count for true, read, count in confusions}})
    )


def bars_of(figure):
    """The label of every bar, its length and the number beside it."""
    axes = figure.axes[0]
    labels = [label.get_text().replace("\u200e", "") for label in axes.get_yticklabels()]
    bars = zip(labels, axes.patches, axes.texts, strict=True)
    return [(label, bar.get_width(), number.get_text()) for label, bar, number in bars]


def matrix_of(figure):
    """The rows' and columns' names, and the counts in the cells."""
    axes = figure.axes[1]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    columns = [label.get_text() for label in axes.get_xticklabels()]
    counts = {
        (rows[int(y)], columns[int(x)]): cell.get_text()
        for cell in axes.texts
        for x, y in [cell.get_position()]
    }
    return rows, columns, counts


def test_confusions_are_bars_and_a_matrix_without_empty_rows():
    figure = draw_confusions(
        scores_of(("d", "b", 1), ("b", "d", 1234), ("b", "", 7), ("", "c", 2)), [*"abcd", ""]
    )
    assert bars_of(figure) == [
        ("b → d", 1234, "1,234"),
        ("b → nothing", 7, "7"),
        ("nothing → c", 2, "2"),
        ("d → b", 1, "1"),
    ]
    counts = {("b", "d"): "1234", ("b", "nothing"): "7", ("nothing", "c"): "2", ("d", "b"): "1"}
    assert matrix_of(figure) == (["b", "d", "nothing"], ["b", "c", "d", "nothing"], counts)
    assert "1,244 of 1,334" in figure.get_suptitle()


def test_no_confusion_is_said_in_words():
    figure = draw_confusions(scores_of(), "a")
    assert figure.axes == []
    assert [text.get_text() for text in figure.texts] == ["wrong characters: 0 of 90"]


# Names for what no font has, what no eye sees, what matplotlib takes for formulas, and what is
# written on another one.
NAMES = {
    **{"\ufdd0": "U+FDD0", "\U000e0041": "U+E0041", " ": "space", "\t": "U+0009"},
    **{"\u00a0": "U+00A0", "$": "$", "_": "_", "\\": "\\", "é": "é", "я": "я", "ש": "ש"},
    "\u0301": "\u25cc\u0301",
}


def test_every_character_has_a_name_that_can_be_drawn(tmp_path, caplog):
    confusions = [(character, "b", 3) for character in NAMES]
    figure = draw_confusions(scores_of(*confusions), ["b", *NAMES])
    save_figure(figure, tmp_path / "confusion.png")  # a warning of the font would be an error
    assert caplog.records == []
    assert matrix_of(figure)[0] == [*NAMES.values()]
    assert sorted(bars_of(figure)) == sorted((f"{name} → b", 3, "3") for name in NAMES.values())


def test_thousands_of_characters_keep_the_picture_small(tmp_path):
    characters = [chr(0x4E00 + number) for number in range(3755)]
    near = zip(characters, characters[1:] + characters[:1], range(1, 3756), strict=True)
    figure = draw_confusions(scores_of(*near), ["a", *characters])
    save_figure(figure, tmp_path / "confusion.png")
    assert [length for _, length, _ in bars_of(figure)] == [*range(3755, 3755 - MAX_BARS, -1)]
    assert [*map(len, matrix_of(figure))] == [MAX_CELLS] * 3
    assert f"{MAX_CELLS} of 3,755 " in figure.axes[1].get_title()
    with Image.open(tmp_path / "confusion.png") as image:
        assert max(image.size) < 1600


POINTS = [(100, 0.6, (0.5, 0.7)), (1000, 1.0, (0.96, 1.0))]


def test_a_learning_curve_has_its_points_their_interval_and_the_law(tmp_path):
    laws = [lambda images, factor=factor: 1 - factor * images**-0.5 for factor in (4, 3, 5)]
    figure = draw_learning_curve(POINTS, laws, (0.95,))
    axes = figure.axes[0]
    measured, law, target = axes.lines
    assert measured.get_xydata().tolist() == [[100, 0.6], [1000, 1.0]]
    assert law.get_xydata()[-1] == pytest.approx((10_000, 0.96))
    assert list(target.get_ydata()) == [0.95, 0.95]
    _, interval, spread = (drawn.get_paths()[0].vertices for drawn in axes.collections)
    corners = {(100, 0.5), (100, 0.7), (1000, 0.96), (1000, 1.0)}
    assert {*map(tuple, interval)} >= corners
    assert spread[:, 1].max() == pytest.approx(1 - 0.03, abs=0.002)
    assert {"50 %", "95 %", "98 %", "100 %"} <= set(shown(axes))
    save_figure(figure, tmp_path / "curve.png")


def test_a_steep_law_does_not_squeeze_the_axis():
    points = [(40, 0.2, (0.1, 0.3)), (48, 0.8, (0.7, 0.9))]
    (axes,) = draw_learning_curve(
        points, [lambda images: 1 - 0.8 * (40 / images) ** 9], (0.95,)
    ).axes
    assert {"95 %", "99 %", "99.9 %", "100 %"} <= set(shown(axes))
    assert len(shown(axes)) == len(set(shown(axes))) < 15
    # The label of 48 would lie on that of 40.
    assert axes.get_xticks() == pytest.approx([40, 100, 300])


@pytest.mark.parametrize("counts", [(20,), (40, 80), (100, 300, 800), (2000, 2500)])
def test_a_learning_curve_of_bad_results_has_a_tick_at_every_point_and_nothing_over_its_lines(
    counts, tmp_path
):
    figure = draw_learning_curve([(count, 0.0, (0.0, 0.03)) for count in counts], [], (0.95, 0.99))
    (axes,) = figure.axes
    assert axes.get_xticks() == pytest.approx(counts)
    assert axes.get_legend() is None  # it is below
    targets = [(text.get_text(), text.get_position()[0] > 1) for text in axes.texts]
    assert targets == [("target 95 %", True), ("target 99 %", True)]
    assert len(axes.lines) == 1 + 2  # without a law the points and the targets
    intervals = [path.vertices[:, 0].tolist() for path in axes.collections[0].get_paths()]
    assert intervals == [[count, count] for count in counts]
    save_figure(figure, tmp_path / "curve.png")
