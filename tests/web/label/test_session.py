import json
import re

from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.web.label.session import LabelSession


def label(session, number, text):
    return session.save(number, text, session.store.entries[number].version)


def test_the_held_out_images_come_first_then_the_least_sure(session):
    order = []
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()
    while (number := session.next_number()) is not None:
        order.append(number)
        label(session, number, "X")
    assert order[: len(session.store.first)] == session.store.first
    assert sorted(order) == list(range(6))


def test_among_unsure_images_those_with_rare_characters_come_first(session, monkeypatch):
    session.store.first = []
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()
    session.seen.update("0ZLAYTX5C0KD9GG2USCQ" * 9)  # all but those of image 3, XLTZ
    session.seen["X"] = session.seen["L"] = session.seen["T"] = session.seen["Z"] = 0
    assert session.next_number() == 3


def test_a_skipped_image_does_not_come_back(session):
    first = session.next_number()
    label(session, first, "")
    assert session.next_number() != first
    assert session.progress()["skipped"] == 1


def test_the_guess_is_shown_but_not_with_blind(session, folder, tmp_path):
    shown = [session.view(number)["guess"] for number in range(6)]
    assert [guess["text"] for guess in shown if guess][:1] in (["0ZLA"], ["YTX5"])
    assert all(len(character) == 2 for guess in shown if guess for character in guess["characters"])
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
    assert session.next_commands() == []


def test_one_image_in_twenty_is_shown_without_a_guess(session):
    without = sum(not session.shows_guess(number) for number in range(10_000))
    assert 400 < without < 600


def test_the_journal_has_what_a_label_took(session):
    number = session.next_number()
    guess = session.view(number)["guess"]
    label(session, number, "0ZLA" if guess is None else guess["text"])
    (line,) = session.journal.read_text().splitlines()
    found = json.loads(line)
    assert found["seconds"] >= 0
    assert found["skipped"] is False
    assert found["as_guessed"] in (True, None)


def test_the_accuracy_is_that_of_the_test_images_alone(session):
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()
    for number, text in enumerate(("0ZLA", "YTX5", "C0KD", "XLTZ", "9GG2", "USCQ")):
        label(session, number, text)
    accuracy = session.progress()["accuracy"]
    assert (accuracy["right"], accuracy["images"]) == (1, 1)
    assert accuracy["interval"][0] < 1


def test_a_damaged_image_is_shown_with_its_problem_and_comes_last(folder, tmp_path):
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:200])
    session = LabelSession(folder, PRETRAINED, LabelOptions(out=tmp_path))
    session.store.first = []
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()
    order = []
    while (number := session.next_number()) is not None:
        order.append(number)
        label(session, number, "X")
    assert (order[-1], "2.png" in session.guesser.problems[2]) == (2, True)
    assert (session.guesser.guess(2).text, session.guesser.guess(2).confidence) == ("", 0.0)
