import shutil

import pytest
import torch
from conftest import naming

from captcha_ocr.batches import Share
from captcha_ocr.config import ModelConfig
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.processes import Processes
from captcha_ocr.resume import Progress, flatten, load_last, read_checkpoint, restore, unflatten
from captcha_ocr.shards import read_dataset
from captcha_ocr.trainer import make_trainer

CPU = torch.device("cpu")


@pytest.fixture
def stopped(run, tmp_path):
    """A copy of a run folder."""
    return shutil.copytree(run, tmp_path / "run")


@pytest.fixture
def trainer(shards, tiny_preset):
    """A fresh trainer of the tiny preset."""
    dataset = read_dataset([shards])
    config = ModelConfig(dataset.charset, dataset.lengths, dataset.size, tiny_preset.network)
    return make_trainer(config, tiny_preset.training, Share(48, 10, Processes(CPU)), None, Progress({}))


def damage(folder) -> None:
    path = folder / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def test_everything_a_run_needs_comes_back(stopped, trainer):
    progress, state = restore(*read_checkpoint(stopped / "last"), trainer.optimizer)
    trainer.restore(state)
    assert (progress.epoch, progress.batch, progress.step) == (2, 0, 10)
    assert [row["by"] for row in progress.rows].count("epoch") == 2
    assert trainer.schedule.last_epoch == 10
    assert all(state["step"].item() == 10 for state in trainer.optimizer.state.values())


def test_a_whole_last_is_what_to_go_on_from(stopped):
    assert load_last(stopped) == stopped / "last"


def test_a_damaged_last_falls_back_to_the_one_before(stopped):
    damage(stopped / "last")
    assert load_last(stopped) == stopped / "previous"


def test_a_missing_last_falls_back_to_the_one_before(stopped):
    shutil.rmtree(stopped / "last")
    assert load_last(stopped) == stopped / "previous"


def test_two_damaged_checkpoints_are_never_a_silent_new_start(stopped):
    damage(stopped / "last")
    damage(stopped / "previous")
    with pytest.raises(DamagedError, match=naming(stopped / "last", stopped / "previous")):
        load_last(stopped)


def test_a_folder_without_checkpoints_is_a_new_start(tmp_path):
    assert load_last(tmp_path) is None


def test_a_model_without_a_state_cannot_be_gone_on_from(run):
    with pytest.raises(UsageError, match=str(run / "best")):
        read_checkpoint(run / "best")


def test_an_optimisers_state_survives_being_flattened():
    state = {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2)}, 12: {"step": torch.tensor(4.0)}}
    again = unflatten(flatten(state))
    assert again.keys() == state.keys()
    assert torch.equal(again[0]["exp_avg"], torch.ones(2))
    assert again[12]["step"] == 4
