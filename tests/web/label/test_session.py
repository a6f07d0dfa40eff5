import json
import re

from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.serving import LabelOptions
from captcha_ocr.web.label.session import LabelSession


def label(session, number, text):
    return session.save(number, text, session.store.entries[number].version)


def guess_all(session):
    session.guesser.start(session.open_numbers())
    session.guesser.worker.join()


def test_the_held_out_images_come_first_then_the_least_sure_then_a_damaged_one(folder, tmp_path):
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:200])
    session = LabelSession(folder, PRETRAINED, LabelOptions(out=tmp_path))
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
    session.seen.update("0ZLAYTX5C0KD9GG2USCQ" * 9)  # all but those of image 3, XLTZ
    session.seen["X"] = session.seen["L"] = session.seen["T"] = session.seen["Z"] = 0
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
    assert session.next_commands() == []


def test_the_accuracy_is_that_of_the_test_images_alone(session):
    guess_all(session)
    for number, text in enumerate(("0ZLA", "YTX5", "C0KD", "XLTZ", "9GG2", "USCQ")):
        label(session, number, text)
    accuracy = session.progress()["accuracy"]
    assert (accuracy["right"], accuracy["images"]) == (1, 1)
    assert accuracy["interval"][0] < 1
