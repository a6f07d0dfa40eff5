import json
import shutil
import signal
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import naming
from PIL import Image

from captcha_ocr import train as training
from captcha_ocr.batches import Share, load_split
from captcha_ocr.checkpoint import load_model
from captcha_ocr.config import PRESETS, PrepareConfig, derive_epochs
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.evaluate import evaluate
from captcha_ocr.files import TEMPORARY
from captcha_ocr.metrics import Scores
from captcha_ocr.model_folder import find_model_folder
from captcha_ocr.prepare import prepare
from captcha_ocr.processes import Processes
from captcha_ocr.resume import Progress
from captcha_ocr.shards import read_dataset
from captcha_ocr.train import ending_rule, is_better, train
from captcha_ocr.trainer import Trainer


@pytest.fixture
def config(tiny_preset):
    return tiny_preset.training


@pytest.fixture(autouse=True)
def short_trial(monkeypatch):
    monkeypatch.setattr(training, "TRIAL_SECONDS", 0.0)


def weights(folder) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def rows_of(run, by="epoch") -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["by"] == by]


def test_a_run_leaves_what_the_design_promises(run):
    assert {path.name for path in run.iterdir()} == {
        "run.json", "metrics.jsonl", "curves.png", "confusion.png", "best", "last", "previous"
    }  # fmt: skip
    assert {path.name for path in (run / "best").iterdir()} == {"README.md", "config.json", "model.safetensors"}


def test_every_epoch_has_a_row_of_metrics(run):
    rows = rows_of(run)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert set(rows[0]) == {
        "epoch", "step", "seconds", "training_loss", "training_exact", "validation_loss", "validation_exact",
        "learning_rate", "images_per_s", "peak_memory_mb", "peak_device_memory_mb", "by",
    }  # fmt: skip
    assert rows[1]["learning_rate"] < rows[0]["learning_rate"]


def test_the_test_set_is_scored_with_the_best_weights(run, shards):
    finished = json.loads((run / "run.json").read_bytes())["finished"]
    assert finished["test"]["images"] == 6
    assert finished["epochs"] == 2


@pytest.fixture
def scripted(monkeypatch):
    """Makes the validations of a run come out as given, (exact, loss) an epoch; the test is scored as ever."""

    def script(*outcomes):
        left, real = list(outcomes), training.evaluate

        def evaluate(*arguments):
            scores = real(*arguments)
            if left:
                exact, loss_mean = left.pop(0)
                return replace(scores, exact=exact, loss=loss_mean)
            return scores

        monkeypatch.setattr(training, "evaluate", evaluate)

    return script


def test_the_best_weights_are_kept_and_scored_and_not_the_last(shards, config, tmp_path, scripted):
    scripted((6, 0.1), (0, 0.1))
    finished = train([shards], tmp_path, config, "cpu", quiet=True)
    assert finished.best_epoch == 1
    best, previous, last = (load_model(tmp_path / name).state_dict() for name in ("best", "previous", "last"))
    assert [name for name in best if not torch.equal(best[name], previous[name])] == ["temperature"]
    assert not torch.equal(best["stem.0.weight"], last["stem.0.weight"])
    test_set = load_split(read_dataset([shards]), "test", Processes(torch.device("cpu")))
    scores = evaluate(load_model(tmp_path / "best"), test_set.in_order(250))
    assert finished.test == {**scores.summary(), **scores.counts()}


@pytest.mark.parametrize(("losses", "best"), [((0.5, 0.4, 0.6), 2), ((0.5, 0.5, 0.5), 1), ((0.5, 0.6, 0.4), 3)])
def test_of_epochs_with_as_many_right_the_one_of_the_lowest_loss_is_kept(
    shards, config, tmp_path, scripted, losses, best
):
    scripted(*((3, loss) for loss in losses))
    config = replace(config, epochs=3, schedule="constant")
    assert train([shards], tmp_path, config, "cpu", quiet=True).best_epoch == best


@pytest.mark.parametrize(("schedule", "best"), [("onecycle", 3), ("cosine", 3), ("constant", 2)])
def test_where_the_rate_has_decayed_the_last_epoch_is_kept_unless_it_is_worse_beyond_chance(
    shards, config, tmp_path, scripted, schedule, best
):
    scripted((3, 0.5), (5, 0.4), (4, 0.6))
    config = replace(config, epochs=3, schedule=schedule)
    assert train([shards], tmp_path, config, "cpu", quiet=True).best_epoch == best


def test_the_same_seed_gives_the_same_weights(run, shards, config, tmp_path):
    train([shards], tmp_path, config, "cpu", quiet=True)
    assert weights(tmp_path / "last") == weights(run / "last")


@pytest.mark.parametrize(("patience", "sooner"), [(2, True), (3, False)])
def test_an_early_end_is_announced_where_there_can_be_one(shards, config, tmp_path, capsys, patience, sooner):
    train([shards], tmp_path, replace(config, epochs=3, patience=patience), "cpu")
    expected = next(line for line in capsys.readouterr().err.splitlines() if "3 epochs" in line)
    assert ("2 epochs" in expected) == sooner


def test_a_streamed_run_can_be_repeated(shards, config, tmp_path):
    for name in ("one", "two"):
        train([shards], tmp_path / name, config, "cpu", stream=True, quiet=True)
    assert weights(tmp_path / "one" / "last") == weights(tmp_path / "two" / "last")


def test_augmented_images_give_other_weights_and_the_same_ones_again(run, shards, config, tmp_path):
    for name in ("one", "two"):
        train([shards], tmp_path / name, replace(config, augment=True), "cpu", quiet=True)
    assert weights(tmp_path / "one" / "last") == weights(tmp_path / "two" / "last") != weights(run / "last")


def test_several_folders_are_trained_on_as_one(other_images, shards, config, tmp_path):
    prepare(other_images, tmp_path / "other", PrepareConfig(preset="tiny", split=(60, 20, 20)), workers=1)
    train([shards, tmp_path / "other"], tmp_path / "run", replace(config, epochs=1), "cpu", quiet=True)
    described = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert described["images"] == {"train": 84, "val": 18, "test": 18}


def test_folders_that_do_not_go_together_are_refused_with_what_differs(images, shards, config, tmp_path):
    prepare(images, tmp_path / "other", PrepareConfig(preset="tiny", width=32, height=16), workers=1)
    with pytest.raises(UsageError, match=naming(tmp_path / "other", shards, "32x16", "48x16")):
        train([shards, tmp_path / "other"], tmp_path / "run", config, "cpu", quiet=True)
    assert not (tmp_path / "run").exists()


def test_the_same_images_named_twice_are_refused_however_they_are_split(images, shards, config, tmp_path):
    shutil.copytree(shards, tmp_path / "copy")
    prepare(images, tmp_path / "split", PrepareConfig(preset="tiny", split=(60, 20, 20)), workers=1)
    for twice in (shards, tmp_path / "copy", tmp_path / "split"):
        with pytest.raises(UsageError, match=naming(shards, twice)):
            train([shards, twice], tmp_path / "run", config, "cpu", quiet=True)


def test_another_seed_gives_other_weights(run, shards, config, tmp_path):
    train([shards], tmp_path, replace(config, seed=1), "cpu", quiet=True)
    assert weights(tmp_path / "last") != weights(run / "last")


def test_a_run_killed_between_epochs_ends_as_if_it_had_not_been(run, shards, config, tmp_path, monkeypatch):
    real = training.run_epoch

    def killed(trainer, *rest):
        if trainer.progress.epoch == 1:
            raise KeyboardInterrupt
        return real(trainer, *rest)

    monkeypatch.setattr(training, "run_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        train([shards], tmp_path, config, "cpu", quiet=True)
    monkeypatch.undo()
    assert [row["epoch"] for row in rows_of(tmp_path)] == [1]
    train([shards], tmp_path, config, "cpu", quiet=True)
    for name in ("best", "last"):
        assert weights(tmp_path / name) == weights(run / name)
    assert [row["training_loss"] for row in rows_of(tmp_path)] == [row["training_loss"] for row in rows_of(run)]


WAYS = {
    "one cycle": {},
    "cosine, augmented": {"schedule": "cosine", "augment": True},
    "plateau, Adam": {"schedule": "plateau", "optimizer": "adam", "patience": 2, "focus": 0.0},
}


@pytest.mark.parametrize("stream", [False, True], ids=["resident", "streamed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_stopped_at_any_step_ends_with_the_same_weights(shards, config, tmp_path, monkeypatch, way, stream):
    config = replace(config, epochs=3, **WAYS[way])
    monkeypatch.setattr("captcha_ocr.batches.BATCHES_PER_WINDOW", 2)
    train([shards], tmp_path / "whole", config, "cpu", stream=stream, quiet=True)
    for stop in (1, 4, 5, 7, 15):  # an epoch has 5 steps, of which the last is a tail
        with monkeypatch.context() as context:
            context.setattr(Processes, "agreed", lambda _, __, step, at=stop: signal.SIGTERM if step == at else None)
            with pytest.raises(SystemExit, match="143"):
                train([shards], tmp_path / "stopped", config, "cpu", stream=stream, quiet=True)
        assert json.loads((tmp_path / "stopped" / "last" / "state.json").read_bytes())["progress"]["step"] == stop
    train([shards], tmp_path / "stopped", config, "cpu", stream=stream, quiet=True)
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
        context.setattr(training, "evaluate", leave)
        with pytest.raises(KeyboardInterrupt):
            train([shards], tmp_path, config, "cpu", quiet=True)
        context.setattr(training.Trainer, "step", lambda *_: pytest.fail("a step was made"))
        context.setattr(training, "expectation", lambda *_: "")
        with pytest.raises(KeyboardInterrupt):
            train([shards], tmp_path, config, "cpu", quiet=True)
    train([shards], tmp_path, config, "cpu", quiet=True)
    assert weights(tmp_path / "last") == weights(run / "last")


def test_the_minutes_between_checkpoints_count_within_an_epoch(run, shards, config, tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    real = training.save_last
    monkeypatch.setattr(training, "save_last", lambda *all_: (saved.append(all_[3].step), real(*all_)))
    train([shards], tmp_path, config, "cpu", quiet=True)
    assert saved == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10]
    assert weights(tmp_path / "last") == weights(run / "last")


@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "plateau", "constant"])
def test_more_epochs_train_on(shards, config, tmp_path, capsys, schedule):
    config = replace(config, schedule=schedule, patience=100)
    train([shards], tmp_path / "run", replace(config, epochs=2), "cpu", quiet=True)
    before = rows_of(tmp_path / "run")
    finished = train([shards], tmp_path / "run", replace(config, epochs=4), "cpu")
    assert str(tmp_path / "run" / "last") in capsys.readouterr().err
    assert finished.epochs == 4
    rows = rows_of(tmp_path / "run")
    assert rows[:2] == before
    train([shards], tmp_path / "whole", replace(config, epochs=4), "cpu", quiet=True)
    assert [row["learning_rate"] for row in rows[2:]] == pytest.approx(
        [row["learning_rate"] for row in rows_of(tmp_path / "whole")[2:]], rel=1e-6, abs=1e-12
    )


def test_fewer_epochs_are_another_run(run, shards, config):
    with pytest.raises(UsageError, match="epochs"):
        train([shards], run, replace(config, epochs=1), "cpu", quiet=True)


def test_checkpoints_are_kept_for_good_where_that_is_wanted(run, shards, config, tmp_path):
    config = replace(config, epochs=5)
    train([shards], tmp_path / "run", config, "cpu", quiet=True, keep_every=2)
    assert sorted(path.name for path in (tmp_path / "run").glob("epoch-*")) == ["epoch-0002", "epoch-0004"]
    train([shards], tmp_path / "other", config, "cpu", resume=str(tmp_path / "run" / "epoch-0002"), quiet=True)
    assert weights(tmp_path / "other" / "last") == weights(tmp_path / "run" / "last")
    assert weights(tmp_path / "other" / "best") == weights(tmp_path / "run" / "best")
    (tmp_path / "run" / "epoch-notes").mkdir()
    (tmp_path / "run" / ("epoch-0006" + TEMPORARY)).mkdir()
    train([shards], tmp_path / "run", replace(config, epochs=1), "cpu", force=True, quiet=True)
    assert [path.name for path in (tmp_path / "run").glob("epoch-*")] == ["epoch-notes"]


def test_a_run_from_a_kept_checkpoint_has_a_best_epoch_of_its_own(shards, config, tmp_path, scripted):
    scripted(*[(exact, 0.1) for exact in (1, 2, 6, 6, 6, 6, 1, 3, 2)])  # after three epochs the best is scored thrice
    config = replace(config, schedule="constant", patience=2)
    train([shards], tmp_path / "run", replace(config, epochs=3), "cpu", quiet=True, keep_every=1)
    checkpoint = str(tmp_path / "run" / "epoch-0002")
    finished = train([shards], tmp_path / "own", replace(config, epochs=5), "cpu", resume=checkpoint, quiet=True)
    assert (finished.epochs, finished.best_epoch) == (5, 4)
    assert json.loads((tmp_path / "own" / "best" / "config.json").read_bytes())["facts"]["epoch"] == 4


def test_metrics_come_by_step_too(run):
    rows = rows_of(run, by="step")
    assert [row["step"] for row in rows] == list(range(1, 11))
    assert "validation_loss" not in rows[0]
    assert all(row["images_per_s"] > 0 and row["peak_memory_mb"] > 0 for row in rows)


def test_a_run_resumed_from_the_checkpoint_before_the_last_says_so(run, shards, config, tmp_path, capsys):
    copied = shutil.copytree(run, tmp_path / "run")
    unfinished = json.loads((copied / "run.json").read_bytes())
    training_run = {key: unfinished[key] for key in ("training", "model", "images", "data", "init", "begun_from")}
    from captcha_ocr.run import write_run

    write_run(copied, {**training_run, "finished": None})
    (copied / "last" / "state.json").write_text("{}")
    train([shards], copied, config, "cpu")
    assert str(copied / "last") in capsys.readouterr().err
    assert weights(copied / "last") == weights(run / "last")


def test_a_finished_run_is_left_as_it_is(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "last" / "model.safetensors").unlink()  # not even looked at
    finished = train([shards], copied, config, "cpu", quiet=True)
    assert finished.epochs == 2
    assert not (copied / "last" / "model.safetensors").exists()


def test_a_mistake_leaves_no_folder_behind(shards, config, tmp_path):
    with pytest.raises(UsageError, match="cuda:99"):
        train([shards], tmp_path / "run", config, "cuda:99", quiet=True)
    assert not (tmp_path / "run").exists()


def test_another_run_in_the_folder_is_refused_naming_what_differs(run, shards, config):
    with pytest.raises(UsageError, match=naming("learning_rate", 0.004, 0.1)):
        train([shards], run, replace(config, learning_rate=0.1), "cpu", quiet=True)


def test_force_replaces_another_run_and_nothing_else(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "notes.txt").write_text("mine")
    train([shards], copied, replace(config, epochs=1), "cpu", force=True, quiet=True)
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
    train([shards], copied, replace(config, seed=2), "cpu", quiet=True)
    assert not (copied / "replaced").exists()


def test_an_older_run_all_of_which_had_been_moved_is_kept_when_the_next_goes_on(run, shards, config, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copytree(run, tmp_path / "run" / "replaced.captcha-ocr.part")
    train([shards], tmp_path / "run", replace(config, epochs=1), "cpu", quiet=True, keep_every=1)
    assert not list((tmp_path / "run").glob("replaced*"))  # the new one has finished
    train([shards], tmp_path / "run", replace(config, epochs=1, seed=9), "cpu", quiet=True, force=True)


def test_force_spares_what_lies_where_it_would_keep_the_older_run(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "replaced").mkdir()
    with pytest.raises(UsageError, match=naming(copied / "replaced", "--out")):
        train([shards], copied, replace(config, epochs=1), "cpu", force=True, quiet=True)
    assert weights(copied / "best") == weights(run / "best")


def test_force_leaves_the_same_run_as_it_is(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "last" / "model.safetensors").unlink()
    train([shards], copied, config, "cpu", force=True, quiet=True)
    assert not (copied / "last" / "model.safetensors").exists()


def test_force_spares_a_folder_that_no_run_made(shards, config, tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=naming("best", "run.json")):
        train([shards], tmp_path, config, "cpu", force=True, quiet=True)
    assert (tmp_path / "best" / "notes.txt").read_text() == "mine"


def test_force_replaces_a_damaged_run(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    path = copied / "run.json"
    path.write_text(path.read_text().replace("0.004", "0.005"))
    train([shards], copied, config, "cpu", force=True, quiet=True)
    assert weights(copied / "last") == weights(run / "last")


def stop_after_the_first_epoch(shards, out, config, monkeypatch, **options):
    with monkeypatch.context() as context:
        context.setattr(training, "write_metrics", lambda out, rows: rows and pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            train([shards], out, config, "cpu", quiet=True, **options)


def test_a_damaged_best_model_is_found_before_the_first_step(shards, config, tmp_path, monkeypatch):
    stop_after_the_first_epoch(shards, tmp_path, config, monkeypatch)
    path = tmp_path / "best" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(DamagedError, match=naming(path, "--resume never")):
        train([shards], tmp_path, config, "cpu", quiet=True)


def test_a_best_model_newer_than_the_checkpoint_counts(run, shards, config, tmp_path, monkeypatch):
    with monkeypatch.context() as context:  # killed between writing best and last, in the second epoch
        real = training.save_last
        context.setattr(
            training, "save_last", lambda *all_: real(*all_) if all_[3].epoch == 1 else pytest.fail("stopped")
        )
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            train([shards], tmp_path, config, "cpu", quiet=True)
    newer = json.loads((tmp_path / "best" / "config.json").read_bytes())["facts"]["epoch"]
    finished = train([shards], tmp_path, config, "cpu", quiet=True)
    assert finished.best_epoch == newer
    assert weights(tmp_path / "best") == weights(run / "best")


@pytest.mark.parametrize("name", ["last", ""])
def test_a_checkpoint_in_a_run_that_is_replaced_is_refused(run, shards, config, tmp_path, name):
    copied = shutil.copytree(run, tmp_path / "run")
    (copied / "best" / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="--out"):
        train([shards], copied, config, "cpu", resume=str(copied / name), force=True, quiet=True)
    assert (copied / "last" / "model.safetensors").exists()


def test_resume_takes_a_run_folder_too(run, shards, config, tmp_path):
    train([shards], tmp_path / "run", config, "cpu", resume=str(run), quiet=True)
    assert weights(tmp_path / "run" / "best") == weights(run / "best")


def test_a_checkpoint_that_was_copied_alone_goes_on(run, shards, config, tmp_path, capsys):
    alone = shutil.copytree(run / "previous", tmp_path / "copied" / "kept")
    train([shards], tmp_path / "run", config, "cpu", resume=str(alone))
    lines = capsys.readouterr().err.splitlines()
    assert any(str(alone.parent) in line and str(alone) not in line for line in lines)  # which has no best model
    assert weights(tmp_path / "run" / "last") == weights(run / "last")


def test_a_checkpoint_alone_whose_epochs_are_all_done_is_refused(run, shards, config, tmp_path):
    alone = shutil.copytree(run / "last", tmp_path / "copied" / "last")
    with pytest.raises(UsageError, match="--epochs"):
        train([shards], tmp_path / "run", config, "cpu", resume=str(alone), quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_with_other_steps_an_epoch_is_refused(run, shards, config, tmp_path, monkeypatch):
    monkeypatch.setattr(Share, "steps", 4)  # as several processes may have, which drop a tail
    with pytest.raises(UsageError, match=naming(run / "previous", 5, 4)):
        train([shards], tmp_path / "run", config, "cpu", resume=str(run / "previous"), quiet=True)


def test_a_run_whose_checkpoints_are_lost_is_not_begun_anew_in_silence(run, shards, config, tmp_path):
    copied = shutil.copytree(run, tmp_path / "run")
    for name in ("last", "previous"):
        shutil.rmtree(copied / name)
    longer = replace(config, epochs=3)
    with pytest.raises(DamagedError, match="--resume never"):
        train([shards], copied, longer, "cpu", quiet=True)
    assert weights(copied / "best") == weights(run / "best")
    finished = train([shards], copied, longer, "cpu", resume="never", force=True, quiet=True)
    assert finished.epochs == 3


def test_a_named_checkpoint_is_never_passed_over(run, shards, config, tmp_path):
    finished = train([shards], tmp_path / "run", config, "cpu", resume=str(run / "previous"), quiet=True)
    for resume in (str(run / "previous"), "auto", str(tmp_path / "run"), str(tmp_path / "run" / "last")):
        assert train([shards], tmp_path / "run", config, "cpu", resume=resume, quiet=True) == finished
    with pytest.raises(UsageError, match=str(run / "last")):
        train([shards], tmp_path / "run", config, "cpu", resume=str(run / "last"), quiet=True)
    with pytest.raises(UsageError, match="typo"):
        train([shards], tmp_path / "run", config, "cpu", resume=str(tmp_path / "typo"), quiet=True)


def test_what_a_run_began_from_is_remembered_when_it_goes_on(run, shards, config, tmp_path, monkeypatch):
    checkpoint = str(run / "previous")
    with monkeypatch.context() as context:
        context.setattr(Processes, "agreed", lambda _, __, step: signal.SIGTERM if step == 7 else None)
        with pytest.raises(SystemExit, match="143"):
            train([shards], tmp_path, config, "cpu", resume=checkpoint, quiet=True)
    finished = train([shards], tmp_path, config, "cpu", quiet=True)
    assert train([shards], tmp_path, config, "cpu", resume=checkpoint, quiet=True) == finished
    assert weights(tmp_path / "last") == weights(run / "last")


def test_a_checkpoint_of_another_run_is_refused_naming_what_differs(run, shards, config, tmp_path):
    with pytest.raises(UsageError, match=naming("batch_size", 10, 5)):
        train([shards], tmp_path / "run", replace(config, batch_size=5), "cpu", resume=str(run / "last"), quiet=True)
    assert not (tmp_path / "run").exists()


def test_other_data_are_refused(images, run, config, tmp_path):
    prepare(images, tmp_path / "shards", PrepareConfig(preset="tiny", seed=1), workers=1)
    with pytest.raises(UsageError, match=str(run)):
        train([tmp_path / "shards"], run, config, "cpu", quiet=True)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_flipped_bit_in_any_shard_is_refused_before_the_first_step(shards, config, tmp_path, split, monkeypatch):
    copied = shutil.copytree(shards, tmp_path / "shards")
    path = next(copied.glob(f"{split}-*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(DamagedError, match=path.name):
        train([copied], tmp_path / "run", config, "cpu", quiet=True)


def test_shards_of_another_size_than_the_recipes_are_refused_naming_the_command(shards, tmp_path):
    with pytest.raises(UsageError, match=r"captcha-ocr prepare .* --preset seed --force"):
        train([shards], tmp_path, PRESETS["seed"].training, "cpu", quiet=True)


def test_shards_too_narrow_for_their_texts_are_refused_naming_the_command(images, tmp_path):
    narrow = PrepareConfig(width=8, height=16)
    prepare(images, tmp_path / "shards", narrow, workers=1)
    with pytest.raises(UsageError, match=r"captcha-ocr prepare .* --preset default --force"):
        train([tmp_path / "shards"], tmp_path / "run", PRESETS["default"].training, "cpu", quiet=True)


def test_init_starts_from_a_trained_model_whose_network_it_keeps(run, shards, config, tmp_path):
    other_preset = replace(config, preset="few", epochs=1, learning_rate=1e-9)
    train([shards], tmp_path, other_preset, "cpu", init=run, quiet=True)
    started, other = load_model(tmp_path / "last"), load_model(run / "best")
    assert started.config.network == other.config.network != PRESETS["few"].network
    assert torch.allclose(started.head.weight, other.head.weight, atol=1e-5)


def test_resume_takes_a_checkpoint_of_another_folder(run, shards, config, tmp_path):
    train([shards], tmp_path, config, "cpu", resume=str(run / "previous"), quiet=True)
    assert weights(tmp_path / "last") == weights(run / "last")


@pytest.mark.parametrize("loss", ["bce", "ce"])
@pytest.mark.parametrize("schedule", ["onecycle", "cosine", "plateau", "constant"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_every_loss_schedule_and_optimiser_lowers_the_training_loss(
    shards, config, tmp_path, loss, schedule, optimizer
):
    options = {"loss": loss, "schedule": schedule, "optimizer": optimizer}
    train([shards], tmp_path, replace(config, epochs=4, **options), "cpu", quiet=True)
    rows = rows_of(tmp_path)
    assert rows[-1]["training_loss"] < rows[0]["training_loss"]


def test_bf16_trains_as_well(shards, config, tmp_path):
    train([shards], tmp_path, replace(config, epochs=1, precision="bf16"), "cpu", quiet=True)
    assert json.loads((tmp_path / "run.json").read_bytes())["precision"] == "bf16"


def test_a_constant_rate_is_ended_by_early_stopping(shards, config, tmp_path):
    hopeless = replace(config, schedule="constant", learning_rate=9.9, patience=2, epochs=200)
    finished = train([shards], tmp_path, hopeless, "cpu", quiet=True)
    assert finished.epochs == finished.best_epoch + 2 < 200


def test_the_seed_recipe_is_ended_by_early_stopping_alone():
    assert derive_epochs(PRESETS["seed"].training, 48) is None


class FakeTrainer:
    """A trainer's progress, which is all that the ending rules look at."""

    def __init__(self, config, epochs, progress):
        self.config, self.epochs, self.progress = config, epochs, progress


@pytest.mark.parametrize(
    ("epoch", "best_epoch", "ends"),
    [(5, 4, False), (9, 9, True), (7, 4, True)],  # all 9 epochs are done; 3 epochs were no better
)
def test_each_rule_ends_a_run(config, epoch, best_epoch, ends):
    progress = Progress({}, epoch=epoch, best_epoch=best_epoch, rows=[{"training_loss": 0.1}])
    assert (ending_rule(FakeTrainer(config, 9, progress)) is not None) == ends


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_a_failure(config, loss):
    with pytest.raises(CaptchaOcrError, match="--lr"):
        ending_rule(FakeTrainer(config, 9, Progress({}, epoch=1, best_epoch=1, rows=[{"training_loss": loss}])))


@pytest.mark.parametrize(
    ("exact", "loss", "better"),
    [(6, 9.0, True), (5, 0.4, True), (5, 0.5, False), (5, 0.6, False), (4, 0.0, False)],
)
def test_more_exact_matches_win_and_ties_go_to_the_lower_loss(exact, loss, better):
    progress = Progress({}, best_exact=0.5, best_loss=0.5)
    assert is_better(Scores(10, exact, Counter(), loss), progress) is better


@pytest.mark.parametrize(
    ("exact", "loss", "better"),
    [(95, 0.5, True), (87, 0.5, True), (86, 0.5, False), (95, float("nan"), False), (95, None, False)],
)
def test_at_rest_an_epoch_need_not_be_better_than_chance_can_tell(exact, loss, better):
    progress = Progress({}, best_exact=0.95, best_loss=0.1)
    assert is_better(Scores(100, exact, Counter(), loss), progress, at_rest=True) is better


def test_fewer_images_get_more_epochs_within_bounds(tiny_preset):
    default = PRESETS["default"]
    epochs = [derive_epochs(default.training, images) for images in (10, 10_000, 32_000, 10**7)]
    assert epochs == [100, round(default.images_seen / 10_000), round(default.images_seen / 32_000), 1]


def test_a_set_with_one_training_image_is_refused(config, tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(3):
        pixels = np.full((16, 48), number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}{number}.png")
    prepare(tmp_path / "images", tmp_path / "shards", PrepareConfig(preset="tiny"), workers=1)
    with pytest.raises(UsageError, match=r"\b2\b"):
        train([tmp_path / "shards"], tmp_path / "run", config, "cpu", quiet=True)


def test_texts_of_one_character_that_differ_in_length_can_be_learnt(config, tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(10):
        picture = Image.fromarray(np.full((16, 48), number, dtype=np.uint8))
        picture.save(tmp_path / "images" / f"{'A' * (1 + number % 2)}_{number}.png")
    prepare(tmp_path / "images", tmp_path / "shards", PrepareConfig(preset="tiny"), workers=1)
    finished = train([tmp_path / "shards"], tmp_path / "run", replace(config, epochs=1), "cpu", quiet=True)
    assert load_model(tmp_path / "run" / "best").config.class_names == ["A", ""]
    assert finished.validation["images"] == 1


def test_a_set_without_test_images_is_trained_and_not_scored(config, tmp_path):
    (tmp_path / "images").mkdir()
    lines = ["filename,text,split"]
    for number in range(6):
        pixels = np.full((16, 48), number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
        lines.append(f"{number}.png,{number}{number},train")
    (tmp_path / "images" / "labels.csv").write_text("\n".join(lines))
    prepare(tmp_path / "images", tmp_path / "shards", PrepareConfig(preset="tiny"), workers=1)
    finished = train([tmp_path / "shards"], tmp_path / "run", replace(config, epochs=1), "cpu", quiet=True)
    assert finished.test is None
