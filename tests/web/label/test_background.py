import pytest
from conftest import draw

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.web.label.background import (
    BackgroundTraining,
    Guesser,
    next_milestone,
    read_point,
)
from captcha_ocr.web.label.session import LabelSession

from ..conftest import SAMPLES


def test_images_are_read_in_the_background_or_when_asked_for_and_again_by_a_better_model(
    recognizer,
):
    guesser = Guesser(sorted(SAMPLES.glob("*.png")), recognizer)
    assert (guesser.guess(3).text, set(guesser.guesses)) == ("XLTZ", {3})
    guesser.start([0, 1])
    guesser.worker.join()
    assert [guesser.guesses[number].text for number in (0, 1)] == ["0ZLA", "YTX5"]
    guesser.start([0], recognizer.limited_to("digits", None, False))
    guesser.worker.join()
    assert guesser.guess(0).text.isdigit()


@pytest.mark.parametrize(
    ("labels", "milestone"), [(0, 150), (149, 150), (150, 250), (250, 450), (450, 850)]
)
def test_training_begins_at_these_numbers_of_labels(labels, milestone):
    assert next_milestone(labels) == milestone


@pytest.fixture
def digits(tmp_path):
    """A folder with images of two digits, and their texts."""
    folder = draw(tmp_path / "drawn", seed=2, count=12)
    texts = {row.filename: row.text for row in read_table(folder / "labels.csv")}
    (folder / "labels.csv").unlink()
    return folder, texts


@pytest.fixture
def short(monkeypatch):
    """Train for two epochs."""
    run_command = ChildRuns.run_command

    def run_shorter(self, name, arguments, options):
        more = {"epochs": 2} if name == "train" else {}
        run_command(self, name, arguments, options | more)

    monkeypatch.setattr(ChildRuns, "run_command", run_shorter)


def test_a_model_that_was_trained_meanwhile_reads_from_then_on(digits, run, short, tmp_path):
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
