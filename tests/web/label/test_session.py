import json
import re
import shutil
import time
from dataclasses import replace

import pytest

from captcha_ocr.cli.wording import word_command
from captcha_ocr.data.labels import read_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.serving import LabelOptions
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


def test_a_held_out_image_comes_first_then_the_least_sure_then_a_damaged_one(session, folder):
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:200])
    guess_all(session)
    order = []
    while (number := session.next_number()) is not None:
        order.append(number)
        label(session, number, "X" if len(order) < 4 else "")  # a skipped one does not come back
    assert order[0] == session.store.drawn[0]
    assert (sorted(order), order[-1]) == (list(range(6)), 2)
    assert session.progress()["skipped"] == 3
    assert (session.guesser.guess(2).text, session.guesser.guess(2).confidence) == ("", 0.0)
    assert "2.png" in session.guesser.problems[2]


def test_among_unsure_images_those_with_rare_characters_come_first(session):
    guess_all(session)
    session.store.entries = [replace(entry, split="train") for entry in session.store.entries]
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
    session.journal.write_text('{"file": "5.png", "skipp\n')  # cut when the disk was full
    assert session.score_answers() == ""
    order = []
    while (number := session.next_number()) is not None:
        order.append(number)
        session.store.entries[number] = replace(session.store.entries[number], text="")
    assert order == session.store.drawn
    session.store.entries = [replace(entry, text=None) for entry in session.store.entries]
    for number, text in enumerate(("0ZLA", "YTX5", "C0K0", "", "ABCD")):
        session.view(number)
        label(session, number, text)
    assert re.search(r"exact match +50.00%  \(2 of 4;", session.score_answers())
    assert re.search(r"seconds an image +0\.\d  \(median\)", session.score_answers())
    assert (folder / "labels.csv").read_text() == labels
    assert "4.png,ABCD" in (tmp_path / "run" / "answers.csv").read_text()
    assert session.progress()["commands"] == []


def test_the_accuracy_is_that_of_the_held_out_images_alone(session):
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
    ("labels", "milestone"), [(0, 20), (19, 20), (20, 40), (79, 80), (80, 160)]
)
def test_training_begins_at_these_numbers_of_labels(labels, milestone):
    assert next_milestone(labels) == milestone


@pytest.fixture
def digits(four_digits, tmp_path):
    """A folder with 60 images of four digits, a table of their texts elsewhere, and the texts."""
    folder = shutil.copytree(four_digits, tmp_path / "drawn")
    table = (folder / "labels.csv").rename(tmp_path / "texts.csv")
    return folder, table, {label.file: label.text for label in read_labels(table)[0]}


@pytest.mark.usefixtures("adapting_here")
def test_a_model_that_was_trained_meanwhile_reads_from_then_on(digits, tmp_path):
    folder, _, texts = digits
    options = LabelOptions(out=tmp_path / "out", device="cpu")
    session = LabelSession(folder, PRETRAINED, options)
    for _ in range(20):
        number = session.next_number()
        entry = session.store.entries[number]
        label(session, number, texts[entry.file] if entry.split == "train" else "0000")
    session.training.thread.join(300)
    trained = tmp_path / "out" / "labels-20"
    assert session.training.problem == ""
    assert session.model == str(trained)
    learnt = {label.file for label in read_labels(trained / "round-1" / "labels.csv")[0]}
    assert learnt.isdisjoint(entry.file for entry in session.held_out)
    session.guesser.worker.join()
    assert session.progress()["accuracy"]["images"] == 4
    assert (session.training.progress(), session.training.rounds) == (None, 2)
    session.stop()
    again = LabelSession(folder, PRETRAINED, options)
    assert (again.model, again.milestone) == (str(trained), 40)
    again.stop()


def test_guesses_keep_to_what_the_texts_have_in_common(digits, recognizer):
    folder, _, texts = digits
    guesser = Guesser([folder / file for file in texts], recognizer)
    guesser.start(list(range(len(texts))))
    guesser.worker.join()
    assert guesser.recognizer.decoder.lengths == Lengths(4, 4)
    assert all(reading.text.isdigit() for reading in guesser.guesses.values())


def test_a_training_that_fails_says_why_and_one_is_ended_with_the_page(digits, tmp_path):
    folder, table, _ = digits
    out = tmp_path / "out"
    training = BackgroundTraining(folder, out, lambda *_: pytest.fail("there is no model"))
    training.train(b"filename,text,split\nnone.png,A,train\n", 1)
    assert "none.png" in training.problem
    training.start(table.read_bytes(), 12)
    training.stop()
    assert (training.is_running, training.problem) == (False, "")
    training.train(table.read_bytes(), 13)
    assert not (out / "labels-13" / "best").exists()  # nothing begins any more


def test_a_training_tells_how_far_it_is_and_a_command_that_takes_long_is_watched(digits, tmp_path):
    folder, table, _ = digits
    training = BackgroundTraining(folder, tmp_path / "out", lambda *_: None, quiet=True)
    training.start(b"".join(table.read_bytes().splitlines(True)[:21]), 20)
    while training.rounds == 0 and training.is_running:
        time.sleep(0.1)
    progress = training.progress()
    training.stop()
    assert (progress["round"], progress["rounds"], progress["seconds"] > 0) == (1, 6, True)


def test_one_label_in_five_is_held_out_and_the_next_command_fits_their_number(
    digits, monkeypatch, capsys
):
    folder, _, texts = digits
    monkeypatch.setattr(BackgroundTraining, "start", lambda *_: None)
    monkeypatch.chdir(folder.parent)
    session = LabelSession(folder, PRETRAINED, LabelOptions())
    commands, learnt = {}, {}
    for count in range(61):
        commands[count] = [word_command(command) for command in session.list_commands()]
        learnt[count] = session.labelled - len(session.held_out)
        if count < 60:
            number = session.next_number()
            label(session, number, texts[session.store.entries[number].file])
    assert {count: learnt[count] for count in (1, 5, 20, 60)} == {1: 0, 5: 4, 20: 16, 60: 48}
    shards = prepare(folder, folder.parent / "shards", PrepareConfig(preset="tiny"))
    assert shards.manifest.count("train") == 48
    ways = {0: "label", 5: "label", 19: "label", 20: "adapt", 30: "adapt", 31: "train", 60: "train"}
    assert {count: commands[count] for count in ways} == {
        count: [f"captcha-ocr {way} {folder}"] for count, way in ways.items()
    }
