"""Every `next:` line, and every command in advice and in messages, works as it stands."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import QUIET, invoke

from captcha_ocr.cli.advice import Origin, advice
from captcha_ocr.cli.commands.training import choose_config
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.scores import score_texts
from captcha_ocr.training.run.folder import Finished
from captcha_ocr.training.run.spec import RunSpec
from captcha_ocr.training.train import train

pytestmark = pytest.mark.usefixtures("short_runs")
DRAW = "generate --length 2 --charset digits --size 48x16 --font-sizes 14 --workers 1"
TRAIN = "train --preset tiny --device cpu"


def run(command: str | list[str]):
    """Run a command line, which must succeed."""
    words = shlex.split(command) if isinstance(command, str) else command
    result = invoke(*words, input="")
    assert result.exit_code == 0, (words, result.stderr)
    return result


def find_commands(text: str) -> list[list[str]]:
    """Return the commands in a text, each to the end of its clause, without the program's name."""
    commands = re.findall(r"captcha-ocr ((?:[a-z]+)(?: (?:'[^']*'|[^;,()\s])+)*)", text)
    return [shlex.split(command) for command in commands]


def find_next(result) -> list[str]:
    """Return the command of the line `next:`."""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("next: ")]
    assert line.startswith("next: captcha-ocr ")
    return shlex.split(line)[2:]


@pytest.fixture
def raw(images) -> Path:
    """Images whose names hold no text, a table beside the folder, and corrections."""
    Path("my raw").mkdir()
    table = "filename,text\n"
    for number, path in enumerate(sorted(images.glob("*.png"))):
        name = f"img_{number:04}.png"
        shutil.copy(path, Path("my raw", name))
        table += f"{name},{path.stem.partition('-')[2]}\n"
    Path("x y.csv").write_text(table)
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
    words = find_next(run(command))
    assert [word for word in words if word in expected] == expected
    run([*words, "--epochs", "1", "--device", "cpu"] if words[0] == "train" else words)


@pytest.fixture
def trained(raw) -> None:
    """Shards of the images, and a run of one epoch."""
    run(f"prepare 'my raw' {LABELS} --preset tiny")
    run(f"{TRAIN} --epochs 1")


OF_WHAT_IS_TRAINED = [
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
        # Lengths that this model does not read
        f"inspect 'my raw' {LABELS} --model runs/default --length 1-2",
        ["eval", "--model", "--out"],
    ),
    (
        f"prepare 'my raw' {LABELS} --preset tiny --out other --seed 5",
        ["train", "--out", "runs/default-2"],
    ),
    (f"prepare 'my raw' {LABELS} --preset tiny", ["train", "--preset=tiny"]),
]


def test_the_next_command_of_what_is_trained_works_with_that_model(trained):
    for command, expected in OF_WHAT_IS_TRAINED:
        words = find_next(run(command))
        assert [word for word in words if word in expected] == expected, command
        has_length = any(word.startswith("--length") for word in words)
        assert has_length == ("--length=2" in expected), command
        assert ("--out" in words) == ("--out" in expected), command
        run(words)


def test_the_next_command_asks_for_images_that_are_gone_and_names_a_model_that_the_variable_hides(
    trained, monkeypatch
):
    shutil.rmtree("my raw")
    assert find_next(run(f"{TRAIN} --epochs 1")) == ["eval", "--device=cpu"]
    monkeypatch.setenv("CAPTCHA_OCR_MODEL", "pretrained")
    words = find_next(run(f"{TRAIN} --epochs 1"))
    assert words == ["eval", "--model", "runs/default", "--device=cpu"]
    assert "runs/default" in run(words).stderr


CORRECTED = f"prepare 'my raw' {LABELS} --corrections fix.csv --preset tiny"
DRAWN = f"{DRAW.removeprefix('generate')} --count 60"


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("prepare data/images", DRAWN),
        ("inspect 'not there'", DRAWN),
        ("train --data data/shards --cross-validate --preset tiny", ""),
        ("train --data data/fold-shards --cross-validate --preset tiny", ""),
        ("train --preset seed", ""),
        ("curve 'my raw'", f"{LABELS} --out others"),
    ],
)
def test_a_command_in_a_message_works(raw, command, more):
    run(CORRECTED)
    if "fold-shards" in command:
        run(f"{CORRECTED} --folds 3 --out data/fold-shards")
        shutil.rmtree("data/fold-shards/fold-2")
    result = invoke(*shlex.split(command))
    assert result.exit_code == 2
    (words,) = find_commands(result.stderr.splitlines()[-1])
    assert ("fix.csv" in words) == command.startswith("train")
    run([*words, *shlex.split(more)])


def score(exact: int, wrong: str) -> dict:
    """Return the scores of 200 images of AB, the others read as `wrong`."""
    return score_texts(["AB"] * 200, ["AB"] * exact + [wrong] * (200 - exact)).summary()


GUESSING, OVERFITTING, LEARNING = ((0, 0, "XX"), (200, 150, "AX"), (100, 98, "AX"))
# Of a run its scores, options and epochs, and what the advice names or not; whether its commands
# are run, which takes seconds. `tiny` takes 2 epochs for 48 images, and early stopping is 3.
RUNS = [
    (GUESSING, {}, 2, "inspect", "--epochs", True),
    (GUESSING, {"epochs": 1}, 1, "--epochs 2|continue", "inspect|labels", False),
    (GUESSING, {"epochs": 9}, 9, "inspect", "--epochs", False),
    (LEARNING, {}, 2, "--epochs 4|continue", "--init", False),
    (LEARNING, {"epochs": 1}, 1, "--epochs 2|continue|1 of the 2", "overfitting", False),
    (LEARNING, {"epochs": 5}, 4, "--patience 6|--epochs 5|again", "continue", True),
    (
        LEARNING,
        {"epochs": 1, "learning_rate": 1e-3, "seed": 3, "loss": "ce"},
        1,
        "--lr 0.001|--seed 3",
        "--init",
        True,
    ),
    (LEARNING, {"epochs": 1, "images": 20}, 1, "--images 20|--epochs 5", "--init", False),
    (LEARNING, {"init": PRETRAINED}, 2, "--epochs 4|--init pretrained", "overfitting", False),
    (
        LEARNING,
        {"init": PRETRAINED, "epochs": 1},
        1,
        "--epochs 2|--init pretrained",
        "--lr",
        True,
    ),
    (OVERFITTING, {}, 2, "curve|--preset few|--init pretrained", "--epochs", True),
    (
        OVERFITTING,
        {"epochs": 1},
        1,
        "--epochs 2|continue|1 of the 2",
        "overfitting|--preset few",
        False,
    ),
    (
        OVERFITTING,
        {"seed": 3, "batch_size": 8},
        2,
        "few --batch-size 8 --seed 3|--seed 3 --init",
        "--epochs",
        False,
    ),
    (OVERFITTING, {"augment": True}, 2, "curve|--init pretrained", "--preset few", False),
    (OVERFITTING, {"init": PRETRAINED}, 2, "curve|--preset few", "take --init", False),
]


@pytest.mark.parametrize(("kind", "options", "epochs", "named", "unnamed", "is_run"), RUNS)
def test_advice_knows_what_the_run_was_and_its_commands_work(
    raw, kind, options, epochs, named, unnamed, is_run
):
    run(f"prepare 'my raw' {LABELS} --size 48x16 --channels 1 --out 'my shards'")
    chosen = {"augment": False, **options, "preset": "tiny"}
    init = chosen.pop("init", None)
    config = choose_config([], init, chosen)
    if is_run:
        begun = replace(config, epochs=min(epochs, 2))
        train([Path("my shards")], Path("my run"), begun, replace(QUIET, init=init))
    dataset = read_dataset([Path("my shards")])
    exact, validated, wrong = kind
    ended = Finished(
        "a rule", epochs, epochs, 1.0, score(exact, wrong), score(validated, wrong), None
    )
    given = {"device": "cpu", "init": None if init is None else "pretrained"}
    origin = Origin(dataset, Path("my run"), given)
    (sentence,) = advice(ended, RunSpec.of(dataset, config, init), origin)
    assert all(name in sentence for name in named.split("|")), sentence
    assert not any(name in sentence for name in unnamed.split("|")), sentence
    for words in find_commands(sentence) if is_run else []:
        if words[0] == "curve":
            words += ["--images", "20", "--epochs", "1"]
        if "few" in words or (words[0] == "train" and "--preset" not in words):
            words += ["--epochs", "1"]
        run(words)
