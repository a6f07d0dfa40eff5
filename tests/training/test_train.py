import json
import multiprocessing
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ONE_WORKER, QUIET, TINY, amend, flip_bit, naming, weights
from PIL import Image

from captcha_ocr import Recognizer
from captcha_ocr.cli.wording import word_error
from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.inference.model_folder import CHINESE, find_model_folder
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.weights import load_model
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.training import PRESETS, DrawOptions, TrainConfig
from captcha_ocr.system.files import TEMPORARY
from captcha_ocr.training import train as training
from captcha_ocr.training.evaluate import evaluate
from captcha_ocr.training.reporting import EPOCHS, epoch_row, head_epochs
from captcha_ocr.training.run import recorder
from captcha_ocr.training.samples.batches import DrawnBlocks, load_split
from captcha_ocr.training.step.trainer import Progress, Trainer
from captcha_ocr.training.train import train

from .conftest import ALONE, rows_of


def test_a_run_leaves_its_models_its_metrics_and_its_pictures(run):
    files = ["best", "confusion.png", "curves.png", "last", "metrics.jsonl", "previous", "run.json"]
    assert sorted(path.name for path in run.iterdir()) == files
    assert {path.name for path in (run / "best").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    finished = json.loads((run / "run.json").read_bytes())["finished"]
    assert (finished["epochs"], finished["test"]["images"]) == (2, 6)
    rows, steps = rows_of(run), rows_of(run, by="step")
    assert [row["epoch"] for row in rows] == [1, 2]
    assert set(rows[0]) == {
        "epoch", "step", "seconds", "training_loss", "training_exact", "validation_loss",
        "validation_exact", "validation_characters", "learning_rate", "images_per_s",
        "peak_memory_mb", "peak_device_memory_mb", "by",
    }  # fmt: skip
    assert rows[1]["learning_rate"] < rows[0]["learning_rate"]
    assert [row["step"] for row in steps] == list(range(1, 11))
    assert "validation_loss" not in steps[0]
    assert all(row["images_per_s"] > 0 and row["peak_memory_mb"] > 0 for row in steps)


def test_a_run_on_drawings_leaves_what_a_run_on_shards_leaves(
    learn, run, drawings, tmp_path, capsys
):
    out = tmp_path / "run"
    finished = learn(out, draw=drawings, quiet=False)
    names = {path.name for path in run.iterdir()}
    assert {path.name for path in out.iterdir()} == names
    document = json.loads((out / "run.json").read_bytes())
    assert (document["images"], finished.test["images"]) == ({"train": 24, "val": 6, "test": 6}, 6)
    expected = {"design": "captcha", "repeat": 2, "length": "2", "charset": "0123456789", "seed": 0}
    assert {name: document["drawn"][name] for name in expected} == expected
    assert DrawOptions.from_dict(document["given"]["data"]) == drawings
    said = capsys.readouterr().err
    assert all(
        word in said for word in ("24 training images", "new ones every 2 epochs", "expected ")
    )
    assert not any(word in said for word in ("shard", "prepare"))


def test_drawings_that_do_not_suit_the_network_are_refused_naming_the_option(drawings, tmp_path):
    for options, preset in (({"size": (48, 16)}, "seed"), ({"size": (8, 16)}, "default")):
        with pytest.raises(UsageError, match=naming("`draw` captcha", "`size`")):
            train(replace(drawings, **options), tmp_path / "run", PRESETS[preset].training, QUIET)


def test_a_model_of_any_width_is_trained_on_drawings_and_goes_on_from_its_weights(
    drawings, images, tmp_path, monkeypatch
):
    any_width = replace(
        TINY,
        size=InputSize(16, 64, 1, step=16),
        network=replace(TINY.network, stem="strided", pool="narrow"),
        training=replace(TINY.training, preset="any", loss="ctc", case_folded=0.5, smoothing=0.0),
    )
    monkeypatch.setitem(PRESETS, "any", any_width)
    train(drawings, tmp_path / "run", any_width.training, QUIET)
    train(drawings, tmp_path / "next", any_width.training, replace(QUIET, init=tmp_path / "run"))
    for name in ("run", "next"):
        recognizer = Recognizer(tmp_path / name)
        assert recognizer.config.size == any_width.size
        assert all(reading.text for reading in recognizer.predict(sorted(images.glob("*.png"))))


@pytest.mark.usefixtures("worker_processes")
def test_a_run_whose_drawing_processes_are_killed_ends_and_goes_on(
    learn, drawings, tmp_path, monkeypatch
):
    real = DrawnBlocks.begin

    def kill(batches, block):
        real(batches, block)
        if block == 1:
            for worker in multiprocessing.active_children():
                worker.kill()

    with monkeypatch.context() as context:
        context.setattr(DrawnBlocks, "begin", kill)
        with pytest.raises(CaptchaOcrError, match="`workers`"):
            learn(tmp_path / "run", draw=drawings, epochs=6)  # three blocks
    assert multiprocessing.active_children() == []
    assert learn(tmp_path / "run", draw=drawings, epochs=6).epochs == 6


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
    prepare(images, tmp_path / "narrow", PrepareConfig(preset="tiny", size=(32, 16)), ONE_WORKER)
    with pytest.raises(UsageError, match=naming(tmp_path / "narrow", shards, "32x16", "48x16")):
        learn(out, shards, tmp_path / "narrow")
    for twice in (shutil.copytree(shards, tmp_path / "copy"), tmp_path / "split"):
        with pytest.raises(UsageError, match=naming(shards, twice)):
            learn(out, shards, twice)
    assert not out.exists()
    learn(out, shards, tmp_path / "other", epochs=1)
    assert json.loads((out / "run.json").read_bytes())["images"] == {
        "train": 84,
        "val": 18,
        "test": 18,
    }
    with pytest.raises(UsageError, match=naming(out, "`force`")):  # the run was one of other images
        learn(out, tmp_path / "split", epochs=1)


def test_force_leaves_the_same_run_as_it_is_and_replaces_a_damaged_one(learn, run, copied):
    (copied / "last" / "model.safetensors").unlink()  # nothing reads it
    for force in (False, True):
        assert learn(copied, force=force).epochs == 2
        assert not (copied / "last" / "model.safetensors").exists()
    file = copied / "run.json"
    file.write_text(file.read_text().replace("0.004", "0.005"))
    learn(copied, force=True)
    assert weights(copied / "last") == weights(run / "last")


def test_the_run_that_force_replaces_is_kept_until_the_new_one_has_finished(
    run, copied, shards, config, monkeypatch
):
    (copied / "notes.txt").write_text("mine")
    names = {path.name for path in run.iterdir()}
    for seed in (1, 2):  # the second replaces the first, which did not finish
        stop_after_the_first_epoch(
            shards, copied, replace(config, seed=seed), monkeypatch, force=True
        )
        assert {path.name for path in (copied / "replaced").iterdir()} == names
        assert find_model_folder(copied / "replaced") == copied / "replaced" / "best"
        assert weights(copied / "replaced" / "best") == weights(run / "best")
    train([shards], copied, replace(config, seed=2), QUIET)
    assert not (copied / "replaced").exists()
    assert len(rows_of(copied)) == 2
    assert (copied / "notes.txt").read_text() == "mine"


def test_an_older_run_all_of_which_had_been_moved_is_kept_when_the_next_goes_on(
    run, shards, config, tmp_path
):
    (tmp_path / "run").mkdir()
    shutil.copytree(run, tmp_path / "run" / "replaced")
    train([shards], tmp_path / "run", replace(config, epochs=1), replace(QUIET, keep_every=1))
    assert not list((tmp_path / "run").glob("replaced*"))  # the new one has finished
    train([shards], tmp_path / "run", replace(config, epochs=1, seed=9), replace(QUIET, force=True))


def test_force_spares_what_lies_where_it_would_keep_the_older_run(run, copied, shards, config):
    (copied / "replaced").mkdir()
    with pytest.raises(UsageError, match=naming(copied / "replaced", "`out`")):
        train([shards], copied, replace(config, epochs=1), replace(QUIET, force=True))
    assert weights(copied / "best") == weights(run / "best")


def stop_after_the_first_epoch(shards, out, config, monkeypatch, **options):
    with monkeypatch.context() as context:
        context.setattr(
            recorder, "write_metrics", lambda out, rows: rows and pytest.fail("stopped")
        )
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            train([shards], out, config, replace(QUIET, **options))


@pytest.mark.parametrize(
    "file", ["shards/train-*", "shards/val-*", "shards/test-*", "run/best/model.safetensors"]
)
def test_a_damaged_shard_or_best_model_is_found_before_a_step(
    learn, copied, shards, tmp_path, file, monkeypatch
):
    data = shutil.copytree(shards, tmp_path / "shards")
    amend(copied / "run.json", finished=None)
    (damaged,) = tmp_path.glob(file)
    flip_bit(damaged)
    monkeypatch.setattr(Trainer, "step", lambda *_: pytest.fail("a step was made"))
    with pytest.raises(DamagedError, match=damaged.name):
        learn(copied, data)


def test_shards_that_do_not_suit_the_network_are_refused_naming_the_command_that_makes_others(
    images, shards, tmp_path
):
    prepare(images, tmp_path / "narrow", PrepareConfig(size=(8, 16)), ONE_WORKER)
    for data, preset in ((shards, "seed"), (tmp_path / "narrow", "default")):
        with pytest.raises(UsageError) as refusal:
            train([data], tmp_path / "run", PRESETS[preset].training, QUIET)
        words = word_error(refusal.value)
        assert re.search(rf"captcha-ocr prepare .* --preset {preset} --force", words)


@pytest.mark.parametrize(
    ("epochs", "said"), [(2, "for 1 step\n"), (4, "for 2 steps\n")]
)  # of 5 steps each
def test_the_steps_of_the_classifier_alone_are_counted(epochs, said, shards, run, tmp_path, capsys):
    config = replace(TINY.training.for_fine_tuning(on_drawings=False), epochs=epochs)
    train([shards], tmp_path, config, replace(QUIET, quiet=False, init=run))
    assert said in capsys.readouterr().err


def test_init_starts_from_a_trained_model_whose_network_it_keeps(learn, run, tmp_path):
    learn(tmp_path, preset="few", epochs=1, learning_rate=1e-9, init=run)
    started, other = load_model(tmp_path / "last"), load_model(run / "best")
    assert started.config.network == other.config.network != PRESETS["few"].network
    assert torch.allclose(started.head.weight, other.head.weight, atol=1e-5)


def test_a_model_of_few_characters_keeps_the_norm_of_a_start_that_has_thousands(learn, tmp_path):
    learn(tmp_path, preset="few", epochs=1, init=CHINESE)
    assert load_model(tmp_path / "last").config.normalises_features


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "bce", "schedule": "onecycle", "optimizer": "adamw", "precision": "fp32"},
        {"loss": "ce", "schedule": "cosine", "optimizer": "adam", "precision": "bf16"},
        {"loss": "bce", "schedule": "plateau", "optimizer": "adam", "precision": "fp32"},
        {"loss": "ce", "schedule": "constant", "optimizer": "muon", "precision": "bf16"},
    ],
)
def test_every_option_of_the_recipe_lowers_the_training_loss(learn, tmp_path, options):
    learn(tmp_path, epochs=4, **options)
    first, *_, last = rows_of(tmp_path)
    assert last["training_loss"] < first["training_loss"]
    assert json.loads((tmp_path / "run.json").read_bytes())["precision"] == options["precision"]


def flat_images(folder, names):
    """Prepare images of one shade each, with these names; return the folder of their shards."""
    (folder / "images").mkdir()
    for number, name in enumerate(names):
        Image.fromarray(np.full((16, 48), number, dtype=np.uint8)).save(
            folder / "images" / f"{name}.png"
        )
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
    (tmp_path / "labels.csv").write_text(
        "\n".join(["filename,text,split", *(f"{row},train" for row in rows)])
    )
    options = replace(ONE_WORKER, labels=tmp_path / "labels.csv")
    prepare(images, tmp_path / "shards", PrepareConfig(preset="tiny"), options)
    assert learn(tmp_path / "run", tmp_path / "shards", epochs=1).test is None


def test_the_best_weights_are_kept_and_scored_and_not_the_last(learn, shards, tmp_path, scripted):
    scripted([(6, 0.1), (0, 0.1)])
    finished = learn(tmp_path)
    assert finished.best_epoch == 1
    best, previous, last = (
        load_model(tmp_path / name).state_dict() for name in ("best", "previous", "last")
    )
    assert [name for name in best if not torch.equal(best[name], previous[name])] == ["temperature"]
    assert not torch.equal(best["stem.0.weight"], last["stem.0.weight"])
    test_set = load_split(read_dataset([shards]), "test", ALONE)
    scores = evaluate(load_model(tmp_path / "best"), test_set.in_order(250), "bce", ALONE)
    assert finished.test == {**scores.summary(), **scores.counts()}


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
    learn(out, epochs=4, keep_every=2)
    assert sorted(path.name for path in out.glob("epoch-*")) == ["epoch-0002", "epoch-0004"]
    learn(tmp_path / "other", epochs=4, resume=out / "epoch-0002")
    for name in ("last", "best"):
        assert weights(tmp_path / "other" / name) == weights(out / name)
    (out / "epoch-notes").mkdir()
    (out / ("epoch-0006" + TEMPORARY)).mkdir()
    learn(out, epochs=1, force=True)
    assert [path.name for path in out.glob("epoch-*")] == ["epoch-notes"]


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
    trainer = SimpleNamespace(
        config=TrainConfig(patience=None),
        epochs=epochs,
        finds_end=True,
        progress=Progress(best_epoch=best),
    )
    line = epoch_row(row, trainer)
    assert all(name in line for name in named)
    assert ("*" in line) == (number == best)
    assert len(line) <= 80
    assert max(map(len, head_epochs(trainer).splitlines())) <= 80
    trainer.config, trainer.finds_end = TrainConfig(patience=20), False
    since = number - best
    assert epoch_row(row, trainer) == (f"{line} {since}" if since else line)
    assert max(map(len, head_epochs(trainer).splitlines())) <= 80


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
