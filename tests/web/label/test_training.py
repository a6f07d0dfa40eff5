import shutil

import pytest
from conftest import draw

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.web.label.session import LabelSession
from captcha_ocr.web.label.training import BackgroundTraining, read_point


@pytest.fixture
def digits(tmp_path):
    """A folder with images of two digits, and their texts."""
    folder = draw(tmp_path / "drawn", seed=2, count=12)
    texts = {row.filename: row.text for row in read_table(folder / "labels.csv")}
    (folder / "labels.csv").unlink()
    return folder, texts


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Train for two epochs."""
    run_command = ChildRuns.run_command

    def run_shorter(self, name, arguments, options):
        more = {"epochs": 2} if name == "train" else {}
        run_command(self, name, arguments, options | more)

    monkeypatch.setattr(ChildRuns, "run_command", run_shorter)


def test_a_model_that_was_trained_meanwhile_reads_from_then_on(digits, run, tmp_path):
    folder, texts = digits
    options = LabelOptions(out=tmp_path / "out", device="cpu")
    session = LabelSession(folder, run, options)
    session.milestone = 12
    for number, entry in enumerate(session.store.entries):
        session.save(number, texts[entry.file], 0)
    session.training.thread.join(300)
    trained = tmp_path / "out" / "labels-12" / "run"
    point = read_point(trained, 12)
    assert (session.training.problem, session.points, point.tested) == ("", [point], 2)
    assert session.model == str(trained)
    assert session.progress()["accuracy"]["images"] == 2
    session.stop()
    again = LabelSession(folder, run, options)
    assert (again.model, again.points, again.milestone) == (str(trained), session.points, 150)
    again.stop()


def test_a_training_that_fails_says_why(digits, tmp_path):
    training = BackgroundTraining(
        digits[0], tmp_path / "out", lambda *_: pytest.fail("there is no model")
    )
    training.train(b"filename,text,split\nnone.png,A,train\n", 1)
    assert "none.png" in training.problem


def test_a_training_is_ended_with_the_page(digits, tmp_path):
    folder, texts = digits
    table = "filename,text\n" + "".join(f"{file},{text}\n" for file, text in texts.items())
    training = BackgroundTraining(folder, tmp_path / "out", lambda *_: pytest.fail("it was ended"))
    training.start(table.encode(), 12)
    training.stop()
    assert (training.is_running, training.problem) == (False, "")
    training.start(table.encode(), 12)
    assert not training.is_running
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
