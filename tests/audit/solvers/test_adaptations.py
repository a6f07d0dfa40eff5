import re

import pytest

from audit.samples import InstantBudget
from captcha_ocr.audit.solvers.adaptations import (
    FROM_IMAGES,
    Adaptation,
    judge_adapted,
    measure_adaptations,
)
from captcha_ocr.audit.solvers.trainings import LabelPool, TimeBudget
from captcha_ocr.data.labels import Label, find_labels
from captcha_ocr.errors import UsageError

LABELS = tuple(Label(f"{number}.png", "12") for number in range(4000))


@pytest.mark.usefixtures("adapting_here")
def test_images_without_their_labels_give_a_solver_that_is_scored_once(four_digits, tmp_path):
    labels = tuple(find_labels(four_digits).labels)
    adaptation = Adaptation(LabelPool(four_digits, labels[:55], labels[:5], 0), FROM_IMAGES, 55, 0)
    budget = TimeBudget(tmp_path, 3600, {}, quiet=True)
    budget.run([adaptation])
    run = budget.run_folder(adaptation)
    assert sorted(path.name for path in (run.parent / "images").iterdir())[-1] == "00054.png"
    trained = budget.trained[adaptation.name]
    right = sum(is_right for _, is_right in judge_adapted(run, adaptation.pool))
    assert (trained.right, trained.tested) == (right, 5)
    assert adaptation.result(run) == trained
    (run / "best").rename(tmp_path / "elsewhere")
    told = judge_adapted(run, adaptation.pool)  # by the model in the package
    assert sum(is_right for _, is_right in told) >= 4


@pytest.mark.parametrize(
    ("options", "images", "patterns"),
    [
        ({}, [300, 1000, 3000], []),
        ({"labels": 2000}, [300, 1000], []),
        ({"budget_s": 3600, "seconds": 300}, [300, 1000], ["3,000 images"]),
        ({"labels": 200}, [], ["300 images"]),
        ({"budget_s": 600}, [], ["15 minutes"]),
    ],
)
def test_numbers_of_images_that_there_are_and_that_fit_are_measured(
    tmp_path, options, images, patterns
):
    seconds = options.get("seconds", 1) / 300
    budget = InstantBudget(
        tmp_path, options.get("budget_s", 1e9), seconds=lambda adaptation: adaptation.size * seconds
    )
    pool = LabelPool(tmp_path, LABELS[: options.get("labels", 4000)], LABELS[:100], 0)
    attacks = measure_adaptations(pool, budget)
    assert [(attack.images, attack.labels, attack.share) for attack in attacks] == [
        (count, 0, 0.5) for count in images
    ]
    assert attacks == [] or attacks[-1].training_s == images[-1] * seconds
    for pattern, note in zip(patterns, budget.notes, strict=True):
        assert re.search(pattern, note)


def test_a_captcha_of_which_too_little_is_read_is_noted(tmp_path):
    (tmp_path / "0.png").touch()
    pool = LabelPool(tmp_path, LABELS[:1] * 300, LABELS[:1], 0)
    budget = TimeBudget(tmp_path / "work", 3600, {}, quiet=True)
    assert measure_adaptations(pool, budget) == []
    assert "images without labels" in budget.notes[0]


def test_more_images_of_which_too_little_is_read_leave_the_score_of_fewer(tmp_path):
    def refuse_many(adaptation):
        if adaptation.size == 3000:
            raise UsageError("too few are read surely")
        return 1

    budget = InstantBudget(tmp_path, seconds=refuse_many)
    budget.workers = 1
    attacks = measure_adaptations(LabelPool(tmp_path, LABELS, LABELS[:100], 0), budget)
    assert {attack.images for attack in attacks} <= {300, 1000}
    assert attacks[0].images == 300
    assert "too few" in budget.notes[0]
