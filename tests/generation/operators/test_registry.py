"""The table of operators, and what is true for all of them."""

import random
import warnings

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.generation.designs.design import OPERATOR_MODULES
from captcha_ocr.generation.operators.registry import COMMON, OPERATORS
from captcha_ocr.generation.operators.values import Number, Word

MARK_FIELDS = {"color", "opacity", "behind", "color_per_item", "per_glyph"}  # the renderer's own


@pytest.fixture
def run(area, pixels, square):
    """What runs an operator on arrays that cannot be written to, and checks what it returns."""
    inputs = {
        "shape": (),
        "corners": (Image.fromarray(square), (30, 40)),
        "stroke": (square,),
        "layout": (area.length,),
        "under": (np.pad(square, ((0, 0), (24, 24))),),
        "pixels": (pixels,),
    }
    size = area.height, area.width
    shapes = {"shape": (4,), "layout": (area.length,), "warp": (2, *size), "pixels": (*size, 3)}
    types = {"shape": "float64", "layout": "float64", "warp": "float32"}

    def run_and_check(operator, values):
        rng = random.Random(1)
        values = {name: kind.draw_default(rng) for name, kind in operator.fields.items()} | values
        own = {name: value for name, value in values.items() if name not in MARK_FIELDS}
        result = operator.function(*inputs.get(operator.stage, (area,)), rng, **own)
        for array in result if isinstance(result, list) else [np.asarray(result)]:
            assert array.dtype == types.get(operator.stage, "uint8")
            assert np.isfinite(array).all()
            if operator.stage == "stroke":
                assert len({*array.shape}) == 1
                assert len(array) - len(square) in range(0, 100, 2)
            elif operator.stage != "corners":
                assert array.shape == shapes.get(operator.stage, size)
        return result

    return run_and_check


def test_both_ends_of_every_range_every_word_and_every_flag_give_a_result_of_the_right_kind(run):
    def list_values(kind):
        if isinstance(kind, Number):
            return kind.low, kind.high
        return kind.words if isinstance(kind, Word) else (False, True)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for operator in OPERATORS.values():
            for field in operator.fields.keys() - MARK_FIELDS:
                for value in list_values(operator.fields[field]):
                    run(operator, {field: value})


def test_the_same_random_state_gives_the_same_result(run):
    for operator in OPERATORS.values():
        first, second = (run(operator, {}) for _ in range(2))
        assert np.array_equal(first, second), operator.name


def test_every_operator_has_a_module_and_the_fields_of_its_stage():
    modules = {module.__name__ for module in OPERATOR_MODULES}
    for name, operator in OPERATORS.items():
        assert operator.name == operator.function.__name__ == name
        assert operator.function.__module__ in modules
        assert COMMON.get(operator.stage, {}).keys() <= operator.fields.keys()


def test_marks_of_several_items_alone_may_have_a_colour_for_each():
    colored = {name for name, operator in OPERATORS.items() if "color_per_item" in operator.fields}
    assert {"lines", "discs", "dots", "tiles"} <= colored
    assert not {"border", "gradient", "grid", "shadow", "blur"} & colored
