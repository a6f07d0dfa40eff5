import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from captcha_ocr.cli.wording import word_command
from captcha_ocr.data.labels import read_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.inference.decoding import Reading
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
from captcha_ocr.web.label.store import Entry

from ..conftest import SAMPLES


def label(session, number, text):
    return session.save(number, text, session.store.entries[number].version)


def guess_all(session):
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()


def test_images_come_at_random_then_a_held_out_one_or_the_least_sure_with_rare_characters(
    session, folder, monkeypatch
):
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:200])
    guess_all(session)
    assert session.next_number() == session.store.drawn[0]
    label(session, 0, "0AY5CKD9G2USQ")  # none of image 3, which is XLTZ
    drawn = [number for number in session.store.drawn if number not in (0, 2)]
    monkeypatch.setattr("captcha_ocr.web.label.session.AT_RANDOM", 0)
    session.store.entries = [replace(entry, split="train") for entry in session.store.entries]
    assert session.next_number() == 3
    session.store.entries[1] = replace(session.store.entries[1], split="test")
    assert session.next_number() == 1
    monkeypatch.undo()
    order = []
    while (number := session.next_number()) is not None:
        order.append(number)
        label(session, number, "")  # a skipped one does not come back
    assert order == [*drawn, 2]  # one that cannot be read comes last
    assert session.progress()["skipped"] == 5
    assert (session.guesser.guess(2).text, session.guesser.guess(2).confidence) == ("", 0.0)
    assert "2.png" in session.guesser.problems[2]


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


@pytest.mark.parametrize(
    ("labels", "learnt", "images", "unscored"),
    [
        (5, 0, None, 5),
        (10, 0, 10, 0),
        (20, 0, 20, 0),
        (20, 16, None, 6),
        (60, 16, 44, 0),
        (40, 32, None, 2),
        (60, 48, 12, 0),
        (130, 100, 26, 0),  # of the first hundred, and those that are held out of 30 others
    ],
)
def test_the_score_is_of_labels_drawn_at_random_that_the_model_did_not_learn(
    session, labels, learnt, images, unscored
):
    store = session.store
    store.drawn = list(range(200))
    store.entries = [
        Entry(number, f"{number}.png", "train" if number % 5 else "test", "A"[: number < labels])
        for number in store.drawn
    ]
    store.entries[-1] = replace(store.entries[-1], text=None)
    session.guesser.guesses = dict.fromkeys(store.drawn, Reading("A", 1.0))
    trained = [entry.file for entry in store.entries if entry.split == "train"]
    session.learnt = set(trained[:learnt])
    progress = session.progress()
    found = progress.get("accuracy", {"images": None})["images"]
    assert (found, progress["unscored"]) == (images, unscored)


def test_a_model_of_the_person_may_have_learnt_all_labels_that_are_not_held_out(folder, tmp_path):
    (folder / "labels.csv").write_text("filename,text,split\n0.png,A,train\n1.png,B,val\n")
    options = LabelOptions(out=tmp_path / "run")
    mine = shutil.copytree(PRETRAINED, tmp_path / "mine")
    learnt = {model: LabelSession(folder, model, options).learnt for model in (PRETRAINED, mine)}
    assert learnt == {PRETRAINED: set(), mine: {"0.png"}}


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
    tests = session.list_tests(session.learnt)
    session.guesser.worker.join()
    assert learnt.isdisjoint(entry.file for entry in tests)
    assert (len(session.learnt), len(tests), session.progress()["unscored"]) == (16, 4, 6)
    assert session.training.progress() is None
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


def test_a_training_tells_how_far_it_is_or_why_it_failed_and_ends_with_the_page(digits, tmp_path):
    folder, table, _ = digits
    out, made = tmp_path / "out", []
    training = BackgroundTraining(folder, out, made.append, quiet=True)
    training.train(b"filename,text,split\nnone.png,A,train\n", 1)
    assert "none.png" in training.problem
    training.start(b"".join(table.read_bytes().splitlines(True)[:21]), 20)
    while training.rounds == 0 and training.is_running:
        time.sleep(0.1)
    progress = training.progress()
    training.stop()
    assert (progress["round"], progress["rounds"]) == (1, 7)
    assert (training.is_running, training.problem) == (False, "")
    training.train(table.read_bytes(), 13)
    assert (made, (out / "labels-13" / "best").exists()) == ([], False)  # nothing begins any more


def test_one_label_in_five_is_held_out_and_the_next_command_fits_their_number(digits, monkeypatch):
    folder, _, texts = digits
    monkeypatch.setattr(BackgroundTraining, "start", lambda *_: None)
    monkeypatch.chdir(folder.parent)
    given = {"model_folder": "pretrained", "out": Path("my run"), "port": 0}
    session = LabelSession(folder, PRETRAINED, LabelOptions(), given)
    commands, learnt = {}, {}
    for count in range(61):
        commands[count] = [word_command(command) for command in session.list_commands()]
        learnt[count] = session.labelled - sum(
            bool(entry.text) and entry.split != "train" for entry in session.store.entries
        )
        if count < 60:
            number = session.next_number()
            label(session, number, texts[session.store.entries[number].file])
    assert {count: learnt[count] for count in (1, 5, 20, 60)} == {1: 0, 5: 4, 20: 16, 60: 48}
    shards = prepare(folder, folder.parent / "shards", PrepareConfig(preset="tiny"))
    assert shards.manifest.count("train") == 48
    again = f"captcha-ocr label {folder} --model pretrained --out 'my run' --port 0"
    adapt, train = (f"captcha-ocr {command} {folder}" for command in ("adapt", "train"))
    ways = {0: again, 19: again, 20: adapt, 30: adapt, 31: train, 60: train}
    assert {count: commands[count] for count in ways} == {
        count: [way] for count, way in ways.items()
    }
