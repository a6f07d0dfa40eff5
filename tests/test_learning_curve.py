import json
import re

import pytest

from captcha_ocr.errors import UsageError
from captcha_ocr.learning_curve import Point, fit, learning_curve, outlook


def numbers_in(sentences):
    """The numbers that each sentence names."""
    return [re.findall(r"\d[\d,]*", sentence) for sentence in sentences]


def test_the_law_that_made_the_points_is_found():
    points = [Point(n, round(10**6 * (1 - 4 * n**-0.5)), 10**6) for n in (100, 300, 1000, 3000)]
    law = fit(points)
    assert (law.factor, law.power) == (pytest.approx(4, rel=0.01), pytest.approx(0.5, rel=0.01))
    assert law.images_for(0.99) == pytest.approx(160_000, rel=0.05)
    assert law.exact_match(10_000) == pytest.approx(0.96, abs=0.001)


@pytest.mark.parametrize(
    "points",
    [
        [Point(100, 90, 100)],
        [Point(100, 1, 100), Point(300, 90, 100)],  # the first has not begun to learn
        [Point(100, 90, 100), Point(300, 80, 100)],
        [Point(100, 90, 100), Point(300, 90, 100)],
    ],
    ids=["one", "one that learns", "worse", "the same"],
)
def test_points_without_a_law_have_none(points):
    assert fit(points) is None
    assert numbers_in(outlook(points)) == [["95"], ["99"]]


def test_the_outlook_names_what_was_reached_and_what_it_would_take():
    points = [Point(n, round(10**6 * (1 - 4 * n**-0.5)), 10**6) for n in (1000, 3000, 10_000)]
    assert numbers_in(outlook(points)) == [["95", "10,000"], ["99", "150,000"]]


def test_nothing_is_said_of_what_lies_too_far():
    points = [Point(n, round(10**6 * (1 - n**-0.06)), 10**6) for n in (100, 300, 1000)]
    assert numbers_in(outlook(points))[1] == ["99"]


def test_a_curve_has_a_run_for_every_number_of_images(shards, tiny_preset, tmp_path):
    def recipe(number):
        return tiny_preset.training.with_options(epochs=1, images=number)

    points = learning_curve(shards, tmp_path, recipe, (20, 10), quiet=True, device_name="cpu")
    assert [(point.images, point.tested) for point in points] == [(10, 6), (20, 6)]
    runs = [json.loads((tmp_path / f"images-{number}" / "run.json").read_bytes()) for number in (10, 20)]
    assert [run["training"]["images"] for run in runs] == [10, 20]
    assert " 20 " in (tmp_path / "images-20" / "best" / "README.md").read_text()
    assert json.loads((tmp_path / "curve.json").read_bytes())["points"][0]["images"] == 10
    assert (tmp_path / "curve.png").stat().st_size > 0


def test_by_default_the_last_number_is_that_of_all_images(shards, tiny_preset, tmp_path):
    def recipe(number):
        return tiny_preset.training.with_options(epochs=1, images=number)

    points = learning_curve(shards, tmp_path, recipe, quiet=True, device_name="cpu")
    assert [point.images for point in points] == [48]


def test_more_images_than_there_are_are_refused(shards, tiny_preset, tmp_path):
    with pytest.raises(UsageError, match=r"\b48\b"):
        learning_curve(shards, tmp_path, lambda number: tiny_preset.training.with_options(images=number), (49,))
