from functools import cache

import numpy as np
import pytest
from conftest import naming
from PIL import Image

from captcha_ocr.errors import ImageError
from captcha_ocr.generation.designs.design import design_names
from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.generation.looks import NEAR, SAMPLE, compare_look, describe_look, find_designs
from captcha_ocr.options.drawing import DrawingOptions


@cache
def draw(design, count=12, **options):
    drawer = drawer_of(plan_drawing(DrawingOptions(design=design, seed=5, **options)))
    return [np.asarray(drawer.draw(index).image) for index in range(count)]


def test_every_named_design_is_found_by_its_drawings():
    nearest = {name: compare_look(describe_look(draw(name))) for name in design_names()}
    assert {*design_names()} == {found.design for found in nearest["wave"]}
    first = [name for name, found in nearest.items() if found[0].design == name]
    assert len(first) >= 0.85 * len(nearest), nearest.keys() - {*first}
    for name, found in nearest.items():
        assert name in [each.design for each in found[:3]]
        assert found[0].distance <= found[1].distance
        assert found[0].is_near == (found[0].distance <= NEAR)
    assert np.mean([found[0].is_near for found in nearest.values()]) > 0.9


def test_most_random_designs_look_like_no_named_one():
    near = 0
    for seed in range(20):
        drawer = drawer_of(
            plan_drawing(DrawingOptions(design="random", random_designs=1, seed=seed))
        )
        images = [np.asarray(drawer.draw(index).image) for index in range(12)]
        near += compare_look(describe_look(images))[0].is_near
    assert near <= 7


def test_a_look_is_the_means_and_deviations_of_numbers_of_each_image():
    once, twice = describe_look(draw("wave")[:1]), describe_look(draw("wave")[:1] * 2)
    assert np.array_equal(once, twice)
    half = len(once) // 2
    assert not once[half:].any()
    assert once[:2].tolist() == np.log2([200, 70]).round(3).tolist()
    assert np.abs(describe_look(draw("wave"))[half:]).min() >= 0


@pytest.mark.parametrize("size", [(1, 1), (2, 7), (300, 1)])
def test_images_of_any_size_and_one_colour_have_a_look(size):
    look = describe_look([np.zeros((*size, 3), np.uint8)])
    assert np.isfinite(look).all()
    assert compare_look(look)


def test_a_folder_is_looked_at_through_a_sample_of_its_readable_images(tmp_path):
    names = [f"{number:03}.png" for number in range(3 * SAMPLE)]
    for name in names[:-1]:
        (tmp_path / name).write_bytes(b"no image")
    Image.fromarray(draw("wave")[0]).save(tmp_path / names[0])
    assert find_designs(tmp_path, names) == compare_look(describe_look(draw("wave")[:1]))
    with pytest.raises(ImageError, match=naming(str(tmp_path))):
        find_designs(tmp_path, names[1:])
