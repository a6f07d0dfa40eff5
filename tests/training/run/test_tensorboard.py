import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from captcha_ocr.errors import UsageError
from captcha_ocr.training.run import tensorboard as board
from captcha_ocr.training.run.tensorboard import TensorBoardLogger

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


def write(folder, last_step, rows) -> None:
    writing = TensorBoardLogger(folder, last_step)
    writing.write(rows)
    writing.close()


def curves(folder) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_rows_become_curves_by_step_and_by_epoch(tmp_path):
    write(tmp_path, 0, [{**STEP, "peak_memory_mb": 300.0, "peak_device_memory_mb": None}, EPOCH])
    found = curves(tmp_path)
    assert (found["loss/training"], found["loss/validation"]) == ([(1, 0.5)], [(2, 0.25)])
    assert (found["exact/validation"], found["peak memory (MB)/process"]) == (
        [(2, 0.75)],
        [(1, 300.0)],
    )
    assert set(found) == set(board.NAMES.values()) - {"peak memory (MB)/device"}


def test_a_resumed_run_shows_each_step_once(tmp_path):
    write(tmp_path, 0, [{**STEP, "step": step, "training_loss": 1.0} for step in (1, 2, 3)])
    write(tmp_path, 1, [{**STEP, "step": step, "training_loss": 2.0} for step in (2, 3)])
    assert curves(tmp_path)["loss/training"] == [(1, 1.0), (2, 2.0), (3, 2.0)]


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(board, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install tensorboard"):
        TensorBoardLogger.check_installed()
