import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from conftest import QUIET, naming, put, weights

from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.training.distributed import BatchPartition
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.training.run import recorder
from captcha_ocr.training.run.checkpoint import resume
from captcha_ocr.training.run.folder import find_last
from captcha_ocr.training.run.spec import Run
from captcha_ocr.training.samples import batches
from captcha_ocr.training.samples.batches import DrawnBlocks

from ..conftest import ALONE, rows_of

DEJAVU = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")


def stop_at(step: int, monkeypatch, learn, out, **options) -> None:
    """Train until a signal comes at this step."""
    with monkeypatch.context() as context:

        def receive(interruption, now):
            if now == step:
                interruption.received = signal.SIGTERM
            interruption.leave_if_received()

        context.setattr(Interruption, "leave_after_step", receive)
        with pytest.raises(SystemExit, match="143"):
            learn(out, **options)


# An epoch has 5 steps, of which the last is a tail.
WAYS = {
    "one cycle, Muon": ((1, 5, 15), {"optimizer": "muon"}),
    "cosine, augmented, streamed": (
        (4, 7),
        {"schedule": "cosine", "augment": True, "stream": True},
    ),
    "plateau, Adam": ((5, 7), {"schedule": "plateau", "optimizer": "adam", "patience": 2}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_stopped_at_any_step_ends_with_the_same_weights(learn, tmp_path, monkeypatch, way):
    steps, options = WAYS[way]
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    learn(whole, epochs=3, **options)
    for step in steps:
        stop_at(step, monkeypatch, learn, stopped, epochs=3, **options)
        state = json.loads((stopped / "last" / "state.json").read_bytes())
        assert state["progress"]["step"] == step
    learn(stopped, epochs=3, **options)
    for name in ("best", "last"):
        assert weights(stopped / name) == weights(whole / name)
    of_time = {"seconds": 0, "images_per_s": 0, "peak_memory_mb": 0}
    for by in ("step", "epoch"):
        expected = [row | of_time for row in rows_of(whole, by)]
        assert [row | of_time for row in rows_of(stopped, by)] == expected


def test_a_run_that_finds_its_end_finds_the_same_one_after_it_was_stopped(
    learn, easy_shards, tmp_path, monkeypatch
):
    def learn_easily(out):
        options = {"patience": None, "optimizer": "muon", "learning_rate": 1e-2, "epochs": 30}
        return replace(learn(out, easy_shards, precision="fp32", **options), seconds=0)

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finished = learn_easily(whole)
    assert 10 <= finished.epochs < 30
    assert finished.best_epoch == finished.epochs
    last = 20 * finished.epochs  # steps
    for step in (last - 22, last - 20, last):  # in an epoch, and before the last two decisions
        stop_at(step, monkeypatch, learn_easily, stopped)
    assert learn_easily(stopped) == finished
    for name in ("best", "last"):
        assert weights(stopped / name) == weights(whole / name)


def test_a_run_on_drawings_stopped_at_any_step_ends_with_the_same_bits(
    learn, drawings, tmp_path, monkeypatch
):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    options = {"draw": drawings, "epochs": 5}  # of 3 steps each
    with monkeypatch.context() as context:  # by other processes
        context.setattr(batches, "_count_processes", lambda *_: 2)
        learn(whole, **options)
    for step in (2, 6, 13):  # in a block, between two, and in the last
        stop_at(step, monkeypatch, learn, stopped, **options)
    learn(stopped, **options)
    for name in ("best", "last"):
        assert weights(stopped / name) == weights(whole / name)
    one, other = (
        json.loads((run / "run.json").read_bytes())["finished"] | {"seconds": 0}
        for run in (whole, stopped)
    )
    assert one == other
    assert multiprocessing.active_children() == []


def test_a_signal_is_noticed_while_images_are_drawn(learn, drawings, tmp_path, monkeypatch):
    real = DrawnBlocks.show

    def slow(blocks, epoch, epochs):
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            yield 0, 1
        yield from real(blocks, epoch, epochs)

    with monkeypatch.context() as context:
        context.setattr(DrawnBlocks, "show", slow)
        with pytest.raises(SystemExit, match="143"):
            learn(tmp_path / "run", draw=drawings, epochs=4)
    assert (
        json.loads((tmp_path / "run" / "last" / "state.json").read_bytes())["progress"]["epoch"]
        == 2
    )
    assert learn(tmp_path / "run", draw=drawings, epochs=4).epochs == 4


def test_more_epochs_of_drawings_train_on_and_other_drawings_are_another_run(
    learn, drawings, tmp_path
):
    out = tmp_path / "run"
    learn(out, draw=drawings, epochs=1)
    assert learn(out, draw=replace(drawings, workers=2), epochs=3).epochs == 3
    for changes, named in (
        ({"repeat": 1}, ["`repeat`: 2 -> 1"]),
        (
            {"images": 30, "charset": "0123"},
            ["`images`: 24 -> 30", "`charset`: 0123456789 -> 0123"],
        ),
        ({"length": "2-3", "fonts": (DEJAVU,)}, ["`length`: 2 -> 2-3", "`fonts`: "]),
    ):
        with pytest.raises(UsageError, match=naming(out, "`force`", *named)):
            learn(out, draw=replace(drawings, **changes), epochs=3)
    with pytest.raises(UsageError, match=naming("`seed`: 0 -> 1")) as refusal:
        learn(out, draw=drawings, epochs=3, seed=1)
    assert "other images" not in str(refusal.value)
    with pytest.raises(UsageError, match=naming("`designs`: captcha -> unset")):
        learn(out, epochs=3)


@pytest.mark.parametrize("schedule", ["onecycle", "plateau"])
def test_more_epochs_train_on_and_fewer_are_another_run(learn, tmp_path, capsys, schedule):
    out, options = tmp_path / "run", {"schedule": schedule, "patience": 100}
    learn(out, epochs=2, **options)
    before = rows_of(out)
    assert learn(out, epochs=4, quiet=False, **options).epochs == 4
    assert str(out / "last") in capsys.readouterr().err
    learn(tmp_path / "whole", epochs=4, **options)
    assert rows_of(out)[:2] == before
    rates = [row["learning_rate"] for row in rows_of(out)[2:]]
    expected = [row["learning_rate"] for row in rows_of(tmp_path / "whole")[2:]]
    assert rates == pytest.approx(expected, rel=1e-6, abs=1e-12)
    with pytest.raises(UsageError, match=naming("epochs", "`force`")):
        learn(out, epochs=3, **options)


def test_a_best_model_newer_than_the_checkpoint_counts(learn, run, tmp_path, monkeypatch):
    real = recorder.save_last
    with (
        monkeypatch.context() as context
    ):  # stopped between writing best and last, in the second epoch
        context.setattr(
            recorder,
            "save_last",
            lambda *all_: pytest.fail("stopped") if all_[2].progress.epoch > 1 else real(*all_),
        )
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            learn(tmp_path)
    newer = json.loads((tmp_path / "best" / "config.json").read_bytes())["facts"]["epoch"]
    assert learn(tmp_path).best_epoch == newer
    assert weights(tmp_path / "best") == weights(run / "best")


def test_a_checkpoint_in_a_run_that_is_replaced_is_refused(learn, copied):
    (copied / "best" / "model.safetensors").unlink()
    for checkpoint in (copied / "last", copied):
        with pytest.raises(UsageError, match=naming(checkpoint, "`out`")):
            learn(copied, resume=checkpoint, force=True)
        assert (copied / "last" / "model.safetensors").exists()


def test_a_checkpoint_that_was_copied_alone_goes_on_unless_its_epochs_are_done(
    learn, run, tmp_path, capsys
):
    for name in ("previous", "last"):
        shutil.copytree(run / name, tmp_path / "copied" / name)
    with pytest.raises(UsageError, match="`epochs`"):
        learn(tmp_path / "run", resume=tmp_path / "copied" / "last")
    assert not (tmp_path / "run").exists()
    learn(tmp_path / "run", resume=tmp_path / "copied" / "previous", quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert any(
        f"{tmp_path}/copied" in line and "previous" not in line for line in lines
    )  # it has no best model
    assert weights(tmp_path / "run" / "last") == weights(run / "last")


def test_a_run_whose_checkpoints_are_lost_does_not_silently_start_from_nothing(learn, run, copied):
    for lost in ("last", "previous"):
        shutil.rmtree(copied / lost)
    for _ in range(2):
        with pytest.raises(DamagedError, match=naming(copied, "`resume` never", "`force`")):
            learn(copied, epochs=3)
        (copied / "metrics.jsonl").unlink(missing_ok=True)
    assert weights(copied / "best") == weights(run / "best")
    assert learn(copied, epochs=3, resume="never", force=True).epochs == 3


def test_a_named_checkpoint_or_run_is_never_passed_over(learn, run, tmp_path, monkeypatch):
    out, checkpoint = tmp_path / "run", run / "previous"
    stop_at(7, monkeypatch, learn, out, resume=checkpoint)
    finished = learn(out)  # it remembers what it began from
    assert weights(out / "last") == weights(run / "last")
    for named in (checkpoint, "auto", out, out / "last"):
        assert learn(out, resume=named) == finished
    for refused in (run / "last", tmp_path / "typo"):
        with pytest.raises(UsageError, match=str(refused)):
            learn(out, resume=refused)
    learn(tmp_path / "other", resume=run)
    assert weights(tmp_path / "other" / "best") == weights(run / "best")


def test_a_checkpoint_of_another_run_or_of_other_steps_an_epoch_is_refused(
    learn, run, tmp_path, monkeypatch
):
    checkpoint = run / "previous"
    with pytest.raises(UsageError, match=naming(checkpoint, "`batch_size`", 10, 5, "`init`")):
        learn(tmp_path / "run", batch_size=5, resume=checkpoint)
    monkeypatch.setattr(
        BatchPartition, "steps", 4
    )  # several processes may have fewer steps, because they drop a tail
    with pytest.raises(UsageError, match=naming(checkpoint, 5, 4)):
        learn(tmp_path / "run", resume=checkpoint)
    assert not (tmp_path / "run").exists()


def test_everything_a_run_needs_comes_back(run, shards, spec, trainer_of):
    trainer = trainer_of()
    stopped = Run(run, spec, read_dataset([shards]), ALONE, QUIET, replaces=False)
    assert resume(trainer, stopped) == run / "last"
    progress = trainer.progress
    assert (progress.epoch, progress.batch, progress.step) == (2, 0, 10)
    assert [row["by"] for row in progress.rows].count("epoch") == 2
    assert trainer.optimization.schedule.last_epoch == 10
    assert all(
        state["step"].item() == 10 for state in trainer.optimization.optimizer.state.values()
    )


def test_the_newest_whole_checkpoint_is_what_a_run_goes_on_from(run, tmp_path):
    assert find_last(tmp_path) is None
    stopped = shutil.copytree(run, tmp_path / "run")
    assert find_last(stopped) == stopped / "last"
    (stopped / "last" / "optimizer.safetensors").write_bytes(b"damaged")
    assert find_last(stopped) == stopped / "previous"
    shutil.rmtree(stopped / "last")
    assert find_last(stopped) == stopped / "previous"


def test_a_model_without_a_state_cannot_be_gone_on_from(learn, run, tmp_path):
    with pytest.raises(UsageError, match=str(run / "best")):
        learn(tmp_path / "run", resume=run / "best")


def test_a_checkpoint_of_another_version_is_refused_and_its_weights_are_not(learn, run, tmp_path):
    older = shutil.copytree(run / "last", tmp_path / "older")
    document = json.loads((older / "state.json").read_bytes())
    put(older / "state.json", json.dumps({**document, "version": 3}).encode())
    with pytest.raises(UsageError, match=naming(older, "`init`")):
        learn(tmp_path / "run", resume=older)
