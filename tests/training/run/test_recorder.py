from collections import Counter
from dataclasses import replace

import pytest
from conftest import TINY
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from captcha_ocr.data.shards import read_dataset
from captcha_ocr.errors import UsageError
from captcha_ocr.scores import Scores
from captcha_ocr.training import train
from captcha_ocr.training.run.recorder import CURVES, write_card, write_curves
from captcha_ocr.training.samples.dataset import DrawnData

STEP = {
    "by": "step",
    "step": 1,
    "training_loss": 0.5,
    "training_exact": 0.1,
    "learning_rate": 0.1,
    "images_per_s": 9,
}
EPOCH = {
    **STEP,
    "by": "epoch",
    "step": 2,
    "validation_loss": 0.25,
    "validation_exact": 0.75,
    "validation_characters": 0.9,
}


def curves(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_rows_become_curves_by_step_and_by_epoch(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        memory = {"peak_memory_mb": 300.0, "peak_device_memory_mb": None}
        write_curves(writer, [{**STEP, **memory}, EPOCH])
    found = curves(tmp_path)
    assert (found["loss/training"], found["loss/validation"]) == ([(1, 0.5)], [(2, 0.25)])
    assert (found["exact/validation"], found["peak memory (MB)/process"]) == (
        [(2, 0.75)],
        [(1, 300.0)],
    )
    assert set(found) == set(CURVES.values()) - {"peak memory (MB)/device"}


def test_a_resumed_run_shows_each_step_once(learn, tmp_path):
    learn(tmp_path, epochs=1, tensorboard=True)
    with SummaryWriter(tmp_path / "tensorboard") as writer:  # after the last checkpoint
        write_curves(writer, [{**STEP, "step": step, "training_loss": 99.0} for step in (6, 7)])
    learn(tmp_path, epochs=2, tensorboard=True)
    steps, losses = zip(*curves(tmp_path / "tensorboard")["loss/training"], strict=True)
    assert steps == tuple(range(1, 11))
    assert max(losses) < 99


def test_a_missing_package_is_named_with_its_command(learn, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install tensorboard"):
        learn(tmp_path, tensorboard=True)


def test_a_card_tells_what_the_model_reads_and_how_well(run, shards):
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    for fact in ("`0123456789`", "48x16", "`tiny`", "on 48 images", "0 of 6", "Validation", "Test"):
        assert fact in card
    dataset = read_dataset([shards])
    card = write_card(replace(TINY.training, images=20), dataset, 3, Scores(6, 5, Counter()))
    assert "on 20 images; best epoch 3" in card
    assert "Test" not in card  # nothing was scored


def test_the_card_of_a_model_that_learnt_from_drawings_says_so(drawings):
    card = write_card(
        TINY.training, DrawnData.of(drawings, TINY.training), 3, Scores(6, 5, Counter())
    )
    assert all(
        fact in card
        for fact in ("on 24 images an epoch", "design `captcha`", "new ones every 2 epochs")
    )
