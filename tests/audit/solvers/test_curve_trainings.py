import pytest

from captcha_ocr.audit.solvers.curve_trainings import CurveMeasurement, LabelPool
from captcha_ocr.audit.solvers.time_budget import TimeBudget
from captcha_ocr.audit.solvers.trainings import Trained
from captcha_ocr.data.labels import Label

LABELS = tuple(Label(f"{number}.png", "12") for number in range(3000))


class Instant:
    """Runs no training: each gives the same share of right readings, after so many seconds for each start."""

    workers = 2

    def __init__(self, share, seconds):
        self.share, self.seconds = share, seconds

    def run(self, trainings, on_end):
        for training in trainings:
            right, seconds = (
                round(self.share * len(training.tested)),
                self.seconds[training.start] * training.size / 30,
            )
            on_end(training, Trained(right, len(training.tested), seconds))

    def result(self, training):
        return None


def measured(tmp_path, share=0.5, pool=3000, budget_s=1e9, random_s=1.0, quiet=True):
    """The sizes of both curves, and the notes."""
    runner = Instant(share, {"general": 1.0, "random": random_s})
    budget = TimeBudget(tmp_path, runner, budget_s, {}, quiet)
    labels = LabelPool(tmp_path, LABELS[:pool], LABELS[:100], 0)
    measurement = CurveMeasurement(labels, budget, 1000)
    curves = measurement.run()
    return *(
        [score.labels for score in curves[start].scores] for start in ("general", "random")
    ), measurement.notes


def test_all_sizes_that_images_and_budget_allow_are_measured(tmp_path):
    assert measured(tmp_path) == ([30, 100, 300, 1000], [30, 100, 300, 1000], [])


def test_more_labels_than_enough_are_left_out(tmp_path):
    general, random, notes = measured(tmp_path, share=1)
    assert (general, random) == ([30], [30])
    assert all("100 labels or more" in note and "reads nearly all" in note for note in notes)


def test_the_slower_start_is_left_out_first(tmp_path):
    general, random, notes = measured(tmp_path, budget_s=1000, random_s=1000)
    assert (general, random) == ([30, 100, 300, 1000], [30])
    assert len(notes) == 1
    assert "100 labels or more, from random weights" in notes[0]


@pytest.mark.parametrize(("budget_s", "words"), [(1e9, "1,000 labels"), (1, "too short for 100")])
def test_what_fits_is_said_beforehand(tmp_path, capsys, budget_s, words):
    measured(tmp_path, budget_s=budget_s, quiet=False)
    assert words in next(
        line for line in capsys.readouterr().err.splitlines() if line.startswith("expected")
    )


@pytest.mark.parametrize(
    ("pool", "sizes", "words"), [(40, [30], "40 images are left"), (400, [30, 100, 300], "share")]
)
def test_what_few_images_do_not_allow_is_noted(tmp_path, pool, sizes, words):
    general, random, notes = measured(tmp_path, pool=pool)
    assert general == random == sizes
    assert any(words in note for note in notes)
