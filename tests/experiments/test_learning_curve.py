import json
import re
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from conftest import QUIET, TINY, naming

from captcha_ocr.errors import UsageError
from captcha_ocr.experiments.learning_curve import (
    PLAN,
    POINTS,
    RESAMPLES,
    Point,
    fit_power_law,
    learning_curve,
    outlook,
    resampled_laws,
)
from captcha_ocr.options.training import TrainOptions
from captcha_ocr.training.train import train

LOUD = TrainOptions(device="cpu")


def recipe(number):
    return TINY.training.with_options(epochs=1, images=number)


def points_of(factor, power, numbers):
    """Points that follow a law, each measured with a million images."""
    return [
        Point(number, round(10**6 * (1 - factor * number**-power)), 10**6) for number in numbers
    ]


def numbers_in(sentences):
    """The numbers that each sentence names."""
    return [re.findall(r"\d[\d,]*", sentence) for sentence in sentences]


def test_the_law_behind_the_points_is_found():
    law = fit_power_law(points_of(4, 0.5, (100, 300, 1000, 3000)))
    assert (law.factor, law.power) == (pytest.approx(4, rel=0.01), pytest.approx(0.5, rel=0.01))
    assert law.images_for(0.99) == pytest.approx(160_000, rel=0.05)
    assert law.exact_match(10_000) == pytest.approx(0.96, abs=0.001)


@pytest.mark.parametrize("tested", [100, 10_000])
def test_the_law_is_less_certain_the_fewer_images_are_tested(tested):
    points = [
        Point(images, round(tested * (1 - 4 * images**-0.5)), tested)
        for images in (100, 1000, 10_000)
    ]
    expected = [law.exact_match(100_000) for law in resampled_laws(points)]
    assert len(expected) == RESAMPLES
    assert min(expected) < fit_power_law(points).exact_match(100_000) < max(expected)
    assert 0.05 < np.std(expected) * tested**0.5 < 1
    assert expected == [law.exact_match(100_000) for law in resampled_laws(points)]


@pytest.mark.parametrize(
    "points",
    [
        [Point(100, 1, 100), Point(300, 90, 100)],  # the first has not begun to learn
        [Point(100, 90, 100), Point(300, 80, 100)],
        [Point(100, 90, 100), Point(300, 90, 100)],
    ],
    ids=["one that learns", "worse", "the same"],
)
def test_points_without_a_law_have_no_outlook(points):
    assert fit_power_law(points) is None
    assert numbers_in(outlook(points)) == [["95"], ["99"]]


def test_the_outlook_names_what_was_reached_and_what_it_would_take_unless_that_is_too_far():
    assert numbers_in(outlook(points_of(4, 0.5, (1000, 3000, 10_000)))) == [
        ["95", "10,000"],
        ["99", "150,000"],
    ]
    assert numbers_in(outlook(points_of(1, 0.06, (100, 300, 1000))))[1] == ["99"]


@pytest.mark.parametrize(
    ("available", "counts"),
    [
        (48, [10, 30, 48]),
        (44, [10, 44]),
        (45, [10, 30, 45]),
        (31, [10, 31]),
        (15, [10, 15]),
        (14, [14]),
        (10, [10]),
    ],
)
def test_a_number_of_images_close_to_all_of_them_is_left_out(
    available, counts, shards, tmp_path, monkeypatch
):
    plan = Mock(side_effect=InterruptedError)
    monkeypatch.setattr("captcha_ocr.experiments.learning_curve.IMAGE_COUNTS", (10, 30, 100))
    monkeypatch.setattr("captcha_ocr.experiments.learning_curve.tell_plan", plan)
    monkeypatch.setattr("captcha_ocr.data.shards.Dataset.count", lambda self, split: available)
    with pytest.raises(InterruptedError):
        learning_curve(shards, tmp_path, recipe, (), LOUD)
    assert [config.images for config in plan.call_args.args[1]] == counts


def test_the_plan_comes_first_and_every_number_of_images_has_a_run(
    shards, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("captcha_ocr.experiments.learning_curve.IMAGE_COUNTS", (20, 100))
    for finished in ("", "finished"):  # finished runs take no time
        points = learning_curve(shards, tmp_path, recipe, (), LOUD)
        assert [(point.images, point.tested) for point in points] == [(20, 6), (48, 6)]
        lines = capsys.readouterr().err.splitlines()
        assert lines[0] == PLAN.header
        plan = [line.split()[:3] for line in lines[1:3]]
        assert plan == [["20", "1", "tiny"], ["48", "1", "tiny"]]  # up to all images
        assert all(line.endswith(finished) for line in lines[1:3])
        assert re.match(r"expected .* 2 runs$", lines[3])
        assert str(points[-1]) in lines
        assert all(len(line) <= 80 for line in (*lines[:4], POINTS.header, str(points[-1])))
        assert not any(line.startswith("advice") for line in lines)
    runs = [json.loads(path.read_bytes()) for path in sorted(tmp_path.glob("images-*/run.json"))]
    assert [run["training"]["images"] for run in runs] == [20, 48]
    assert " 20 " in (tmp_path / "images-20" / "best" / "README.md").read_text()
    assert json.loads((tmp_path / "curve.json").read_bytes())["points"][0]["images"] == 20
    assert (tmp_path / "curve.png").stat().st_size > 0
    assert learning_curve(shards, tmp_path, recipe, (48, 20, 48), QUIET) == points


@pytest.mark.usefixtures("short_runs")
def test_another_run_in_a_folder_is_refused_before_any_plan_or_training(shards, tmp_path, capsys):
    train([shards], tmp_path / "images-30", replace(recipe(30), batch_size=5), QUIET)
    for options in (LOUD, QUIET):
        names = naming(tmp_path / "images-30", "`batch_size`", "`force`")
        with pytest.raises(UsageError, match=names):
            learning_curve(shards, tmp_path, recipe, (20, 30), options)
        assert capsys.readouterr().err == ""
    assert not (tmp_path / "images-20").exists()
    learning_curve(shards, tmp_path, recipe, (30,), replace(QUIET, force=True))
