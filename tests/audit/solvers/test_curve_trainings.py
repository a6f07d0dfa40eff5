import re

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


def test_every_solver_is_an_attack(tmp_path):
    budget = InstantBudget(tmp_path, seconds=lambda training: training.size)
    curves, attacks = measure_curves(LabelPool(tmp_path, LABELS, LABELS[:100], 0), budget, 100)
    assert [(attack.start, attack.labels, attack.training_s) for attack in attacks] == [
        *(("general", 30, 30), ("general", 100, 100), ("random", 30, 30), ("random", 100, 100)),
    ]
    score = curves["random"].scores[1]
    assert (attacks[3].share, attacks[3].interval) == (score.share, score.interval)


ALL = [30, 100, 300, 1000]


@pytest.mark.parametrize(
    ("options", "general", "random", "patterns"),
    [
        ({}, ALL, ALL, []),
        # More labels than enough are left out.
        ({"right": 100}, [30], [30], ["100 labels or more.*reads nearly all"] * 2),
        # The slower start is left out first.
        (
            {"budget_s": 1000, "random_s": 1000},
            *(ALL, [30], ["100 labels or more, from random weights"]),
        ),
        ({"labels": 40}, [30], [30], ["100 labels or more; 40 images are left", "share"]),
        ({"labels": 400}, ALL[:3], ALL[:3], ["1,000 labels or more; 400 images", "share"]),
    ],
)
def test_sizes_that_images_and_budget_allow_and_that_tell_something_are_measured(
    tmp_path, options, general, random, patterns
):
    *sizes, notes = measure(tmp_path, **options)
    assert sizes == [general, random]
    for pattern, note in zip(patterns, notes, strict=True):
        assert re.search(pattern, note)


@pytest.mark.parametrize(("budget_s", "words"), [(1e9, "1,000 labels"), (1, "too short for 100")])
def test_what_fits_is_said_beforehand(tmp_path, capsys, budget_s, words):
    measure(tmp_path, budget_s=budget_s, quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert words in next(line for line in lines if line.startswith("expected"))
