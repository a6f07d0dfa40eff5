import pytest

from audit.samples import InstantBudget
from captcha_ocr.audit.solvers.curve_trainings import measure_curves
from captcha_ocr.audit.solvers.trainings import LabelPool
from captcha_ocr.data.labels import Label

LABELS = tuple(Label(f"{number}.png", "12") for number in range(3000))


def measure(tmp_path, right=50, labels=3000, budget_s=1e9, random_s=1.0, quiet=True):
    """Return the sizes of both curves, and the notes."""
    seconds = {"general": 1.0, "random": random_s}
    budget = InstantBudget(
        tmp_path,
        budget_s,
        quiet=quiet,
        right=right,
        seconds=lambda training: seconds[training.start] * training.size / 30,
    )
    pool = LabelPool(tmp_path, LABELS[:labels], LABELS[:100], 0)
    curves, _ = measure_curves(pool, budget, 1000)
    return curves["general"].sizes, curves["random"].sizes, budget.notes


def test_all_sizes_that_images_and_budget_allow_are_measured(tmp_path):
    assert measure(tmp_path) == ([30, 100, 300, 1000], [30, 100, 300, 1000], [])


def test_every_solver_is_an_attack(tmp_path):
    budget = InstantBudget(tmp_path, seconds=lambda training: training.size)
    curves, attacks = measure_curves(LabelPool(tmp_path, LABELS, LABELS[:100], 0), budget, 100)
    assert [(attack.start, attack.labels, attack.training_s) for attack in attacks] == [
        *(("general", 30, 30), ("general", 100, 100), ("random", 30, 30), ("random", 100, 100)),
    ]
    score = curves["random"].scores[1]
    assert (attacks[3].share, attacks[3].interval) == (score.share, score.interval)


def test_more_labels_than_enough_are_left_out(tmp_path):
    general, random, notes = measure(tmp_path, right=100)
    assert (general, random) == ([30], [30])
    assert all("100 labels or more" in note and "reads nearly all" in note for note in notes)


def test_the_slower_start_is_left_out_first(tmp_path):
    general, random, notes = measure(tmp_path, budget_s=1000, random_s=1000)
    assert (general, random) == ([30, 100, 300, 1000], [30])
    assert len(notes) == 1
    assert "100 labels or more, from random weights" in notes[0]


@pytest.mark.parametrize(("budget_s", "words"), [(1e9, "1,000 labels"), (1, "too short for 100")])
def test_what_fits_is_said_beforehand(tmp_path, capsys, budget_s, words):
    measure(tmp_path, budget_s=budget_s, quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert words in next(line for line in lines if line.startswith("expected"))


@pytest.mark.parametrize(
    ("labels", "sizes", "words"), [(40, [30], "40 images are left"), (400, [30, 100, 300], "share")]
)
def test_what_few_images_do_not_allow_is_noted(tmp_path, labels, sizes, words):
    general, random, notes = measure(tmp_path, labels=labels)
    assert general == random == sizes
    assert any(words in note for note in notes)
