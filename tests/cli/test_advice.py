import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from conftest import QUIET, TINY, amend

from captcha_ocr.charset import Charset
from captcha_ocr.cli.advice import Origin, advice, advice_on_run, read_origin
from captcha_ocr.data.shards import read_dataset
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.training import PRESETS, TrainConfig
from captcha_ocr.scores import score_texts
from captcha_ocr.training.run.folder import Finished, read_run
from captcha_ocr.training.run.spec import RunSpec
from captcha_ocr.training.samples.dataset import DrawnData
from captcha_ocr.training.train import train


def finished(trained: int, validated: int, images: int = 200, wrong: str = "AX") -> Finished:
    """Return the end of a run that reads some images exactly.

    From the others it reads `wrong` instead of AB.
    """

    def score(exact):
        return score_texts(["AB"] * images, ["AB"] * exact + [wrong] * (images - exact)).summary()

    return Finished("all epochs done", 7, 7, 1.0, score(trained), score(validated), None)


@pytest.fixture
def dataset(shards):
    return read_dataset([shards])


@pytest.mark.parametrize(
    "end", [finished(200, 199), finished(200, 192), finished(196, 198), finished(10, 9, images=10)]
)
def test_a_good_run_gets_no_advice(end, dataset):
    assert advice(end, RunSpec.of(dataset, PRESETS["default"].training)) == []


def test_an_alphabet_of_two_characters_is_not_guessed_where_nearly_all_are_right(dataset):
    spec = RunSpec.of(dataset, PRESETS["default"].training)
    spec = replace(spec, model=replace(spec.model, charset=Charset("AB")))
    assert advice(finished(200, 199), spec) == []
    assert "guessing" in advice(finished(110, 100, wrong="BA"), spec)[0]


@pytest.mark.parametrize(
    ("end", "changes", "named"),
    [
        (
            finished(0, 0, wrong="XX"),
            {},
            ["0.0%", "--patience 40", "--out"],
        ),  # early stopping after 7 of 100 epochs
        (
            finished(0, 0, wrong="XX"),
            {"schedule": "constant", "preset": "seed"},
            ["0.0%", "labels"],
        ),
        (
            finished(200, 150),
            {},
            ["100.0%", "75.0%", "with --preset few and", "with --init pretrained and", "--out"],
        ),
        (
            finished(200, 150),
            {"epochs": 7},
            ["100.0%", "75.0%", "7 of the 100 epochs", "with --epochs 100"],
        ),
        (
            finished(100, 98),
            {"epochs": 7},
            ["50.0%", "--epochs 100", "the command that began this run"],
        ),
        (finished(100, 98), {"epochs": 8}, ["50.0%", "--patience 40", "--out"]),
    ],
)
def test_without_its_origin_a_run_gets_advice_without_commands(end, changes, named, dataset):
    spec = RunSpec.of(dataset, TrainConfig(**changes))
    origin = Origin(dataset, Path("out"), processes=2)  # nor for torchrun
    for (sentence,) in (advice(end, spec), advice(end, spec, origin)):
        assert all(name in sentence for name in named), sentence
        assert "captcha-ocr train" not in sentence


def test_what_does_not_fit_or_cannot_be_measured_is_not_advised(dataset):
    spec = RunSpec.of(dataset, PRESETS["default"].training)
    narrow = replace(spec, model=replace(spec.model, lengths=Lengths(2, 20)))
    (sentence,) = advice(finished(200, 150), narrow, Origin(dataset, Path("out")))
    assert "few" not in sentence
    assert "pretrained" not in sentence
    untested = replace(spec, images={**spec.images, "test": 0})
    assert (
        "captcha-ocr curve"
        not in advice(finished(200, 150), untested, Origin(dataset, Path("out")))[0]
    )


def test_a_command_has_the_options_that_the_specification_does_not_hold(dataset):
    options = {"device": "cpu", "keep_every": 2, "stream": True, "tensorboard": True, "threads": 3}
    spec = RunSpec.of(dataset, replace(PRESETS["tiny"].training, epochs=7))
    (sentence,) = advice(finished(100, 98), spec, Origin(dataset, Path("my out"), options))
    assert sentence.endswith(
        f"captcha-ocr train --data {dataset.folders[0]} --out 'my out' --preset tiny --epochs 14 "
        "--keep-every 2 --stream --tensorboard --device cpu --threads 3"
    )


@pytest.mark.parametrize(
    ("end", "repeat", "draws", "more"),
    [
        (finished(200, 150), 2, "--images 24 --repeat 1", "--repeat 1"),
        (finished(200, 150), 1, "--images 48 --repeat 1", "--images 48"),
        (finished(100, 98), 2, "--images 24 --repeat 2", "--patience 14"),
        (finished(0, 0, wrong="XX"), 2, "--images 24 --repeat 2", "--patience 14"),
    ],
)
def test_a_run_that_draws_is_to_draw_more_or_to_train_longer(end, repeat, draws, more, drawings):
    dataset = DrawnData.of(replace(drawings, repeat=repeat), PRESETS["default"].training)
    spec = RunSpec.of(dataset, PRESETS["default"].training)
    (sentence,) = advice(end, spec, Origin(dataset, Path("out")))
    longer = f" {more}" if "patience" in more else ""
    assert sentence.endswith(
        f"captcha-ocr train --draw captcha --length 2 --charset digits {draws} --workers 1 "
        f"--out out --preset default{longer}"
    )
    (without,) = advice(end, spec, Origin(dataset, Path("out"), processes=2))
    assert "captcha-ocr train" not in without
    assert f"with {more} and another --out" in without


def test_drawings_that_were_guessed_in_all_epochs_have_no_wrong_labels(drawings):
    config = PRESETS["default"].training
    spec = RunSpec.of(DrawnData.of(drawings, config), replace(config, epochs=200))
    (sentence,) = advice(replace(finished(0, 0, wrong="XX"), epochs=200), spec)
    assert "--epochs 400" in sentence
    assert "labels" not in sentence


@pytest.mark.usefixtures("short_runs")
def test_the_origin_of_a_finished_run_on_drawings_is_found(drawings, tmp_path):
    train(drawings, tmp_path / "run", replace(TINY.training, epochs=1), QUIET)
    spec, ended = read_run(tmp_path / "run")
    assert ended is not None
    options = {"init": None, "device": "cpu", "threads": None}
    options |= {"stream": False, "keep_every": None, "tensorboard": False}
    expected = Origin(DrawnData.of(drawings, spec.training), tmp_path / "run", options)
    assert read_origin(tmp_path / "run", spec) == expected


def test_advice_on_a_finished_run_has_its_shards_and_options_unless_the_shards_are_gone(
    shards, run, tmp_path
):
    copied = shutil.copytree(run, tmp_path / "my run")
    document = json.loads((copied / "run.json").read_bytes())
    spec, ended = RunSpec.from_dict(document), finished(100, 98)
    assert document["given"] == {
        **{"data": [str(shards)], "init": None, "device": "cpu", "threads": None},
        **{"stream": False, "keep_every": None, "tensorboard": False},
    }
    assert advice_on_run(copied / "best") == []
    given = document["given"] | {"init": "pretrained", "threads": 2}
    amend(copied / "run.json", finished=asdict(ended), given=given)
    options = {"device": "cpu", "init": "pretrained", "threads": 2}
    assert advice_on_run(copied) == advice(
        ended, spec, Origin(read_dataset([shards]), copied, options)
    )
    assert all(
        word in advice_on_run(copied)[0]
        for word in ("--init pretrained", "--threads 2", str(shards))
    )
    for changes in (
        {"given": given | {"data": [str(tmp_path)]}},
        {"given": None},
        {"data": "others"},
    ):
        amend(copied / "run.json", **{"given": given, "data": spec.data, **changes})
        assert "captcha-ocr" not in advice_on_run(copied)[0]
    amend(copied / "run.json", finished=None)
    assert advice_on_run(copied) == []
