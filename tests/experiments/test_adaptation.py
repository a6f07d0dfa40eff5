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
from captcha_ocr.experiments.adaptation import Adapted, Round, adapt, choose_labels
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.options.adapting import AdaptOptions
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import ReadingOptions

OUT = Path("runs/adapted")
ALONE = AdaptOptions(second="none", quiet=True)
ON_CPU = ReadingOptions(device="cpu", threads=1)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch, short_runs, torch_threads):
    """Two rounds of one epoch."""
    monkeypatch.setattr(adaptation, "_RECIPE", replace(adaptation._RECIPE, epochs=1))
    monkeypatch.setattr(adaptation, "_MOST_ROUNDS", 2)
    monkeypatch.setattr(adaptation, "_SETTLED", 2)


@pytest.fixture(scope="session")
def labelled(make_once) -> Path:
    """60 captchas of four digits, with labels.csv. Read only."""
    captchas = DrawingOptions(count=60, lengths=Lengths(4, 4), charset="digits")
    return make_once("four-digits", lambda folder: generate(plan_drawing(captchas), folder, 1))


@pytest.fixture
def unlabelled(labelled) -> Path:
    """The same images without a label, one of them damaged."""
    folder = Path("unlabelled")
    folder.mkdir()
    for number, path in enumerate(sorted(labelled.glob("*.png"))):
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


def test_what_both_read_alike_is_a_label_then_what_is_read_surely():
    surely, unsurely = read("ab", 0.7), read("cd", 0.4)
    readings = {"alike": unsurely, "denied": surely, "alone": surely, "unsure": unsurely}
    others = {"alike": read("CD", 0.1), "denied": read("ax", 0.9)}
    others |= dict.fromkeys(("alone", "unsure"), read("", 0.0))
    first = choose_labels(readings, others, is_first=True, fewest=1)
    assert first == {"alike": "cd", "alone": "ab"}
    later = choose_labels(readings, others, is_first=False, fewest=1)
    assert list(later) == ["alike", "denied", "alone"]


def test_a_few_are_labels_even_if_none_is_sure():
    unsure = {str(number): read("ab", number / 100) for number in range(20)}
    nothing = dict.fromkeys(unsure, read("", 0.0))
    assert list(choose_labels(unsure, nothing, is_first=True, fewest=3)) == ["19", "18", "17"]
    assert len(choose_labels(unsure, nothing, is_first=True)) == 10


def test_a_folder_without_a_label_becomes_a_model_and_readings(unlabelled):
    adapted = adapt(unlabelled, ALONE, ON_CPU)
    assert len(adapted.rounds) == 2
    assert adapted.best in adapted.rounds
    assert (adapted.charset, adapted.lengths) == ("0123456789", "4")
    assert adapted.second_reader is None
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
    for name, call in [("prepare", 1), ("train", 1), ("copy_model", 1), ("train", 2)]:
        with monkeypatch.context() as patch:
            patch.setattr(adaptation, name, interrupting(getattr(adaptation, name), call))
            with pytest.raises(KeyboardInterrupt):
                adapt(unlabelled, ALONE, ON_CPU)
    adapt(unlabelled, ALONE, ON_CPU)
    assert weights(OUT / "best") == whole


def test_labels_that_are_given_are_learnt_first_and_images_held_out_never(
    unlabelled, labelled, monkeypatch
):
    monkeypatch.setattr(adaptation, "_ENOUGH_LABELS", 10)
    truths = [label.text for label in find_labels(labelled).labels]
    given = {f"{number}.png": truths[number] for number in range(10)} | {"3.png": "A0000"}
    rows = "".join(f"{file},{text}\n" for file, text in given.items())
    Path("some.csv").write_text("filename,text\n" + rows)
    adapted = adapt(unlabelled, replace(ALONE, labels=Path("some.csv")), ON_CPU)
    assert (adapted.charset, adapted.lengths) == ("0123456789A", "4-5")
    assert texts_in(OUT / "round-0" / "labels.csv") == given
    learnt = texts_in(OUT / "round-1" / "labels.csv")
    assert given.items() <= learnt.items()
    assert len(learnt) <= 60 - 5


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


def test_too_few_images_without_a_label_are_refused(unlabelled, labelled):
    with pytest.raises(UsageError, match=naming(labelled, "0", "50")):
        adapt(labelled, replace(ALONE, labels=labelled / "labels.csv"), ON_CPU)
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


def test_what_learnt_from_few_sure_readings_is_doubted():
    done = Round(1, 60, 0.9, 5.0)
    doubtful = Adapted([done], done, "0123456789", "4", None, sure=0.1)
    assert doubtful.is_doubtful
    assert not replace(doubtful, sure=0.3).is_doubtful


def test_a_table_of_another_program_is_a_second_reader(unlabelled, labelled):
    texts = [label.text for label in find_labels(labelled).labels]
    rows = [f"unlabelled/{number}.png,{text},0.9\n" for number, text in enumerate(texts)]
    Path("theirs.csv").write_text("filename,text,confidence\n" + "".join(rows[:50]))
    adapted = adapt(unlabelled, replace(ALONE, second="theirs.csv"), ON_CPU)
    assert adapted.second_reader == "theirs.csv"
    learnt = texts_in(OUT / "round-1" / "labels.csv")
    agreed = {file: text for file, text in learnt.items() if int(file.partition(".")[0]) < 50}
    assert agreed.items() <= {f"{n}.png": text for n, text in enumerate(texts)}.items()


def test_the_command_prints_its_result_and_eval_reads_with_the_model(unlabelled):
    done = invoke("adapt", unlabelled, "--second=none", "--device=cpu", "--threads=1", "--json")
    facts = json.loads(done.stdout)
    assert (facts["out"], facts["lengths"]) == (str(OUT), "4")
    assert facts["expected"] == facts["best"]["expected"]
    assert "in common  texts of 4 of the characters 0123456789" in done.stderr
    assert str(OUT / "best") in invoke("eval", unlabelled / "0.png").stderr
