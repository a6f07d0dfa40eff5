import json
import shutil
import signal
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ONE_WORKER, QUIET, amend, flip_bit, naming, weights
from PIL import Image

from captcha_ocr.config import PRESETS, PrepareConfig, derive_epochs
from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.inference.model_folder import find_model_folder
from captcha_ocr.metrics import Scores
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.files import TEMPORARY
from captcha_ocr.training import loop
from captcha_ocr.training import train as training
from captcha_ocr.training.batches import BatchPartition, load_split
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.evaluate import evaluate
from captcha_ocr.training.loop import ending_rule, is_better
from captcha_ocr.training.run import TrainOptions
from captcha_ocr.training.train import train
from captcha_ocr.training.trainer import Progress, Trainer


@pytest.fixture
def config(tiny_preset):
    return tiny_preset.training


@pytest.fixture(autouse=True)
def short_trial(monkeypatch):
    monkeypatch.setattr(training, "TRIAL_SECONDS", 0.0)


@pytest.fixture
def copied(run, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(run, tmp_path / "run")


def rows_of(run, by="epoch") -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["by"] == by]


def test_a_run_leaves_its_models_its_metrics_and_its_pictures(run):
    assert {path.name for path in run.iterdir()} == {
        "run.json", "metrics.jsonl", "curves.png", "confusion.png", "best", "last", "previous"
    }  # fmt: skip
    assert {path.name for path in (run / "best").iterdir()} == {"README.md", "config.json", "model.safetensors"}
    finished = json.loads((run / "run.json").read_bytes())["finished"]
    assert (finished["epochs"], finished["test"]["images"]) == (2, 6)
    rows = rows_of(run)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert set(rows[0]) == {
        "epoch", "step", "seconds", "training_loss", "training_exact", "validation_loss", "validation_exact",
        "learning_rate", "images_per_s", "peak_memory_mb", "peak_device_memory_mb", "by",
    }  # fmt: skip
    assert rows[1]["learning_rate"] < rows[0]["learning_rate"]
    steps = rows_of(run, by="step")
    assert [row["step"] for row in steps] == list(range(1, 11))
    assert "validation_loss" not in steps[0]
    assert all(row["images_per_s"] > 0 and row["peak_memory_mb"] > 0 for row in steps)


@pytest.fixture
def scripted(monkeypatch):
    """Set the validations of a run, (exact, loss) for each epoch; what follows is scored as usual."""

    def script(*outcomes):
        left, real = list(outcomes), loop.evaluate

        def evaluate(*arguments):
            scores = real(*arguments)
            if left:
                exact, loss_mean = left.pop(0)
                return replace(scores, exact=exact, loss=loss_mean)
            return scores

        monkeypatch.setattr(loop, "evaluate", evaluate)

    return script


def test_the_best_weights_are_kept_and_scored_and_not_the_last(shards, config, tmp_path, scripted):
    scripted((6, 0.1), (0, 0.1))
    finished = train([shards], tmp_path, config, QUIET)
    assert finished.best_epoch == 1
    best, previous, last = (load_model(tmp_path / name).state_dict() for name in ("best", "previous", "last"))
    assert [name for name in best if not torch.equal(best[name], previous[name])] == ["temperature"]
    assert not torch.equal(best["stem.0.weight"], last["stem.0.weight"])
    test_set = load_split(read_dataset([shards]), "test", ProcessGroup(torch.device("cpu")))
    scores = evaluate(load_model(tmp_path / "best"), test_set.in_order(250))
    assert finished.test == {**scores.summary(), **scores.counts()}


@pytest.mark.parametrize(("schedule", "best"), [("onecycle", 3), ("constant", 2)])
def test_a_rate_that_decays_prefers_the_last_epoch_to_one_that_is_better_at_random(
    shards, config, tmp_path, scripted, schedule, best
):
    scripted((3, 0.5), (5, 0.4), (4, 0.6))
    config = replace(config, epochs=3, schedule=schedule)
    assert train([shards], tmp_path, config, QUIET).best_epoch == best


def test_the_same_seed_gives_the_same_weights_and_another_seed_or_augmentation_gives_others(
    run, shards, config, tmp_path
):
    for changes in ({}, {"seed": 1}, {"augment": True}):
        out = tmp_path / "-".join(["run", *changes])
        train([shards], out, replace(config, **changes), QUIET)
        assert (weights(out / "last") == weights(run / "last")) == (not changes)


def test_an_early_end_is_announced_where_there_can_be_one(shards, config, tmp_path, capsys):
    for patience in (2, 3):
        train(
            [shards], tmp_path / str(patience), replace(config, epochs=3, patience=patience), TrainOptions(device="cpu")
        )
        expected = next(line for line in capsys.readouterr().err.splitlines() if "3 epochs" in line)
        assert ("2 epochs" in expected) == (patience == 2)


def test_several_folders_are_trained_on_as_one_unless_they_differ_or_share_images(
    images, other_images, shards, config, tmp_path
):
    split = PrepareConfig(preset="tiny", split=(60, 20, 20))
    prepare(other_images, tmp_path / "other", split, ONE_WORKER)
    prepare(images, tmp_path / "split", split, ONE_WORKER)
    prepare(images, tmp_path / "narrow", PrepareConfig(preset="tiny", width=32, height=16), ONE_WORKER)
    with pytest.raises(UsageError, match=naming(tmp_path / "narrow", shards, "32x16", "48x16")):
        train([shards, tmp_path / "narrow"], tmp_path / "run", config, QUIET)
    for twice in (shutil.copytree(shards, tmp_path / "copy"), tmp_path / "split"):
        with pytest.raises(UsageError, match=naming(shards, twice)):
            train([shards, twice], tmp_path / "run", config, QUIET)
    assert not (tmp_path / "run").exists()
    train([shards, tmp_path / "other"], tmp_path / "run", replace(config, epochs=1), QUIET)
    described = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert described["images"] == {"train": 84, "val": 18, "test": 18}


WAYS = {
    "one cycle": ({}, False),
    "cosine, augmented, streamed": ({"schedule": "cosine", "augment": True}, True),
    "plateau, Adam": ({"schedule": "plateau", "optimizer": "adam", "patience": 2, "focus": 0.0}, False),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_stopped_at_any_step_ends_with_the_same_weights(shards, config, tmp_path, monkeypatch, way):
    options, stream = WAYS[way]
    config = replace(config, epochs=3, **options)
    monkeypatch.setattr("captcha_ocr.training.batches.BATCHES_PER_WINDOW", 2)
    train([shards], tmp_path / "whole", config, replace(QUIET, stream=stream))
    for stop in (1, 4, 5, 7, 15):  # an epoch has 5 steps, of which the last is a tail
        with monkeypatch.context() as context:
            context.setattr(
                ProcessGroup, "agree_on_signal", lambda _, __, step, at=stop: signal.SIGTERM if step == at else None
            )
            with pytest.raises(SystemExit, match="143"):
                train([shards], tmp_path / "stopped", config, replace(QUIET, stream=stream))
        assert json.loads((tmp_path / "stopped" / "last" / "state.json").read_bytes())["progress"]["step"] == stop
    train([shards], tmp_path / "stopped", config, replace(QUIET, stream=stream))
    for name in ("best", "last"):
        assert weights(tmp_path / "stopped" / name) == weights(tmp_path / "whole" / name)
    for by in ("step", "epoch"):
        one, other = (
            [{**row, "seconds": 0, "images_per_s": 0, "peak_memory_mb": 0} for row in rows_of(tmp_path / name, by)]
            for name in ("stopped", "whole")
        )
        assert one == other


def test_a_run_stopped_while_it_is_scored_goes_on_with_the_scoring(run, shards, config, tmp_path, monkeypatch):
    def leave(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(loop, "evaluate", leave)
        with pytest.raises(KeyboardInterrupt):
            train([shards], tmp_path, config, QUIET)
        context.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
        context.setattr(training, "estimate", lambda *_: "")
        with pytest.raises(KeyboardInterrupt):
            train([shards], tmp_path, config, QUIET)
    train([shards], tmp_path, config, QUIET)
    assert weights(tmp_path / "last") == weights(run / "last")


def test_the_minutes_between_checkpoints_count_within_an_epoch(run, shards, config, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    real = loop.save_last
    monkeypatch.setattr(loop, "save_last", lambda *all_: (saved.append(all_[2].progress.step), real(*all_)))
    train([shards], tmp_path, config, QUIET)
    assert saved == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10]
    assert weights(tmp_path / "last") == weights(run / "last")


@pytest.mark.parametrize("schedule", ["onecycle", "plateau"])
def test_more_epochs_train_on_and_fewer_are_another_run(shards, config, tmp_path, capsys, schedule):
    config = replace(config, schedule=schedule, patience=100)
    train([shards], tmp_path / "run", replace(config, epochs=2), QUIET)
    before = rows_of(tmp_path / "run")
    finished = train([shards], tmp_path / "run", replace(config, epochs=4), TrainOptions(device="cpu"))
    assert str(tmp_path / "run" / "last") in capsys.readouterr().err
    assert finished.epochs == 4
    rows = rows_of(tmp_path / "run")
    assert rows[:2] == before
    train([shards], tmp_path / "whole", replace(config, epochs=4), QUIET)
    assert [row["learning_rate"] for row in rows[2:]] == pytest.approx(
        [row["learning_rate"] for row in rows_of(tmp_path / "whole")[2:]], rel=1e-6, abs=1e-12
    )
    with pytest.raises(UsageError, match=naming("epochs", "--force")):
        train([shards], tmp_path / "run", replace(config, epochs=3), QUIET)


def test_checkpoints_are_kept_for_good_where_that_is_wanted(shards, config, tmp_path):
    config = replace(config, epochs=5)
    train([shards], tmp_path / "run", config, replace(QUIET, keep_every=2))
    assert sorted(path.name for path in (tmp_path / "run").glob("epoch-*")) == ["epoch-0002", "epoch-0004"]
    train([shards], tmp_path / "other", config, replace(QUIET, resume=str(tmp_path / "run" / "epoch-0002")))
    for name in ("last", "best"):
        assert weights(tmp_path / "other" / name) == weights(tmp_path / "run" / name)
    (tmp_path / "run" / "epoch-notes").mkdir()
    (tmp_path / "run" / ("epoch-0006" + TEMPORARY)).mkdir()
    train([shards], tmp_path / "run", replace(config, epochs=1), replace(QUIET, force=True))
    assert [path.name for path in (tmp_path / "run").glob("epoch-*")] == ["epoch-notes"]


def test_a_run_from_a_kept_checkpoint_has_a_best_epoch_of_its_own(shards, config, tmp_path, scripted):
    scripted(*[(exact, 0.1) for exact in (1, 2, 6, 6, 6, 6, 1, 3, 2)])  # after three epochs the best is scored thrice
    config = replace(config, schedule="constant", patience=2)
    train([shards], tmp_path / "run", replace(config, epochs=3), replace(QUIET, keep_every=1))
    checkpoint = str(tmp_path / "run" / "epoch-0002")
    finished = train([shards], tmp_path / "own", replace(config, epochs=5), replace(QUIET, resume=checkpoint))
    assert (finished.epochs, finished.best_epoch) == (5, 4)
    assert json.loads((tmp_path / "own" / "best" / "config.json").read_bytes())["facts"]["epoch"] == 4


def test_a_finished_run_is_left_as_it_is_even_with_force(copied, shards, config):
    (copied / "last" / "model.safetensors").unlink()  # nothing reads it
    for force in (False, True):
        assert train([shards], copied, config, replace(QUIET, force=force)).epochs == 2
        assert not (copied / "last" / "model.safetensors").exists()


def test_force_replaces_another_run_and_nothing_else(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "notes.txt").write_text("mine")
    train([shards], copied, replace(config, epochs=1), replace(QUIET, force=True))
    assert len(rows_of(copied)) == 1
    assert (copied / "notes.txt").read_text() == "mine"
    assert not (copied / "replaced").exists()


def test_the_run_that_force_replaces_is_kept_until_the_new_one_has_finished(run, shards, config, tmp_path, monkeypatch):
    copied = shutil.copytree(run, tmp_path / "run")
    for seed in (1, 2):  # the second replaces the first, which did not finish
        stop_after_the_first_epoch(shards, copied, replace(config, seed=seed), monkeypatch, force=True)
        assert {path.name for path in (copied / "replaced").iterdir()} == {path.name for path in run.iterdir()}
        assert find_model_folder(copied / "replaced") == copied / "replaced" / "best"
        assert weights(copied / "replaced" / "best") == weights(run / "best")
    train([shards], copied, replace(config, seed=2), QUIET)
    assert not (copied / "replaced").exists()


def test_an_older_run_all_of_which_had_been_moved_is_kept_when_the_next_goes_on(run, shards, config, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copytree(run, tmp_path / "run" / "replaced")
    train([shards], tmp_path / "run", replace(config, epochs=1), replace(QUIET, keep_every=1))
    assert not list((tmp_path / "run").glob("replaced*"))  # the new one has finished
    train([shards], tmp_path / "run", replace(config, epochs=1, seed=9), replace(QUIET, force=True))


def test_force_spares_what_lies_where_it_would_keep_the_older_run(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "replaced").mkdir()
    with pytest.raises(UsageError, match=naming(copied / "replaced", "--out")):
        train([shards], copied, replace(config, epochs=1), replace(QUIET, force=True))
    assert weights(copied / "best") == weights(run / "best")


def test_force_spares_a_folder_that_no_run_made(shards, config, tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=naming("best", "run.json")):
        train([shards], tmp_path, config, replace(QUIET, force=True))
    assert (tmp_path / "best" / "notes.txt").read_text() == "mine"


def test_force_replaces_a_damaged_run(run, copied, shards, config):
    path = copied / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    train([shards], copied, config, replace(QUIET, force=True))
    assert weights(copied / "last") == weights(run / "last")


def stop_after_the_first_epoch(shards, out, config, monkeypatch, **options):
    with monkeypatch.context() as context:
        context.setattr(loop, "write_metrics", lambda out, rows: rows and pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            train([shards], out, config, replace(QUIET, **options))


def test_a_damaged_best_model_is_found_before_the_first_step(copied, shards, config, monkeypatch):
    amend(copied / "run.json", finished=None)
    flip_bit(copied / "best" / "model.safetensors")
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(DamagedError, match=naming(copied / "best" / "model.safetensors", "--resume never", "--force")):
        train([shards], copied, config, QUIET)


def test_a_best_model_newer_than_the_checkpoint_counts(run, shards, config, tmp_path, monkeypatch):
    with monkeypatch.context() as context:  # killed between writing best and last, in the second epoch
        real = loop.save_last
        context.setattr(
            loop, "save_last", lambda *all_: real(*all_) if all_[2].progress.epoch == 1 else pytest.fail("stopped")
        )
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            train([shards], tmp_path, config, QUIET)
    newer = json.loads((tmp_path / "best" / "config.json").read_bytes())["facts"]["epoch"]
    finished = train([shards], tmp_path, config, QUIET)
    assert finished.best_epoch == newer
    assert weights(tmp_path / "best") == weights(run / "best")


def test_a_checkpoint_in_a_run_that_is_replaced_is_refused(copied, shards, config):
    (copied / "best" / "model.safetensors").unlink()
    for checkpoint in (copied / "last", copied):
        with pytest.raises(UsageError, match=naming(checkpoint, "--out")):
            train([shards], copied, config, replace(QUIET, resume=str(checkpoint), force=True))
        assert (copied / "last" / "model.safetensors").exists()


def test_a_checkpoint_that_was_copied_alone_goes_on_unless_its_epochs_are_done(run, shards, config, tmp_path, capsys):
    for name in ("previous", "last"):
        shutil.copytree(run / name, tmp_path / "copied" / name)
    with pytest.raises(UsageError, match="--epochs"):
        train([shards], tmp_path / "run", config, replace(QUIET, resume=str(tmp_path / "copied" / "last")))
    assert not (tmp_path / "run").exists()
    train([shards], tmp_path / "run", config, TrainOptions(device="cpu", resume=str(tmp_path / "copied" / "previous")))
    lines = capsys.readouterr().err.splitlines()
    assert any(f"{tmp_path}/copied" in line and "previous" not in line for line in lines)  # it has no best model
    assert weights(tmp_path / "run" / "last") == weights(run / "last")


def test_a_checkpoint_with_other_steps_an_epoch_is_refused(run, shards, config, tmp_path, monkeypatch):
    monkeypatch.setattr(BatchPartition, "steps", 4)  # several processes may have fewer steps, because they drop a tail
    with pytest.raises(UsageError, match=naming(run / "previous", 5, 4)):
        train([shards], tmp_path / "run", config, replace(QUIET, resume=str(run / "previous")))


def test_a_run_whose_checkpoints_are_lost_does_not_silently_start_from_nothing(run, copied, shards, config):
    longer = replace(config, epochs=3)
    for lost in ("last", "previous"):
        shutil.rmtree(copied / lost)
    for _ in range(2):
        with pytest.raises(DamagedError, match=naming(copied, "--resume never", "--force")):
            train([shards], copied, longer, QUIET)
        (copied / "metrics.jsonl").unlink(missing_ok=True)
    assert weights(copied / "best") == weights(run / "best")
    assert train([shards], copied, longer, replace(QUIET, resume="never", force=True)).epochs == 3


def test_a_named_checkpoint_or_run_is_never_passed_over(run, shards, config, tmp_path):
    out, checkpoint = tmp_path / "run", str(run / "previous")
    finished = train([shards], out, config, replace(QUIET, resume=checkpoint))
    assert weights(out / "last") == weights(run / "last")
    for resume in (checkpoint, "auto", str(out), str(out / "last")):
        assert train([shards], out, config, replace(QUIET, resume=resume)) == finished
    for refused in (run / "last", tmp_path / "typo"):
        with pytest.raises(UsageError, match=str(refused)):
            train([shards], out, config, replace(QUIET, resume=str(refused)))
    with pytest.raises(UsageError, match=naming("batch_size", 10, 5)):
        train([shards], tmp_path / "new", replace(config, batch_size=5), replace(QUIET, resume=checkpoint))
    assert not (tmp_path / "new").exists()
    train([shards], tmp_path / "new", config, replace(QUIET, resume=str(run)))
    assert weights(tmp_path / "new" / "best") == weights(run / "best")


def test_what_a_run_began_from_is_remembered_when_it_goes_on(run, shards, config, tmp_path, monkeypatch):
    checkpoint = str(run / "previous")
    with monkeypatch.context() as context:
        context.setattr(ProcessGroup, "agree_on_signal", lambda _, __, step: signal.SIGTERM if step == 7 else None)
        with pytest.raises(SystemExit, match="143"):
            train([shards], tmp_path, config, replace(QUIET, resume=checkpoint))
    finished = train([shards], tmp_path, config, QUIET)
    assert train([shards], tmp_path, config, replace(QUIET, resume=checkpoint)) == finished
    assert weights(tmp_path / "last") == weights(run / "last")


def test_other_data_are_refused(images, run, config, tmp_path):
    prepare(images, tmp_path / "shards", PrepareConfig(preset="tiny", seed=1), ONE_WORKER)
    with pytest.raises(UsageError, match=str(run)):
        train([tmp_path / "shards"], run, config, QUIET)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_flipped_bit_in_any_shard_is_refused_before_the_first_step(shards, config, tmp_path, split, monkeypatch):
    path = next(shutil.copytree(shards, tmp_path / "shards").glob(f"{split}-*"))
    flip_bit(path)
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(DamagedError, match=path.name):
        train([path.parent], tmp_path / "run", config, QUIET)


def test_shards_that_do_not_suit_the_network_are_refused_naming_the_command_that_makes_others(images, shards, tmp_path):
    prepare(images, tmp_path / "narrow", PrepareConfig(width=8, height=16), ONE_WORKER)
    for data, preset in ((shards, "seed"), (tmp_path / "narrow", "default")):
        with pytest.raises(UsageError, match=rf"captcha-ocr prepare .* --preset {preset} --force"):
            train([data], tmp_path / "run", PRESETS[preset].training, QUIET)


def test_init_starts_from_a_trained_model_whose_network_it_keeps(run, shards, config, tmp_path):
    other_preset = replace(config, preset="few", epochs=1, learning_rate=1e-9)
    train([shards], tmp_path, other_preset, replace(QUIET, init=run))
    started, other = load_model(tmp_path / "last"), load_model(run / "best")
    assert started.config.network == other.config.network != PRESETS["few"].network
    assert torch.allclose(started.head.weight, other.head.weight, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "schedule", "optimizer", "precision"),
    [
        ("bce", "onecycle", "adamw", "fp32"),
        ("ce", "cosine", "adam", "bf16"),
        ("bce", "plateau", "adam", "fp32"),
        ("ce", "constant", "adamw", "bf16"),
    ],
)
def test_every_option_of_the_recipe_lowers_the_training_loss(
    shards, config, tmp_path, loss, schedule, optimizer, precision
):
    options = {"loss": loss, "schedule": schedule, "optimizer": optimizer, "precision": precision}
    train([shards], tmp_path, replace(config, epochs=4, **options), QUIET)
    rows = rows_of(tmp_path)
    assert rows[-1]["training_loss"] < rows[0]["training_loss"]
    assert json.loads((tmp_path / "run.json").read_bytes())["precision"] == precision


def test_a_constant_rate_is_ended_by_early_stopping(shards, config, tmp_path):
    hopeless = replace(config, schedule="constant", learning_rate=9.9, patience=2, epochs=200)
    finished = train([shards], tmp_path, hopeless, QUIET)
    assert finished.epochs == finished.best_epoch + 2 < 200


@pytest.mark.parametrize(
    ("epoch", "best_epoch", "ends"),
    [(5, 4, False), (9, 9, True), (7, 4, True)],  # all 9 epochs are done; 3 epochs were no better
)
def test_each_rule_ends_a_run(config, epoch, best_epoch, ends):
    progress = Progress(epoch=epoch, best_epoch=best_epoch, rows=[{"training_loss": 0.1}])
    assert (ending_rule(SimpleNamespace(config=config, epochs=9, progress=progress)) is not None) == ends


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_a_failure(config, loss):
    progress = Progress(epoch=1, best_epoch=1, rows=[{"training_loss": loss}])
    with pytest.raises(CaptchaOcrError, match="--lr"):
        ending_rule(SimpleNamespace(config=config, epochs=9, progress=progress))


@pytest.mark.parametrize(
    ("exact", "loss", "better"), [(6, 9.0, True), (5, 0.4, True), (5, 0.5, False), (5, 0.6, False), (4, 0.0, False)]
)
def test_more_exact_matches_win_and_ties_go_to_the_lower_loss(exact, loss, better):
    progress = Progress(best_exact=0.5, best_loss=0.5)
    assert is_better(Scores(10, exact, Counter(), loss), progress) is better


@pytest.mark.parametrize(
    ("exact", "loss", "better"),
    [(95, 0.5, True), (87, 0.5, True), (86, 0.5, False), (95, float("nan"), False), (95, None, False)],
)
def test_the_last_epoch_of_a_decayed_rate_wins_unless_it_is_significantly_worse(exact, loss, better):
    progress = Progress(best_exact=0.95, best_loss=0.1)
    assert is_better(Scores(100, exact, Counter(), loss), progress, at_rest=True) is better


def test_fewer_images_get_more_epochs_within_bounds_and_the_seed_recipe_has_none():
    default = PRESETS["default"]
    epochs = [derive_epochs(default.training, images) for images in (10, 10_000, 32_000, 10**7)]
    assert epochs == [100, round(default.images_seen / 10_000), round(default.images_seen / 32_000), 1]
    assert derive_epochs(PRESETS["seed"].training, 48) is None


def flat_images(folder, names):
    """Prepare images of one shade each, with these names; return the folder of their shards."""
    (folder / "images").mkdir()
    for number, name in enumerate(names):
        Image.fromarray(np.full((16, 48), number, dtype=np.uint8)).save(folder / "images" / f"{name}.png")
    prepare(folder / "images", folder / "shards", PrepareConfig(preset="tiny"), ONE_WORKER)
    return folder / "shards"


def test_a_set_with_one_training_image_is_refused(config, tmp_path):
    with pytest.raises(UsageError, match=r"\b2\b"):
        train([flat_images(tmp_path, ["00", "11", "22"])], tmp_path / "run", config, QUIET)


def test_texts_of_one_character_that_differ_in_length_can_be_learnt(config, tmp_path):
    shards = flat_images(tmp_path, [f"{'A' * (1 + number % 2)}_{number}" for number in range(10)])
    finished = train([shards], tmp_path / "run", replace(config, epochs=1), QUIET)
    assert load_model(tmp_path / "run" / "best").config.class_names == ["A", ""]
    assert finished.validation["images"] == 1


def test_a_set_without_test_images_is_trained_and_not_scored(images, config, tmp_path):
    table = (images / "labels.csv").read_text().splitlines()[1:]
    (tmp_path / "labels.csv").write_text("\n".join(["filename,text,split", *(f"{row},train" for row in table)]))
    prepare(
        images,
        tmp_path / "shards",
        PrepareConfig(preset="tiny"),
        replace(ONE_WORKER, labels_file=tmp_path / "labels.csv"),
    )
    finished = train([tmp_path / "shards"], tmp_path / "run", replace(config, epochs=1), QUIET)
    assert finished.test is None
