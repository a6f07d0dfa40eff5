"""Every `next:` line, and every command in advice and in messages, works as it stands."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import QUIET, invoke

from captcha_ocr.cli.advice import Origin, advice
from captcha_ocr.data.prepare import PrepareOptions, prepare
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.scores import score_texts
from captcha_ocr.training.run.folder import Finished
from captcha_ocr.training.run.spec import RunSpec

DRAW = "generate --length 2 --charset digits --size 48x16 --font-sizes 14 --workers 1"
TRAIN = "train --preset tiny --device cpu"


def run(command: str | list[str]):
    """Run a command line, which must succeed."""
    words = shlex.split(command) if isinstance(command, str) else command
    result = invoke(*words, input="")
    assert result.exit_code == 0, (words, result.stderr)
    return result


def commands_in(text: str) -> list[list[str]]:
    """The commands in a text, each to the end of its clause, without the program's name."""
    found = re.findall(r"captcha-ocr ((?:[a-z]+)(?: (?:'[^']*'|[^;,()\s])+)*)", text)
    return [shlex.split(each) for each in found]


def following(result) -> list[str]:
    """The command of the line `next:`."""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("next: ")]
    program, *words = shlex.split(line.removeprefix("next: "))
    assert program == "captcha-ocr"
    return words


@pytest.fixture
def raw(images) -> Path:
    """Images whose names hold no text, a table beside the folder, and corrections."""
    Path("my raw").mkdir()
    rows = [line.split(",") for line in (images / "labels.csv").read_text().splitlines()[1:]]
    for number, (file, _) in enumerate(rows):
        shutil.copy(images / file, f"my raw/img_{number:04}.png")
    table = [f"img_{number:04}.png,{text}" for number, (_, text) in enumerate(rows)]
    Path("x y.csv").write_text("\n".join(["filename,text", *table]) + "\n")
    Path("fix.csv").write_text("filename,text\nimg_0000.png,\n")
    return Path("my raw")


LABELS = "--labels 'x y.csv'"


@pytest.mark.parametrize(
    ("before", "command", "expected"),
    [
        ("", f"{DRAW} --count 60 --out new", ["prepare", "new", "--workers=1"]),
        ("", f"{DRAW} --count 60", ["prepare", "--workers=1"]),
        ("", f"{DRAW} --count 3 --out new", ["eval", "new"]),  # too few to prepare
        (
            "",
            f"{DRAW.replace('digits', '7')} --count 9 --out new",
            ["eval", "new"],
        ),  # nothing to learn
        (f"prepare 'my raw' {LABELS}", f"{DRAW} --count 60 --out new", ["--out", "data/shards-2"]),
        ("", f"inspect 'my raw' {LABELS}", ["prepare", "my raw", "--labels=x y.csv"]),
        (
            "",
            f"inspect 'my raw' {LABELS} --corrections fix.csv --length 1-2 --charset digits",
            ["--length=1-2"],
        ),
        (
            "",
            "inspect 'my raw' --label-pattern '[0-9]{2}(?=.png)' --case-sensitive",
            ["--case-sensitive"],
        ),
        (
            f"prepare 'my raw' {LABELS}",
            f"inspect 'my raw' {LABELS} --max-bytes 99999",
            ["--max-bytes=99999", "--out", "data/shards-2"],
        ),
        (
            "",
            f"prepare 'my raw' {LABELS} --preset tiny --out 'a b'",
            ["train", "--data", "a b", "--preset=tiny"],
        ),
        ("", f"prepare 'my raw' {LABELS} --preset tiny --folds 2", ["train", "--cross-validate"]),
        ("", f"prepare 'my raw' {LABELS} --preset tiny --split 5/90/5", ["train"]),
    ],
)
def test_the_next_command_has_the_options_that_were_given(raw, before, command, expected):
    if before:
        run(before)
    words = following(run(command))
    assert [word for word in words if word in expected] == expected
    run([*words, "--epochs", "1", "--device", "cpu"] if words[0] == "train" else words)


@pytest.fixture
def trained(raw, monkeypatch) -> Path:
    """Shards of the images, and a run of one epoch."""
    run(f"prepare 'my raw' {LABELS} --preset tiny")
    run(f"{TRAIN} --epochs 1")
    return Path("runs/default")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"{TRAIN} --epochs 1", ["eval", "my raw/img_0000.png", "--device=cpu"]),
        (
            f"{TRAIN} --epochs 1 --out 'b c'",
            ["eval", "my raw/img_0000.png", "--model", "b c", "--device=cpu"],
        ),
        (
            "curve --images 20 --epochs 1 --init runs/default",
            ["eval", "--model", "runs/curve/images-20"],
        ),
        (
            "inspect 'my raw' --labels 'x y.csv' --model runs/default --device cpu",
            ["eval", "my raw", "--out"],
        ),
        (
            "inspect 'my raw' --labels 'x y.csv' --model pretrained",
            ["eval", "my raw", "--model", "pretrained", "--out"],
        ),
        (
            f"inspect 'my raw' {LABELS} --model runs/default --charset 0123456789 --length 2",
            ["eval", "--model", "--out", "--charset=0123456789", "--length=2"],
        ),
        (
            f"inspect 'my raw' {LABELS} --model runs/default --length 1-2",  # which that model does not read
            ["eval", "--model", "--out"],
        ),
        (
            "inspect unlabelled --charset digits --length 2",
            ["eval", "--out", "--charset=digits", "--length=2"],
        ),
        (
            f"prepare 'my raw' {LABELS} --preset tiny --out other --seed 5",
            ["train", "--out", "runs/default-2"],
        ),
        (f"prepare 'my raw' {LABELS} --preset tiny", ["train", "--preset=tiny"]),
    ],
)
def test_the_next_command_of_what_is_trained_works_with_that_model(trained, command, expected):
    Path("unlabelled").mkdir()
    shutil.copy("my raw/img_0000.png", "unlabelled/img-a-1.png")
    words = following(run(command))
    assert [word for word in words if word in expected] == expected
    assert any(word.startswith("--length") for word in words) == ("--length=2" in expected)
    assert ("--out" in words) == ("--out" in expected)
    run(words)


def test_where_the_images_are_gone_the_next_command_asks_for_a_path_and_names_the_model_that_the_variable_hides(
    trained, monkeypatch
):
    shutil.rmtree("my raw")
    assert following(run(f"{TRAIN} --epochs 1")) == ["eval", "--device=cpu"]
    monkeypatch.setenv("CAPTCHA_OCR_MODEL", "pretrained")
    words = following(run(f"{TRAIN} --epochs 1"))
    assert words == ["eval", "--model", "runs/default", "--device=cpu"]
    assert "runs/default" in run(words).stderr


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("prepare data/images", 2),
        ("inspect 'not there'", 2),
        ("train --data data/shards --cross-validate --preset tiny", 2),
        ("train --data data/fold-shards --cross-validate --preset tiny", 2),
        ("train --preset seed", 2),
        ("curve 'my raw'", 2),
    ],
)
def test_a_command_in_a_message_works(raw, command, status):
    run(f"prepare 'my raw' {LABELS} --corrections fix.csv --preset tiny")
    if "fold-shards" in command:
        run(
            f"prepare 'my raw' {LABELS} --corrections fix.csv --preset tiny --folds 3 --out data/fold-shards"
        )
        shutil.rmtree("data/fold-shards/fold-2")
    result = invoke(*shlex.split(command))
    assert result.exit_code == status
    (words,) = commands_in(result.stderr.splitlines()[-1])
    assert ("fix.csv" in words) == command.startswith("train")
    if words[0] == "generate":
        words += [*shlex.split(DRAW)[1:], "--count", "60"]
    if command == "curve 'my raw'":
        words += ["--labels", "x y.csv", "--out", "others"]
    run(words)


def ended(
    trained: int, validated: int, epochs: int, images: int = 200, wrong: str = "AX"
) -> Finished:
    """Return the end of a run that reads some images exactly, and `wrong` instead of AB from the others."""

    def score(exact):
        return score_texts(["AB"] * images, ["AB"] * exact + [wrong] * (images - exact)).summary()

    return Finished("a rule", epochs, epochs, 1.0, score(trained), score(validated), None)


GUESSING, OVERFITTING, LEARNING = ((0, 0, "XX"), (200, 150, "AX"), (100, 98, "AX"))


@pytest.mark.parametrize(
    (
        "kind",
        "options",
        "epochs",
        "named",
        "unnamed",
    ),  # tiny takes 2 epochs for 48 images, and early stopping is 3
    [
        (GUESSING, {}, 2, ["inspect"], ["--epochs"]),
        (GUESSING, {"epochs": 1}, 1, ["--epochs 2", "continue"], ["inspect", "labels"]),
        (GUESSING, {"epochs": 9}, 9, ["inspect"], ["--epochs"]),
        (LEARNING, {}, 2, ["--epochs 4", "continue"], ["--init"]),
        (LEARNING, {"epochs": 1}, 1, ["--epochs 2", "continue", "1 of the 2"], []),
        (LEARNING, {"epochs": 9}, 4, ["--patience 6", "--epochs 9", "again"], ["continue"]),
        (
            LEARNING,
            {"epochs": 1, "learning_rate": 1e-3, "seed": 3, "loss": "ce"},
            1,
            ["--lr 0.001", "--seed 3"],
            [],
        ),
        (LEARNING, {"epochs": 1, "images": 20}, 1, ["--images 20", "--epochs 5"], []),
        (LEARNING, {"init": "pretrained"}, 2, ["--epochs 4", "--init pretrained"], []),
        (
            LEARNING,
            {"init": "pretrained", "epochs": 1},
            1,
            ["--epochs 2", "--init pretrained"],
            ["--lr"],
        ),
        (OVERFITTING, {}, 2, ["curve", "--preset few", "--init pretrained"], ["--epochs"]),
        (
            OVERFITTING,
            {"epochs": 1},
            1,
            ["--epochs 2", "continue", "1 of the 2"],
            ["overfitting", "--preset few"],
        ),
        (
            OVERFITTING,
            {"seed": 3, "batch_size": 8},
            2,
            ["few --batch-size 8 --seed 3", "--seed 3 --init"],
            [],
        ),
        (OVERFITTING, {"augment": True}, 2, ["curve", "--init pretrained"], ["--preset few"]),
        (OVERFITTING, {"init": "pretrained"}, 2, ["curve", "--preset few"], ["take --init"]),
    ],
)
def test_advice_knows_what_the_run_was_and_its_commands_work(
    raw, kind, options, epochs, named, unnamed
):
    from captcha_ocr.cli.commands.training import choose_config
    from captcha_ocr.inference.model_folder import PRETRAINED
    from captcha_ocr.training.train import train

    labels = PrepareOptions(labels_file=Path("x y.csv"), workers=1)
    prepare(raw, Path("my shards"), PrepareConfig(size=(48, 16), channels=1), labels)
    init = PRETRAINED if "init" in options else None
    given = {name: value for name, value in options.items() if name not in ("init", "augment")}
    augment = options.get("augment", False)
    config = choose_config([], init, {**given, "preset": "tiny", "augment": augment})
    how = replace(QUIET, init=init)
    begins = replace(config, epochs=min(epochs, 2))
    finished = train([Path("my shards")], Path("my run"), config if epochs < 3 else begins, how)
    dataset = read_dataset([Path("my shards")])
    origin = Origin(dataset, Path("my run"), how)
    exact, validated, wrong = kind
    (sentence,) = advice(
        ended(exact, validated, epochs, wrong=wrong), RunSpec.of(dataset, config, init), origin
    )
    assert all(name in sentence for name in named), sentence
    assert not any(name in sentence for name in unnamed), sentence
    assert finished.epochs >= 1
    for words in commands_in(sentence):
        if words[0] == "curve":
            words += ["--images", "20", "--epochs", "1"]
        if "few" in words or (words[0] == "train" and "--preset" not in words):
            words += ["--epochs", "1"]
        run(words)
