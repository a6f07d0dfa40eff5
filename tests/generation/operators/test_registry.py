"""The table of operators, and what is true for all of them."""

import random
import warnings

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.generation.designs.design import OPERATOR_MODULES
from captcha_ocr.generation.operators.registry import COMMON, OPERATORS
from captcha_ocr.generation.operators.values import Color, Flag, Number, Word

MARK_FIELDS = {"color", "opacity", "behind", "color_per_item", "per_glyph"}  # the renderer's own
EDGES = [
    *(
        pytest.param(name, field, end, id=f"{name} {field} {end}")
        for name, operator in OPERATORS.items()
        for field, kind in operator.fields.items()
        if isinstance(kind, Number) and field not in MARK_FIELDS
        for end in (kind.low, kind.high)
    )
]


def inputs_of(stage, area, pixels, square):
    """What an operator of a stage works on, before its random generator."""
    return {
        "shape": (),
        "corners": (Image.fromarray(square), (30, 40)),
        "stroke": (square,),
        "layout": (area.length,),
        "under": (np.pad(square, ((0, 0), (24, 24))),),
        "pixels": (pixels,),
    }.get(stage, (area,))


def run(operator, values, inputs, seed=1):
    """What an operator makes with values for some of its fields, and the defaults of the others."""
    rng = random.Random(seed)
    drawn = {name: kind.draw_default(rng) for name, kind in operator.fields.items()} | values
    own = {name: value for name, value in drawn.items() if name not in MARK_FIELDS}
    return operator.function(*inputs, rng, **own)


def check_result(operator, result, inputs, area):
    """Check the type, the shape and the range of what an operator returns."""
    if operator.stage in ("shape", "layout"):
        assert np.shape(result) == {"shape": (4,), "layout": (area.length,)}[operator.stage]
        assert np.isfinite(result).all()
    elif operator.stage == "warp":
        assert (result.shape, result.dtype) == ((2, area.height, area.width), np.float32)
        assert np.isfinite(result).all()
    elif operator.stage == "corners":
        assert result.mode == "L"
    elif operator.stage == "stroke":
        assert result.dtype == np.uint8
        margins = {
            after - before for after, before in zip(result.shape, inputs[0].shape, strict=True)
        }
        assert len(margins) == 1
        assert min(margins) in range(0, 100, 2)
    else:
        masks = result if isinstance(result, list) else [result]
        shape = (
            (area.height, area.width, 3)
            if operator.stage == "pixels"
            else (area.height, area.width)
        )
        assert {(mask.shape, mask.dtype.name) for mask in masks} == {(shape, "uint8")}


@pytest.mark.parametrize(("name", "field", "end"), EDGES)
def test_both_ends_of_every_range_give_a_result_of_the_right_kind(
    name, field, end, area, pixels, square
):
    operator = OPERATORS[name]
    inputs = inputs_of(operator.stage, area, pixels, square)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_result(operator, run(operator, {field: end}, inputs), inputs, area)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_random_state_gives_the_same_result_and_the_input_stays(
    name, area, pixels, square
):
    operator = OPERATORS[name]
    inputs = inputs_of(operator.stage, area, pixels, square)  # arrays that cannot be written to
    for seed in range(3):
        first, second = (run(operator, {}, inputs, seed) for _ in range(2))
        check_result(operator, first, inputs, area)
        assert np.array_equal(first, second)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_word_and_flag_of_an_operator_works(name, area, pixels, square):
    operator = OPERATORS[name]
    inputs = inputs_of(operator.stage, area, pixels, square)
    for field, kind in operator.fields.items():
        options = (
            kind.words
            if isinstance(kind, Word)
            else (False, True)
            if isinstance(kind, Flag)
            else ()
        )
        for value in options if field not in MARK_FIELDS else ():
            check_result(operator, run(operator, {field: value}, inputs), inputs, area)


def test_every_operator_has_a_module_a_summary_and_the_fields_of_its_stage():
    modules = {module.__name__ for module in OPERATOR_MODULES}
    for name, operator in OPERATORS.items():
        assert operator.name == operator.function.__name__ == name
        assert operator.function.__module__ in modules
        assert operator.summary.endswith((".", ":")) or operator.summary
        assert COMMON.get(operator.stage, {}).keys() <= operator.fields.keys()
        assert all(
            isinstance(kind, (Color, Flag, Number, Word)) for kind in operator.fields.values()
        )


def test_marks_of_several_items_alone_may_have_a_colour_for_each():
    colored = {name for name, operator in OPERATORS.items() if "color_per_item" in operator.fields}
    assert {"lines", "discs", "dots", "tiles"} <= colored
    assert not {"border", "gradient", "grid", "shadow", "blur"} & colored
