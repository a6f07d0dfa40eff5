from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import TINY

from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.scores import Scores
from captcha_ocr.training.early_stopping import (
    describe_early_stopping,
    ending_rule,
    finds_end,
    is_better,
)
from captcha_ocr.training.step.trainer import Progress


def trainer_after(*scores, epochs=9, images=200):
    """Return what the rules know of a run that finds its end, by what its average has read."""
    rows = [
        {"by": "epoch", "training_loss": 0.1, "average_exact": exact, "average_images": images}
        for exact in scores
    ]
    return SimpleNamespace(
        config=replace(TINY.training, patience=None),
        epochs=epochs,
        finds_end=True,
        progress=Progress(epoch=len(rows), rows=rows),
    )


@pytest.mark.parametrize(
    ("trainer", "ends"),
    [
        (trainer_after(200, 200), False),  # three epochs at least
        (trainer_after(200, 200, 200), True),
        (trainer_after(200, 200, 200, epochs=12), False),  # not in the first third
        (trainer_after(200, 200, 200, 200, epochs=12), True),
        (trainer_after(180, 200, 190, 200, 190, 200), False),  # up and down
        (trainer_after(180, 200, 190, 200, 200, 199), True),
        (trainer_after(0, 110, 150, 180, 190, 195, 197, 200, 200, epochs=12), False),
        # 10 validation images and 10 training images, all read: it might be luck
        (trainer_after(*[20] * 5, images=20), False),
        (trainer_after(*[20] * 60, images=20, epochs=100), True),
        (trainer_after(*[0] * 9), True),  # all epochs
    ],
)
def test_a_run_ends_when_99_percent_are_surely_read(trainer, ends):
    assert (ending_rule(trainer) is not None) == ends


@pytest.mark.parametrize(
    ("changes", "trained", "validated", "finds"),
    [
        ({}, 200, 20, True),
        ({}, 199, 20, False),  # known by heart
        ({}, 200, 19, False),  # all read by chance
        ({"epochs": 3}, 200, 20, False),  # no epoch is left after three
        ({"patience": 3}, 200, 20, False),
    ],
)
def test_a_run_on_few_images_takes_all_its_epochs(changes, trained, validated, finds):
    config = replace(TINY.training, **{"patience": None, "epochs": 4} | changes)
    assert finds_end(config, trained, validated) == finds


def test_where_only_the_last_epoch_ends_a_run_nothing_is_said_of_an_early_end(trainer_of):
    assert not describe_early_stopping(trainer_of(patience=None))


@pytest.mark.parametrize(("schedule", "best"), [("onecycle", 3), ("constant", 2)])
def test_where_the_rate_decays_the_last_epoch_is_kept_if_it_is_not_much_worse(
    learn, tmp_path, scripted, schedule, best
):
    scripted([(3, 0.5), (5, 0.4), (4, 0.6)])
    assert learn(tmp_path, epochs=3, schedule=schedule).best_epoch == best


def test_a_constant_rate_is_ended_by_early_stopping(learn, tmp_path):
    finished = learn(tmp_path, schedule="constant", learning_rate=9.9, patience=2, epochs=200)
    assert finished.epochs == finished.best_epoch + 2 < 200


@pytest.mark.parametrize(
    ("epoch", "best_epoch", "ends"),
    [(5, 4, False), (9, 9, True), (7, 4, True)],  # all 9 epochs are done; 3 epochs were no better
)
def test_each_rule_ends_a_run_and_a_loss_that_is_no_number_is_a_failure(
    config, epoch, best_epoch, ends
):
    rows = [{"by": "epoch", "training_loss": 0.1}]
    progress = Progress(epoch, best_epoch=best_epoch, rows=rows)
    trainer = SimpleNamespace(config=config, epochs=9, finds_end=False, progress=progress)
    assert (ending_rule(trainer) is not None) == ends
    for rows[0]["training_loss"] in (float("nan"), float("inf")):
        with pytest.raises(CaptchaOcrError, match="learning_rate"):
            ending_rule(trainer)


@pytest.mark.parametrize(
    (
        "exact",
        "loss",
        "at_rest",
        "better",
    ),  # the best so far: 50 exact matches of 100, and a loss of 0.5
    [
        *[
            (60, 9.0, False, True),
            (50, 0.4, False, True),
            (50, 0.5, False, False),
            (40, 0.0, False, False),
        ],
        # the last epoch of a rate that decays is better unless it is significantly worse
        *[
            (50, 0.6, True, True),
            (37, 0.6, True, True),
            (36, 0.6, True, False),
            (50, float("nan"), True, False),
        ],
    ],
)
def test_more_exact_matches_win_and_ties_go_to_the_lower_loss(exact, loss, at_rest, better):
    progress = Progress(best_exact=0.5, best_loss=0.5)
    assert is_better(Scores(100, exact, Counter(), loss), progress, at_rest) is better
