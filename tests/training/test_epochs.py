from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import weights

from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.network.weights import load_model
from captcha_ocr.scores import Scores
from captcha_ocr.system.files import TEMPORARY
from captcha_ocr.training import train as training
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.evaluate import evaluate
from captcha_ocr.training.reporting import EPOCHS, EPOCHS_EXPLAINED, epoch_row
from captcha_ocr.training.samples.load import load_split
from captcha_ocr.training.step.progress import Progress
from captcha_ocr.training.step.trainer import Trainer
from captcha_ocr.training.train import ending_rule, is_better


@pytest.fixture
def scripted(monkeypatch):
    """Set the validations of a run: (exact, loss) for each epoch.

    What follows is scored as usual.
    """
    outcomes, real = [], training.evaluate

    def evaluate(*arguments):
        scores = real(*arguments)
        exact, loss_mean = outcomes.pop(0) if outcomes else (scores.exact, scores.loss)
        return replace(scores, exact=exact, loss=loss_mean)

    monkeypatch.setattr(training, "evaluate", evaluate)
    return outcomes.extend


def test_the_best_weights_are_kept_and_scored_and_not_the_last(learn, shards, tmp_path, scripted):
    scripted([(6, 0.1), (0, 0.1)])
    finished = learn(tmp_path)
    assert finished.best_epoch == 1
    best, previous, last = (
        load_model(tmp_path / name).state_dict() for name in ("best", "previous", "last")
    )
    assert [name for name in best if not torch.equal(best[name], previous[name])] == ["temperature"]
    assert not torch.equal(best["stem.0.weight"], last["stem.0.weight"])
    test_set = load_split(read_dataset([shards]), "test", ProcessGroup(torch.device("cpu")))
    scores = evaluate(load_model(tmp_path / "best"), test_set.in_order(250))
    assert finished.test == {**scores.summary(), **scores.counts()}


@pytest.mark.parametrize(("schedule", "best"), [("onecycle", 3), ("constant", 2)])
def test_where_the_rate_decays_the_last_epoch_is_kept_if_it_is_not_much_worse(
    learn, tmp_path, scripted, schedule, best
):
    scripted([(3, 0.5), (5, 0.4), (4, 0.6)])
    assert learn(tmp_path, epochs=3, schedule=schedule).best_epoch == best


def test_a_run_stopped_while_it_is_scored_goes_on_with_the_scoring(
    learn, run, tmp_path, monkeypatch
):
    def leave(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(training, "evaluate", leave)
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path)
        context.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
        context.setattr(training, "estimate", lambda *_: "")
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path)
    learn(tmp_path)
    assert weights(tmp_path / "last") == weights(run / "last")


def test_checkpoints_are_kept_for_good_where_that_is_wanted(learn, tmp_path):
    out = tmp_path / "run"
    learn(out, epochs=5, keep_every=2)
    assert sorted(path.name for path in out.glob("epoch-*")) == ["epoch-0002", "epoch-0004"]
    learn(tmp_path / "other", epochs=5, resume=out / "epoch-0002")
    for name in ("last", "best"):
        assert weights(tmp_path / "other" / name) == weights(out / name)
    (out / "epoch-notes").mkdir()
    (out / ("epoch-0006" + TEMPORARY)).mkdir()
    learn(out, epochs=1, force=True)
    assert [path.name for path in out.glob("epoch-*")] == ["epoch-notes"]


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
    rows = [{"training_loss": 0.1}]
    trainer = SimpleNamespace(
        config=config, epochs=9, progress=Progress(epoch, best_epoch=best_epoch, rows=rows)
    )
    assert (ending_rule(trainer) is not None) == ends
    for rows[0]["training_loss"] in (float("nan"), float("inf")):
        with pytest.raises(CaptchaOcrError, match="learning_rate"):
            ending_rule(trainer)


@pytest.mark.parametrize(
    ("epochs", "number", "seconds", "loss", "exact", "rate", "best", "named"),
    [
        (
            120,
            1,
            2.0,
            0.1162,
            0.0,
            385.4,
            1,
            ["1/120", "0.1162", "0.00%", "8.31%", "385", "3 min 58 s", "*"],
        ),
        (120, 120, 240.0, 0.0373, 1.0, 385.4, 119, ["120/120", "100.00%", "0 s"]),
        (None, 7, 9.0, 0.5, 0.25, 12_345.6, 7, ["7", "25.00%", "12,346", "*"]),
        (1000, 999, 1e6, 12.345678, 0.5, 99.0, 1, ["999/1000", "12.3457"]),
        (10, 2, 2.0, float("nan"), 0.5, 99.0, 1, ["nan", "8 s"]),
    ],
)
def test_an_epoch_is_a_row_of_at_most_80_columns_below_its_names(
    epochs, number, seconds, loss, exact, rate, best, named
):
    row = {
        "epoch": number,
        "seconds": seconds,
        "images_per_s": rate,
        "validation_characters": 0.0831,
    }
    row |= {
        f"{kind}_{name}": value
        for kind in ("training", "validation")
        for name, value in (("loss", loss), ("exact", exact))
    }
    line = epoch_row(row, SimpleNamespace(epochs=epochs, progress=Progress(best_epoch=best)))
    assert all(name in line for name in named)
    assert ("*" in line) == (number == best)
    assert len(line) <= 80
    assert len(EPOCHS.header) <= 80
    assert len(f"epochs     {EPOCHS_EXPLAINED}") <= 80


def test_a_run_prints_the_names_once_a_row_an_epoch_and_marks_the_best(
    learn, tmp_path, capsys, scripted
):
    scripted([(1, 0.5), (3, 0.4), (2, 0.6)])
    learn(tmp_path, epochs=3, schedule="constant", quiet=False)
    lines = capsys.readouterr().err.splitlines()
    start = lines.index(EPOCHS.header)
    assert lines.count(EPOCHS.header) == 1
    rows = lines[start + 1 : start + 4]
    assert [row.split()[0] for row in rows] == ["1/3", "2/3", "3/3"]
    assert [row.endswith("*") for row in rows] == [True, True, False]
    assert all(len(line) <= 80 for line in rows)


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
