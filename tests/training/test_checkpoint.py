import shutil

import pytest
import torch
from conftest import naming

from captcha_ocr.config import ModelConfig
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.training.batches import Share
from captcha_ocr.training.checkpoint import Progress, load_last, read_checkpoint, restore
from captcha_ocr.training.distributed import Processes
from captcha_ocr.training.trainer import make_trainer


def test_everything_a_run_needs_comes_back(run, shards, tiny_preset):
    dataset = read_dataset([shards])
    config = ModelConfig(dataset.charset, dataset.lengths, dataset.size, tiny_preset.network)
    share = Share(48, 10, Processes(torch.device("cpu")))
    trainer = make_trainer(config, tiny_preset.training, share, None, Progress({}))
    progress, state = restore(*read_checkpoint(run / "last"), trainer.optimizer)
    trainer.restore(state)
    assert (progress.epoch, progress.batch, progress.step) == (2, 0, 10)
    assert [row["by"] for row in progress.rows].count("epoch") == 2
    assert trainer.schedule.last_epoch == 10
    assert all(state["step"].item() == 10 for state in trainer.optimizer.state.values())


def test_the_newest_whole_checkpoint_is_what_a_run_goes_on_from(run, tmp_path):
    assert load_last(tmp_path) is None
    stopped = shutil.copytree(run, tmp_path / "run")
    assert load_last(stopped) == stopped / "last"
    (stopped / "last" / "optimizer.safetensors").write_bytes(b"damaged")
    assert load_last(stopped) == stopped / "previous"
    shutil.rmtree(stopped / "last")
    assert load_last(stopped) == stopped / "previous"


def test_two_damaged_checkpoints_are_never_a_silent_new_start(run, tmp_path):
    stopped = shutil.copytree(run, tmp_path / "run")
    for name in ("last", "previous"):
        (stopped / name / "optimizer.safetensors").write_bytes(b"damaged")
    with pytest.raises(DamagedError, match=naming(stopped / "last", stopped / "previous", "--resume never")):
        load_last(stopped)


def test_a_model_without_a_state_cannot_be_gone_on_from(run):
    with pytest.raises(UsageError, match=str(run / "best")):
        read_checkpoint(run / "best")
