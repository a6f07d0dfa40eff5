import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from captcha.image import DEFAULT_FONTS
from conftest import invoke

from captcha_ocr.cli.commands.training import choose_config
from captcha_ocr.options.declaration import words
from captcha_ocr.options.training import DrawOptions

pytestmark = pytest.mark.usefixtures("short_runs")


def test_folds_are_trained_on_one_by_one_and_their_tests_pooled(images):
    options = ["--folds", 2, "--out", "folds", "--size", "48x16", "--workers", 1, "--json"]
    made = json.loads(invoke("prepare", images, *options).stdout)
    assert [made[split] for split in ("train", "val", "test")] == [27, 3, 30]
    options = ["--preset", "tiny", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    result = invoke("train", "--cross-validate", "--data", "folds", *options)
    assert json.loads(result.stdout)["test"]["images"] == 60


def test_curve_says_what_it_would_take(shards, tmp_path):
    options = ["--images", "10,20", "--epochs", 1, "--device", "cpu", "--quiet", "--json"]
    found = json.loads(invoke("curve", shards, "--out", tmp_path / "curve", *options).stdout)
    assert [point["images"] for point in found["points"]] == [10, 20]
    assert [line.split("%")[0] for line in found["outlook"]] == ["exact match 95", "exact match 99"]
    assert (tmp_path / "curve" / "curve.png").exists()


def test_few_images_train_from_the_model_in_the_package_and_both_commands_say_so(images):
    assert "finetune" in invoke("prepare", images, "--out", "shards", "--workers", 1).stderr
    options = ["--data", "shards", "--epochs", 1, "--images", 10, "--device", "cpu", "--out", "run"]
    result = invoke("train", *options)
    assert result.exit_code == 0, result.stderr
    assert "preset finetune" in result.stderr
    assert "weights    from the one in the package" in result.stderr
    again = invoke("train", *options, "--preset", "few", "--force")
    assert "weights" not in again.stderr


def test_train_draws_its_images_and_computes_with_the_wanted_threads(drawings, torch_threads):
    options = [
        *words(replace(drawings, repeat=1).given()),
        "--preset",
        "tiny",
        "--epochs",
        1,
        "--device",
        "cpu",
        "--out",
        "run",
    ]
    result = invoke("train", *options, "--threads", 2, "--json")
    facts = json.loads(result.stdout)
    assert (facts["epochs"], facts["test"]["images"]) == (1, 6)
    assert "2 threads" in result.stderr
    assert "next: captcha-ocr eval --model run --device=cpu --threads=2\n" in result.stderr
    assert "of 6 drawings" in invoke("train", *options).stdout
    refused = invoke("train", *options, "--repeat", 3, "--case-sensitive")
    assert refused.exit_code == 2
    assert "--repeat: 1 -> 3" in refused.stderr
    assert "--case-sensitive: False -> True" in refused.stderr


TINY_RUN = ["--preset", "tiny", "--epochs", 1, "--device", "cpu", "--json"]


def test_train_takes_a_folder_of_images_and_goes_on_with_its_shards(images):
    first, again = (invoke("train", images, *TINY_RUN) for _ in range(2))
    facts = json.loads(first.stdout)
    assert (facts["test"]["images"], facts["out"]) == (6, "runs/default")
    assert "next: captcha-ocr eval" in first.stderr
    assert "finished" in again.stderr
    shutil.copytree(images, "more")
    lines = Path("more", "labels.csv").read_text().splitlines(True)
    Path("more", "labels.csv").write_text("".join(lines[:50]))
    other = invoke("train", "more", *TINY_RUN)
    assert all(name in other.stderr for name in ("runs/default/shards", "--out", "--force"))


@pytest.mark.parametrize(("rows", "confidence"), [(60, "0.5"), (60, ""), (1, "1"), (30, "99 %")])
def test_readings_are_no_labels_until_somebody_says_so(images, rows, confidence):
    shutil.copytree(images, "mine")
    lines = Path("mine", "labels.csv").read_text().splitlines()[1:]
    table = [f"{line},{confidence}" for line in lines[:rows]] + [
        f"{line}," for line in lines[rows:]
    ]
    Path("mine", "labels.csv").write_text("\n".join(["filename,text,confidence", *table]))
    for command in (["prepare", "mine"], ["train", "mine"]):
        refused = invoke(*command)
        assert refused.exit_code == 2
        assert all(name in refused.stderr for name in ("confidence", "--readings", "60 texts"))
    assert invoke("prepare", "mine", "--readings", "--preset", "tiny").exit_code == 0
    result = invoke("train", *TINY_RUN)
    assert json.loads(result.stdout)["test"]["against"] == "readings"
    assert json.loads(Path("runs/default/run.json").read_text())["finished"]["test"]["against"]
    assert "agreement with a model's readings" in invoke("train", *TINY_RUN[:-1]).stdout
    scored = invoke("eval", "--labels", "mine/labels.csv", "--json")
    assert json.loads(scored.stdout.splitlines()[-1])["summary"]["against"] == "readings"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--repeat", 2], ["--repeat", "--draw"]),
        (["--length", 2], ["--length", "--draw"]),
        (["--size", "48x16"], ["--size", "--draw"]),
        (["--case-sensitive"], ["--case-sensitive", "--draw"]),
        (["--fonts", DEFAULT_FONTS[0]], ["--fonts", "--draw"]),
        (["--draw", "captcha", "--data", "shards"], ["--draw", "--data"]),
        (["--draw", "captcha", "--stream"], ["--draw", "--stream"]),
        (["--draw", "captcha", "--cross-validate"], ["--draw", "--cross-validate"]),
        (["--draw", "captcha", "--images", 0], ["--images"]),
        (["--draw", "nothing"], ["nothing", "captcha"]),
    ],
)
def test_options_that_would_do_nothing_are_refused_by_name(options, named):
    result = invoke("train", *options)
    assert result.exit_code == 2
    assert all(name in result.stderr for name in named)


@pytest.mark.parametrize(
    ("images", "repeat", "preset"),
    [(20_000, 4, "default"), (1000, 10, "few"), (1000, 1, "default")],
)
def test_the_number_of_different_drawings_selects_the_preset(images, repeat, preset):
    for epochs in (None, 1):
        drawn = DrawOptions(images=images, repeat=repeat)
        assert choose_config(drawn, None, {"epochs": epochs}).preset == preset


@pytest.mark.parametrize(
    ("options", "init", "preset"),
    [
        ({"designs": ("kaptcha",)}, None, "finetune"),
        ({"designs": ("captcha", "mine.toml")}, None, "finetune"),
        ({"designs": ("captcha", "random:easy", "captcha-classic", "a.jsonl")}, None, "default"),
        ({"designs": ("kaptcha",)}, Path("runs/other"), "default"),
        ({"designs": ("kaptcha",), "size": (48, 16)}, None, "default"),
        ({"designs": ("kaptcha",), "channels": 1}, None, "default"),
    ],
)
def test_drawings_that_imitate_captchas_are_learnt_from_the_model_in_the_package(
    options, init, preset
):
    assert choose_config(DrawOptions(**options), init, {}).preset == preset
    assert choose_config(DrawOptions(**options), init, {"preset": "few"}).preset == "few"
