import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import invoke, naming, weights
from PIL import Image

from captcha_ocr import Reading, Recognizer
from captcha_ocr.data.labels import find_labels, read_labels
from captcha_ocr.errors import UsageError
from captcha_ocr.experiments import adaptation
from captcha_ocr.experiments.adaptation import (
    adapt,
    choose_labels,
    rank_readings,
)
from captcha_ocr.network.weights import mean_model, save_model
from captcha_ocr.options.adapting import AdaptOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import ReadingOptions

OUT = Path("runs/adapted")
ALONE = AdaptOptions(second="none", quiet=True)
ON_CPU = ReadingOptions(device="cpu", threads=1)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch, short_runs, torch_threads):
    """Two rounds of one epoch, of which the second has the mean of both."""
    monkeypatch.setattr(adaptation, "_RECIPE", replace(adaptation._RECIPE, epochs=1))
    monkeypatch.setattr(adaptation, "MOST_ROUNDS", 2)
    monkeypatch.setattr(adaptation, "_AVERAGED", 2)
    monkeypatch.setattr(adaptation, "_SETTLED", 2)


@pytest.fixture
def unlabelled(four_digits) -> Path:
    """The same images without a label, one of them damaged."""
    folder = Path("unlabelled")
    folder.mkdir()
    for number, path in enumerate(sorted(four_digits.glob("*.png"))):
        shutil.copy(path, folder / f"{number}.png")
    (folder / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return folder


def texts_in(table: Path) -> dict[str, str]:
    return {label.file: label.text for label in read_labels(table)[0]}


def interrupting(function, call):
    """A function that is interrupted when it is called so often."""
    left = list(range(1, call))

    def called(*arguments, **settings):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return function(*arguments, **settings)

    return called


def read(text: str, confidence: float) -> Reading:
    return Reading(text, confidence)


def test_what_both_read_alike_ranks_first_and_what_no_text_can_be_last():
    readings = {"alike": read("1+2=", 0.1), "denied": read("1+3=", 0.7), "alone": read("1+5=", 0.6)}
    readings["no sum"] = read("1345", 0.9)
    others = dict.fromkeys(readings, read("", 0.0))
    others |= {"alike": read("1+2=", 0.1), "denied": read("1+8=", 0.9)}
    first = rank_readings(readings, others, is_first=True, form=r"\d\+\d=")
    assert sorted(first, key=first.get) == ["denied", "no sum", "alone", "alike"]
    later = rank_readings(readings, others, is_first=False)
    assert sorted(later, key=later.get) == ["alone", "denied", "no sum", "alike"]


def test_a_few_are_labels_even_if_none_is_sure():
    unsure = {str(number): number / 100 for number in range(20)}
    assert choose_labels(unsure, sure=0.5, fewest=3) == ["19", "18", "17"]
    assert len(choose_labels(unsure, sure=0.5)) == 10
    assert choose_labels(unsure, sure=0.17, fewest=1) == ["19", "18", "17"]


def test_a_folder_without_a_label_becomes_a_model_and_readings(unlabelled):
    adapted = adapt(unlabelled, ALONE, ON_CPU)
    assert len(adapted.rounds) == 2
    assert adapted.has_model
    assert (adapted.charset, adapted.lengths) == ("0123456789", "4")
    assert adapted.second_reader is None
    rounds = [OUT / f"round-{number}" / "run" / "best" for number in (1, 2)]
    save_model(Path("mean"), mean_model(rounds[::-1]), {})
    assert weights(Path("mean")) == weights(OUT / "best")
    with (OUT / "readings.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    confidences = [float(row["confidence"]) for row in rows]
    assert confidences == sorted(confidences)
    assert len(rows) == 60
    found = Recognizer(OUT, device="cpu").predict(unlabelled / rows[0]["filename"])
    assert found.text == rows[0]["text"]
    assert (OUT / "least-sure.png").stat().st_size > 0


def test_an_adaptation_that_is_interrupted_again_and_again_ends_with_the_same_bits(
    unlabelled, monkeypatch
):
    adapt(unlabelled, ALONE, ON_CPU)
    whole = weights(OUT / "best")
    shutil.rmtree(OUT)
    for name, call in [("prepare", 1), ("train", 1), ("save_model", 1), ("train", 2)]:
        with monkeypatch.context() as patch:
            patch.setattr(adaptation, name, interrupting(getattr(adaptation, name), call))
            with pytest.raises(KeyboardInterrupt):
                adapt(unlabelled, ALONE, ON_CPU)
    adapt(unlabelled, ALONE, ON_CPU)
    assert weights(OUT / "best") == whole


def test_labels_that_are_given_are_learnt_first_and_those_of_a_test_set_never(
    unlabelled, four_digits, monkeypatch
):
    monkeypatch.setattr(adaptation, "_ENOUGH_LABELS", 10)
    truths = [label.text for label in find_labels(four_digits).labels]
    given = {f"{number}.png": truths[number] for number in range(10)} | {"3.png": "A0000"}
    rows = "".join(f"{file},{text},train\n" for file, text in given.items())
    Path("some.csv").write_text(f"filename,text,split\n20.png,{truths[20]},test\n{rows}")
    adapted = adapt(unlabelled, replace(ALONE, labels=Path("some.csv")), ON_CPU)
    assert (adapted.charset, adapted.lengths) == ("0123456789A", "4-5")
    assert texts_in(OUT / "round-0" / "labels.csv") == given
    learnt = texts_in(OUT / "round-1" / "labels.csv")
    assert given.items() <= learnt.items()
    assert "20.png" not in learnt
    assert given.items() <= texts_in(OUT / "readings.csv").items()


def test_what_is_no_label_is_told(unlabelled, capsys, monkeypatch):
    monkeypatch.setattr(adaptation, "MOST_ROUNDS", 1)
    Path("some.csv").write_text("filename,text\n0.png,0000\ngone.png,1111\ndamaged.png,2222\n")
    options = AdaptOptions(second="none", labels=Path("some.csv"))
    adapt(unlabelled, options, ON_CPU)
    told = capsys.readouterr().err
    assert "left out   gone.png: some.csv" in told
    assert "left out   damaged.png: " in told
    assert "of which 1 have labels" in told
    Path("some.csv").write_text("filename,text,confidence\n0.png,0000,0.5\n")
    adapt(unlabelled, replace(options, force=True), ON_CPU)
    told = capsys.readouterr().err
    assert "left out   0.png: a model's reading" in told
    assert "of which 0 have labels" in told


@pytest.mark.parametrize(
    ("told", "named"), [({"lengths": Lengths(4, 4)}, "lengths"), ({"charset": "012"}, "charset")]
)
def test_labels_that_contradict_what_is_told_are_refused(unlabelled, told, named):
    Path("some.csv").write_text("filename,text\n0.png,A0000\n")
    with pytest.raises(UsageError, match=naming("0.png", named)):
        adapt(unlabelled, replace(ALONE, labels=Path("some.csv")), replace(ON_CPU, **told))


def test_an_adaptation_that_has_ended_is_not_repeated_unless_it_gets_more_time(
    unlabelled, monkeypatch
):
    adapted = adapt(unlabelled, ALONE, ON_CPU)
    table = OUT / "readings.csv"
    table.write_text("corrected")
    assert adapt(unlabelled, ALONE, ON_CPU) == adapted
    assert table.read_text() == "corrected"
    adapt(unlabelled, replace(ALONE, budget=ALONE.budget + 1), ON_CPU)
    assert table.read_text() != "corrected"
    monkeypatch.setattr(adaptation, "train", interrupting(adaptation.train, 1))
    with pytest.raises(KeyboardInterrupt):
        adapt(unlabelled, replace(ALONE, force=True), replace(ON_CPU, lengths=Lengths(4, 4)))
    assert not table.exists()
    assert not (OUT / "best").exists()


def test_another_adaptation_is_replaced_only_if_that_is_wanted(unlabelled):
    adapt(unlabelled, ALONE, ON_CPU)
    (unlabelled / "1.png").unlink()
    with pytest.raises(UsageError, match=naming(OUT, "images", "`out`", "`force`")):
        adapt(unlabelled, ALONE, ON_CPU)
    mine = OUT / "round-trips" / "mine.txt"
    mine.parent.mkdir()
    mine.touch()
    adapt(unlabelled, replace(ALONE, force=True), ON_CPU)
    assert "1.png" not in texts_in(OUT / "readings.csv")
    assert mine.exists()


def test_adapt_writes_neither_over_other_files_nor_among_the_images(unlabelled):
    kept = Path("kept") / "readings.csv"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(UsageError, match=naming("kept", kept.name, "`out`")):
        adapt(unlabelled, replace(ALONE, out=kept.parent, force=True), ON_CPU)
    for inside in (unlabelled, unlabelled / "adapted"):
        with pytest.raises(UsageError, match=naming("`out`", inside, unlabelled)):
            adapt(unlabelled, replace(ALONE, out=inside), ON_CPU)


def test_too_few_images_without_a_label_are_refused(unlabelled, four_digits):
    with pytest.raises(UsageError, match=naming(four_digits, "0", "10")):
        adapt(four_digits, ALONE, ON_CPU)  # labels.csv in the folder counts
    for path in sorted(unlabelled.iterdir())[40:]:
        path.unlink()
    with pytest.raises(UsageError, match=naming(unlabelled, "40", "50")):
        adapt(unlabelled, ALONE, ON_CPU)
    with pytest.raises(UsageError, match=naming("nowhere")):
        adapt(Path("nowhere"), ALONE, ON_CPU)


def test_where_nothing_is_read_surely_labels_are_the_way():
    noise = Path("noise")
    noise.mkdir()
    for number in range(50):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 60), dtype=np.uint8)
        Image.fromarray(pixels).save(noise / f"{number}.png")
    refused = invoke("adapt", noise, "--second=none", "--device=cpu", "--threads=1")
    assert refused.exit_code == 2
    assert f"label {noise}" in refused.stderr


def test_no_accuracy_is_expected_of_several_designs_nor_of_few_sure_readings(
    unlabelled, monkeypatch
):
    monkeypatch.setattr(adaptation, "MOST_ROUNDS", 1)
    for number in range(20):
        path = unlabelled / f"{number}.png"
        Image.open(path).resize((80, 60)).save(path)
    adapted = adapt(unlabelled, ALONE, ON_CPU)
    assert "80x60" in adapted.doubt
    assert adapted.expectation is None
    monkeypatch.setattr(adaptation, "_FEWEST_SURE", 1.1)
    adapted = adapt(unlabelled, replace(ALONE, force=True), ON_CPU)
    assert "sure" in adapted.doubt
    assert adapted.has_model


def test_no_model_is_kept_of_rounds_that_read_other_texts_each_time(unlabelled, monkeypatch):
    monkeypatch.setattr(adaptation, "measure_agreement", lambda *_: 0.7)
    done = invoke("adapt", unlabelled, "--second=none", "--device=cpu", "--threads=1", "--json")
    facts = json.loads(done.stdout)
    assert (facts["has_model"], facts["expected"]) == (False, None)
    assert f"label {unlabelled}" in done.stderr
    assert not (OUT / "best").exists()
    assert len(texts_in(OUT / "readings.csv")) == 60


def test_images_that_have_nothing_in_common_are_refused(unlabelled, monkeypatch):
    monkeypatch.setattr(adaptation, "_NO_LENGTH", 0)
    monkeypatch.setattr(adaptation, "_NO_CHARSET", 0.01)
    with pytest.raises(UsageError, match=naming(unlabelled, "nothing in common")):
        adapt(unlabelled, ALONE, ON_CPU)


def test_a_second_reader_that_reads_something_else_is_left_out(unlabelled, monkeypatch):
    monkeypatch.setattr(adaptation, "MOST_ROUNDS", 1)
    rows = [f"unlabelled/{number}.png,QWERTZ,0.99\n" for number in range(60)]
    Path("theirs.csv").write_text("filename,text,confidence\n" + "".join(rows))
    done = invoke(
        "adapt", unlabelled, "--second=theirs.csv", "--device=cpu", "--threads=1", "--json"
    )
    assert json.loads(done.stdout)["second_reader"] is None
    assert "theirs.csv, left out" in done.stderr


def test_a_table_of_another_program_is_a_second_reader(unlabelled, four_digits):
    texts = [label.text for label in find_labels(four_digits).labels]
    rows = [f"unlabelled/{number}.png,{text},1\n" for number, text in enumerate(texts)]
    Path("theirs.csv").write_text("filename,text,confidence\n" + "".join(rows[:50]))
    adapted = adapt(unlabelled, replace(ALONE, second="theirs.csv"), ON_CPU)
    assert adapted.second_reader == "theirs.csv"
    learnt = texts_in(OUT / "round-1" / "labels.csv")
    agreed = {file: text for file, text in learnt.items() if int(file.partition(".")[0]) < 50}
    assert agreed.items() <= {f"{n}.png": text for n, text in enumerate(texts)}.items()
    Path("theirs.csv").write_text("filename,text,confidence\n" + "".join(rows[:40]))
    with pytest.raises(UsageError, match=naming(OUT, "another")):
        adapt(unlabelled, replace(ALONE, second="theirs.csv"), ON_CPU)


def test_the_command_prints_its_result_and_eval_reads_with_the_model(unlabelled):
    done = invoke("adapt", unlabelled, "--second=none", "--device=cpu", "--threads=1", "--json")
    facts = json.loads(done.stdout)
    assert (facts["out"], facts["lengths"]) == (str(OUT), "4")
    assert facts["expected_low"] < facts["expected"] < facts["expected_high"]
    assert "in common  texts of 4 of the characters 0123456789" in done.stderr
    assert str(OUT / "best") in invoke("eval", unlabelled / "0.png").stderr
