import json
import shutil

import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.training.run.checkpoint import Checkpoint, find_last


def test_everything_a_run_needs_comes_back(run, trainer_of):
    trainer = trainer_of()
    checkpoint = Checkpoint.read(run / "last")
    document = json.loads(json.dumps(checkpoint.to_dict()))
    Checkpoint.from_dict(run / "last", document, checkpoint.optimizer).restore(trainer)
    progress = trainer.progress
    assert (
        checkpoint.spec.identity
        == json.loads((run / "best" / "config.json").read_bytes())["facts"]["run"]
    )
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


def test_a_model_without_a_state_cannot_be_gone_on_from(run):
    with pytest.raises(UsageError, match=str(run / "best")):
        Checkpoint.read(run / "best")


def test_a_checkpoint_of_another_version_is_refused_and_its_weights_are_not(run):
    document = Checkpoint.read(run / "last").to_dict()
    with pytest.raises(UsageError, match=naming(run / "last", "`init`")):
        Checkpoint.from_dict(run / "last", {**document, "version": 3}, b"")
