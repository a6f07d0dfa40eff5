import json
import re
from dataclasses import replace

import click
import pytest
from conftest import ONE_WORKER, QUIET, TINY, draw

from captcha_ocr.cli.app import main
from captcha_ocr.data.prepare import prepare
from captcha_ocr.experiments.child_run import ChildRuns
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.declaration import words
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.training.train import train
from captcha_ocr.web.label.session import (
    BackgroundTraining,
    Guesser,
    LabelSession,
    next_milestone,
)

from ..conftest import SAMPLES


def label(session, number, text):
    return session.save(number, text, session.store.entries[number].version)


def guess_all(session):
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()


def test_the_held_out_images_come_first_then_the_least_sure_then_a_damaged_one(session, folder):
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:200])
    guess_all(session)
    order = []
    while (number := session.next_number()) is not None:
        order.append(number)
        label(session, number, "X" if len(order) < 4 else "")  # a skipped one does not come back
    assert order[: len(session.store.first)] == session.store.first
    assert (sorted(order), order[-1]) == (list(range(6)), 2)
    assert session.progress()["skipped"] == 3
    assert (session.guesser.guess(2).text, session.guesser.guess(2).confidence) == ("", 0.0)
    assert "2.png" in session.guesser.problems[2]


def test_among_unsure_images_those_with_rare_characters_come_first(session):
    session.store.first = []
    guess_all(session)
    label(session, 0, "0AY5CKD9G2USQ")  # none of image 3, which is XLTZ
    assert session.next_number() == 3


def test_the_guess_is_shown_but_not_with_blind_and_the_journal_has_what_a_label_took(
    session, folder, tmp_path
):
    views = [session.view(number) for number in range(6)]
    guess = views[0]["guess"]
    assert (guess["text"], [text for text, _ in guess["characters"]]) == ("0ZLA", list("0ZLA"))
    label(session, 0, "0ZLA")
    line = json.loads(session.journal.read_text())
    assert (line["seconds"] >= 0, line["skipped"], line["as_guessed"]) == (True, False, True)
    assert 400 < sum(not session.shows_guess(number) for number in range(10_000)) < 600
    blind = LabelSession(folder, PRETRAINED, LabelOptions(blind=True, out=tmp_path / "blind"))
    assert [blind.view(number)["guess"] for number in range(6)] == [None] * 6


def test_blind_answers_are_scored_against_the_labels_which_stay(folder, tmp_path):
    labels = "filename,text\n0.png,0ZLA\n1.png,YTX5\n2.png,C0KD\n3.png,XLTZ\n"
    (folder / "labels.csv").write_text(labels)
    session = LabelSession(folder, PRETRAINED, LabelOptions(blind=True, out=tmp_path / "run"))
    assert session.score_answers() == ""
    assert sorted(session.store.first) == list(range(6))
    for number, text in enumerate(("0ZLA", "YTX5", "C0K0", "", "ABCD")):
        session.view(number)
        label(session, number, text)
    assert re.search(r"exact match +50.00%  \(2 of 4;", session.score_answers())
    assert re.search(r"seconds an image +0\.\d  \(median\)", session.score_answers())
    assert (folder / "labels.csv").read_text() == labels
    assert "4.png,ABCD" in (tmp_path / "run" / "answers.csv").read_text()
    assert session.progress()["commands"] == []


def test_the_accuracy_is_that_of_the_test_images_alone(session):
    guess_all(session)
    for number, text in enumerate(("0ZLA", "YTX5", "C0KD", "XLTZ", "9GG2", "USCQ")):
        label(session, number, text)
    accuracy = session.progress()["accuracy"]
    assert (accuracy["right"], accuracy["images"]) == (1, 1)
    assert accuracy["interval"][0] < 1


def test_images_are_read_in_the_background_or_when_asked_for_and_again_by_a_better_model(
    recognizer,
):
    guesser = Guesser(sorted(SAMPLES.glob("*.png")), recognizer)
    assert (guesser.guess(3).text, set(guesser.guesses)) == ("XLTZ", {3})
    guesser.start([0, 1])
    guesser.worker.join()
    assert (guesser.guesses[0].text, guesser.guesses[1].text) == ("0ZLA", "YTX5")
    guesser.start([0], recognizer.limited_to("digits", None, False))
    guesser.worker.join()
    assert guesser.guesses[0].text.isdigit()


@pytest.mark.parametrize(
    ("labels", "milestone"), [(0, 150), (149, 150), (150, 250), (250, 450), (450, 850)]
)
def test_training_begins_at_these_numbers_of_labels(labels, milestone):
    assert next_milestone(labels) == milestone


@pytest.fixture
def digits(tmp_path):
    """A folder with images of two digits, and a table of their texts elsewhere."""
    folder = draw(tmp_path / "drawn", seed=2, count=12)
    return folder, (folder / "labels.csv").rename(tmp_path / "texts.csv")


@pytest.fixture
def short(monkeypatch, short_runs):
    """Prepare and train in this process, with the small preset."""

    def run_here(_, name, arguments, options):
        line = [*map(str, arguments), *words(options)]
        main.get_command(click.Context(main), name).make_context(name, line)  # else UsageError
        if name == "prepare":
            how = replace(ONE_WORKER, labels=options["labels"])
            prepare(*arguments, options["out"], PrepareConfig(preset="tiny"), how)
        else:
            train([options["data"]], options["out"], TINY.training, QUIET)

    monkeypatch.setattr(ChildRuns, "run_command", run_here)


@pytest.mark.usefixtures("short")
def test_a_model_that_was_trained_meanwhile_reads_from_then_on(digits, tmp_path):
    options = LabelOptions(out=tmp_path / "out", device="cpu")
    session = LabelSession(digits[0], PRETRAINED, options)
    session.milestone = 12
    for number in range(12):
        session.save(number, str(70 + number), 0)  # which these images do not show
    session.training.thread.join(300)
    trained = tmp_path / "out" / "labels-12" / "run"
    (point,) = session.points
    assert (session.training.problem, point.images, point.tested) == ("", 12, 2)
    assert session.model == str(trained)
    assert session.progress()["accuracy"]["images"] == 2
    session.stop()
    again = LabelSession(digits[0], PRETRAINED, options)
    assert (again.model, again.points, again.milestone) == (str(trained), session.points, 150)
    again.stop()


def test_a_training_that_fails_says_why_and_one_is_ended_with_the_page(digits, tmp_path):
    folder, table = digits
    out = tmp_path / "out"
    training = BackgroundTraining(folder, out, lambda *_: pytest.fail("there is no model"))
    training.train(b"filename,text,split\nnone.png,A,train\n", 1)
    assert "none.png" in training.problem
    training.start(table.read_bytes(), 12)
    training.stop()
    assert (training.is_running, training.problem) == (False, "")
    training.train(table.read_bytes(), 13)
    assert not (out / "labels-13" / "shards").exists()  # nothing begins any more
