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

from captcha_ocr.config import PRESETS, PrepareConfig
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
from captcha_ocr.training.train import train
from captcha_ocr.training.trainer import Progress, Trainer

OPTIONS = ("force", "init", "keep_every", "quiet", "resume", "stream")  # of `train`; others are of its configuration


@pytest.fixture
def config(tiny_preset):
    return tiny_preset.training


@pytest.fixture(autouse=True)
def short_trial(monkeypatch):
    monkeypatch.setattr(training, "TRIAL_SECONDS", 0.0)


@pytest.fixture
def learn(shards, config):
    """Train with the tiny recipe, on the shards unless others are named."""

    def learn(out, *data, **changes):
        options = {name: changes.pop(name) for name in OPTIONS if name in changes}
        options["resume"] = str(options.get("resume", "auto"))
        return train(data or [shards], out, replace(config, **changes), replace(QUIET, **options))

    return learn


@pytest.fixture
def copied(run, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(run, tmp_path / "run")


def rows_of(run, by="epoch") -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["by"] == by]


def test_a_run_leaves_its_models_its_metrics_and_its_pictures(run):
    files = ["best", "confusion.png", "curves.png", "last", "metrics.jsonl", "previous", "run.json"]
    assert sorted(path.name for path in run.iterdir()) == files
    assert {path.name for path in (run / "best").iterdir()} == {"README.md", "config.json", "model.safetensors"}
    finished = json.loads((run / "run.json").read_bytes())["finished"]
    assert (finished["epochs"], finished["test"]["images"]) == (2, 6)
    rows, steps = rows_of(run), rows_of(run, by="step")
    assert [row["epoch"] for row in rows] == [1, 2]
    assert set(rows[0]) == {
        "epoch", "step", "seconds", "training_loss", "training_exact", "validation_loss", "validation_exact",
        "learning_rate", "images_per_s", "peak_memory_mb", "peak_device_memory_mb", "by",
    }  # fmt: skip
    assert rows[1]["learning_rate"] < rows[0]["learning_rate"]
    assert [row["step"] for row in steps] == list(range(1, 11))
    assert "validation_loss" not in steps[0]
    assert all(row["images_per_s"] > 0 and row["peak_memory_mb"] > 0 for row in steps)


@pytest.fixture
def scripted(monkeypatch):
    """Set the validations of a run, (exact, loss) for each epoch; what follows is scored as usual."""
    outcomes, real = [], loop.evaluate

    def evaluate(*arguments):
        scores = real(*arguments)
        exact, loss_mean = outcomes.pop(0) if outcomes else (scores.exact, scores.loss)
        return replace(scores, exact=exact, loss=loss_mean)

    monkeypatch.setattr(loop, "evaluate", evaluate)
    return outcomes.extend


def test_the_best_weights_are_kept_and_scored_and_not_the_last(learn, shards, tmp_path, scripted):
    scripted([(6, 0.1), (0, 0.1)])
    finished = learn(tmp_path)
    assert finished.best_epoch == 1
    best, previous, last = (load_model(tmp_path / name).state_dict() for name in ("best", "previous", "last"))
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


def test_another_seed_or_augmentation_gives_other_weights(learn, run, tmp_path):
    for changes in ({}, {"seed": 1}, {"augment": True}):
        out = tmp_path / "-".join(["run", *changes])
        learn(out, **changes)
        assert (weights(out / "last") == weights(run / "last")) == (not changes)


def test_folders_are_trained_on_as_one_unless_they_differ_or_share_images(
    learn, images, other_images, shards, tmp_path
):
    out, split = tmp_path / "run", PrepareConfig(preset="tiny", split=(60, 20, 20))
    prepare(other_images, tmp_path / "other", split, ONE_WORKER)
    prepare(images, tmp_path / "split", split, ONE_WORKER)
    prepare(images, tmp_path / "narrow", PrepareConfig(preset="tiny", width=32, height=16), ONE_WORKER)
    with pytest.raises(UsageError, match=naming(tmp_path / "narrow", shards, "32x16", "48x16")):
        learn(out, shards, tmp_path / "narrow")
    for twice in (shutil.copytree(shards, tmp_path / "copy"), tmp_path / "split"):
        with pytest.raises(UsageError, match=naming(shards, twice)):
            learn(out, shards, twice)
    assert not out.exists()
    learn(out, shards, tmp_path / "other", epochs=1)
    assert json.loads((out / "run.json").read_bytes())["images"] == {"train": 84, "val": 18, "test": 18}
    with pytest.raises(UsageError, match=naming(out, "--force")):  # the run was one of other images
        learn(out, tmp_path / "split", epochs=1)


def stop_at(step: int, monkeypatch, learn, out, **options) -> None:
    """Train until a signal comes at this step."""
    with monkeypatch.context() as context:
        context.setattr(ProcessGroup, "agree_on_signal", lambda _, __, now: signal.SIGTERM if now == step else None)
        with pytest.raises(SystemExit, match="143"):
            learn(out, **options)


WAYS = {
    "one cycle": {},
    "cosine, augmented, streamed": {"schedule": "cosine", "augment": True, "stream": True},
    "plateau, Adam": {"schedule": "plateau", "optimizer": "adam", "patience": 2, "focus": 0.0},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_stopped_at_any_step_ends_with_the_same_weights(learn, tmp_path, monkeypatch, way):
    options, whole, stopped = {"epochs": 3, **WAYS[way]}, tmp_path / "whole", tmp_path / "stopped"
    monkeypatch.setattr("captcha_ocr.training.batches.BATCHES_PER_WINDOW", 2)
    learn(whole, **options)
    for step in (1, 4, 5, 7, 15):  # an epoch has 5 steps, of which the last is a tail
        stop_at(step, monkeypatch, learn, stopped, **options)
        assert json.loads((stopped / "last" / "state.json").read_bytes())["progress"]["step"] == step
    learn(stopped, **options)
    for name in ("best", "last"):
        assert weights(stopped / name) == weights(whole / name)
    of_time = {"seconds": 0, "images_per_s": 0, "peak_memory_mb": 0}
    for by in ("step", "epoch"):
        assert [row | of_time for row in rows_of(stopped, by)] == [row | of_time for row in rows_of(whole, by)]


def test_a_run_stopped_while_it_is_scored_goes_on_with_the_scoring(learn, run, tmp_path, monkeypatch):
    def leave(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(loop, "evaluate", leave)
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path)
        context.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
        context.setattr(training, "estimate", lambda *_: "")
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path)
    learn(tmp_path)
    assert weights(tmp_path / "last") == weights(run / "last")


@pytest.mark.parametrize("schedule", ["onecycle", "plateau"])
def test_more_epochs_train_on_and_fewer_are_another_run(learn, tmp_path, capsys, schedule):
    out, options = tmp_path / "run", {"schedule": schedule, "patience": 100}
    learn(out, epochs=2, **options)
    before = rows_of(out)
    assert learn(out, epochs=4, quiet=False, **options).epochs == 4
    assert str(out / "last") in capsys.readouterr().err
    learn(tmp_path / "whole", epochs=4, **options)
    assert rows_of(out)[:2] == before
    rates, expected = ([row["learning_rate"] for row in rows_of(each)[2:]] for each in (out, tmp_path / "whole"))
    assert rates == pytest.approx(expected, rel=1e-6, abs=1e-12)
    with pytest.raises(UsageError, match=naming("epochs", "--force")):
        learn(out, epochs=3, **options)


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


def test_force_leaves_the_same_run_as_it_is_and_replaces_a_damaged_one(learn, run, copied):
    (copied / "last" / "model.safetensors").unlink()  # nothing reads it
    for force in (False, True):
        assert learn(copied, force=force).epochs == 2
        assert not (copied / "last" / "model.safetensors").exists()
    file = copied / "run.json"
    file.write_text(file.read_text().replace("0.004", "0.005"))
    learn(copied, force=True)
    assert weights(copied / "last") == weights(run / "last")


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


def stop_after_the_first_epoch(shards, out, config, monkeypatch, **options):
    with monkeypatch.context() as context:
        context.setattr(loop, "write_metrics", lambda out, rows: rows and pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            train([shards], out, config, replace(QUIET, **options))


def test_a_best_model_newer_than_the_checkpoint_counts(learn, run, tmp_path, monkeypatch):
    real = loop.save_last
    with monkeypatch.context() as context:  # stopped between writing best and last, in the second epoch
        context.setattr(
            loop, "save_last", lambda *all_: pytest.fail("stopped") if all_[2].progress.epoch > 1 else real(*all_)
        )
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            learn(tmp_path)
    newer = json.loads((tmp_path / "best" / "config.json").read_bytes())["facts"]["epoch"]
    assert learn(tmp_path).best_epoch == newer
    assert weights(tmp_path / "best") == weights(run / "best")


def test_a_checkpoint_in_a_run_that_is_replaced_is_refused(learn, copied):
    (copied / "best" / "model.safetensors").unlink()
    for checkpoint in (copied / "last", copied):
        with pytest.raises(UsageError, match=naming(checkpoint, "--out")):
            learn(copied, resume=checkpoint, force=True)
        assert (copied / "last" / "model.safetensors").exists()


def test_a_checkpoint_that_was_copied_alone_goes_on_unless_its_epochs_are_done(learn, run, tmp_path, capsys):
    for name in ("previous", "last"):
        shutil.copytree(run / name, tmp_path / "copied" / name)
    with pytest.raises(UsageError, match="--epochs"):
        learn(tmp_path / "run", resume=tmp_path / "copied" / "last")
    assert not (tmp_path / "run").exists()
    learn(tmp_path / "run", resume=tmp_path / "copied" / "previous", quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert any(f"{tmp_path}/copied" in line and "previous" not in line for line in lines)  # it has no best model
    assert weights(tmp_path / "run" / "last") == weights(run / "last")


def test_a_run_whose_checkpoints_are_lost_does_not_silently_start_from_nothing(learn, run, copied):
    for lost in ("last", "previous"):
        shutil.rmtree(copied / lost)
    for _ in range(2):
        with pytest.raises(DamagedError, match=naming(copied, "--resume never", "--force")):
            learn(copied, epochs=3)
        (copied / "metrics.jsonl").unlink(missing_ok=True)
    assert weights(copied / "best") == weights(run / "best")
    assert learn(copied, epochs=3, resume="never", force=True).epochs == 3


def test_a_named_checkpoint_or_run_is_never_passed_over(learn, run, tmp_path, monkeypatch):
    out, checkpoint = tmp_path / "run", run / "previous"
    stop_at(7, monkeypatch, learn, out, resume=checkpoint)
    finished = learn(out)  # it remembers what it began from
    assert weights(out / "last") == weights(run / "last")
    for resume in (checkpoint, "auto", out, out / "last"):
        assert learn(out, resume=resume) == finished
    for refused in (run / "last", tmp_path / "typo"):
        with pytest.raises(UsageError, match=str(refused)):
            learn(out, resume=refused)
    learn(tmp_path / "other", resume=run)
    assert weights(tmp_path / "other" / "best") == weights(run / "best")


def test_a_checkpoint_of_another_run_or_of_other_steps_an_epoch_is_refused(learn, run, tmp_path, monkeypatch):
    checkpoint = run / "previous"
    with pytest.raises(UsageError, match=naming(checkpoint, "batch_size", 10, 5, "--init")):
        learn(tmp_path / "run", batch_size=5, resume=checkpoint)
    monkeypatch.setattr(BatchPartition, "steps", 4)  # several processes may have fewer steps, because they drop a tail
    with pytest.raises(UsageError, match=naming(checkpoint, 5, 4)):
        learn(tmp_path / "run", resume=checkpoint)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("file", ["shards/train-*", "shards/val-*", "shards/test-*", "run/best/model.safetensors"])
def test_a_damaged_shard_or_best_model_is_found_before_a_step(learn, copied, shards, tmp_path, file, monkeypatch):
    data = shutil.copytree(shards, tmp_path / "shards")
    amend(copied / "run.json", finished=None)
    (damaged,) = tmp_path.glob(file)
    flip_bit(damaged)
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(DamagedError, match=damaged.name):
        learn(copied, data)


def test_shards_that_do_not_suit_the_network_are_refused_naming_the_command_that_makes_others(images, shards, tmp_path):
    prepare(images, tmp_path / "narrow", PrepareConfig(width=8, height=16), ONE_WORKER)
    for data, preset in ((shards, "seed"), (tmp_path / "narrow", "default")):
        with pytest.raises(UsageError, match=rf"captcha-ocr prepare .* --preset {preset} --force"):
            train([data], tmp_path / "run", PRESETS[preset].training, QUIET)


def test_init_starts_from_a_trained_model_whose_network_it_keeps(learn, run, tmp_path):
    learn(tmp_path, preset="few", epochs=1, learning_rate=1e-9, init=run)
    started, other = load_model(tmp_path / "last"), load_model(run / "best")
    assert started.config.network == other.config.network != PRESETS["few"].network
    assert torch.allclose(started.head.weight, other.head.weight, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "bce", "schedule": "onecycle", "optimizer": "adamw", "precision": "fp32"},
        {"loss": "ce", "schedule": "cosine", "optimizer": "adam", "precision": "bf16"},
        {"loss": "bce", "schedule": "plateau", "optimizer": "adam", "precision": "fp32"},
        {"loss": "ce", "schedule": "constant", "optimizer": "adamw", "precision": "bf16"},
    ],
)
def test_every_option_of_the_recipe_lowers_the_training_loss(learn, tmp_path, options):
    learn(tmp_path, epochs=4, **options)
    first, *_, last = rows_of(tmp_path)
    assert last["training_loss"] < first["training_loss"]
    assert json.loads((tmp_path / "run.json").read_bytes())["precision"] == options["precision"]


def test_a_constant_rate_is_ended_by_early_stopping(learn, tmp_path):
    finished = learn(tmp_path, schedule="constant", learning_rate=9.9, patience=2, epochs=200)
    assert finished.epochs == finished.best_epoch + 2 < 200


@pytest.mark.parametrize(
    ("epoch", "best_epoch", "ends"),
    [(5, 4, False), (9, 9, True), (7, 4, True)],  # all 9 epochs are done; 3 epochs were no better
)
def test_each_rule_ends_a_run_and_a_loss_that_is_no_number_is_a_failure(config, epoch, best_epoch, ends):
    rows = [{"training_loss": 0.1}]
    trainer = SimpleNamespace(config=config, epochs=9, progress=Progress(epoch, best_epoch=best_epoch, rows=rows))
    assert (ending_rule(trainer) is not None) == ends
    for rows[0]["training_loss"] in (float("nan"), float("inf")):
        with pytest.raises(CaptchaOcrError, match="--lr"):
            ending_rule(trainer)


@pytest.mark.parametrize(
    ("exact", "loss", "at_rest", "better"),  # the best so far: 50 exact matches of 100, and a loss of 0.5
    [
        *[(60, 9.0, False, True), (50, 0.4, False, True), (50, 0.5, False, False), (40, 0.0, False, False)],
        # the last epoch of a rate that decays is better unless it is significantly worse
        *[(50, 0.6, True, True), (37, 0.6, True, True), (36, 0.6, True, False), (50, float("nan"), True, False)],
    ],
)
def test_more_exact_matches_win_and_ties_go_to_the_lower_loss(exact, loss, at_rest, better):
    progress = Progress(best_exact=0.5, best_loss=0.5)
    assert is_better(Scores(100, exact, Counter(), loss), progress, at_rest) is better


def flat_images(folder, names):
    """Prepare images of one shade each, with these names; return the folder of their shards."""
    (folder / "images").mkdir()
    for number, name in enumerate(names):
        Image.fromarray(np.full((16, 48), number, dtype=np.uint8)).save(folder / "images" / f"{name}.png")
    prepare(folder / "images", folder / "shards", PrepareConfig(preset="tiny"), ONE_WORKER)
    return folder / "shards"


def test_a_set_with_one_training_image_is_refused(learn, tmp_path):
    with pytest.raises(UsageError, match=r"\b2\b"):
        learn(tmp_path / "run", flat_images(tmp_path, ["00", "11", "22"]))


def test_texts_of_one_character_that_differ_in_length_can_be_learnt(learn, tmp_path):
    shards = flat_images(tmp_path, [f"{'A' * (1 + number % 2)}_{number}" for number in range(10)])
    assert learn(tmp_path / "run", shards, epochs=1).validation["images"] == 1
    assert load_model(tmp_path / "run" / "best").config.class_names == ["A", ""]


def test_a_set_without_test_images_is_trained_and_not_scored(learn, images, tmp_path):
    rows = (images / "labels.csv").read_text().splitlines()[1:]
    (tmp_path / "labels.csv").write_text("\n".join(["filename,text,split", *(f"{row},train" for row in rows)]))
    prepare(
        images,
        tmp_path / "shards",
        PrepareConfig(preset="tiny"),
        replace(ONE_WORKER, labels_file=tmp_path / "labels.csv"),
    )
    assert learn(tmp_path / "run", tmp_path / "shards", epochs=1).test is None
