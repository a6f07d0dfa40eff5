"""The table of operators, what is true for all of them, and the values of their fields."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pytest
from conftest import naming
from PIL import Image

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import OPERATOR_MODULES
from captcha_ocr.generation.operators.registry import (
    COMMON,
    OPERATORS,
    Color,
    Flag,
    Letters,
    Number,
    Word,
    color_of_luminance,
    in_words,
    settle,
    show,
)

SHARE, COUNT = Number(0, 1, 0.5), Number(1, 9, (2, 4), "pixels", whole=True)
WORD, FLAG, COLOR = Word(("over", "under"), "over"), Flag(), Color("text")


def drawn(kind, value, times=200):
    """Many draws of a value."""
    draw, rng = kind.parse(value, "a.field"), random.Random(1)
    return [draw(rng) for _ in range(times)]


def light_of(rgb):
    """The luminance of a colour: ITU-R BT.601."""
    return np.dot((0.299, 0.587, 0.114), rgb)


def test_a_fixed_value_is_drawn_as_it_is_and_a_default_like_a_value():
    for kind, value, expected in (
        (SHARE, 0.25, 0.25),
        (SHARE, 1, 1),
        (SHARE, [0.5, 0.5], 0.5),
        (COUNT, 9, 9),
        (WORD, "under", "under"),
        (FLAG, True, True),
        (COLOR, "canvas", "canvas"),
        (COLOR, "#2f4F00", (47, 79, 0)),
        (COLOR, {"red": 7, "green": 0, "blue": {"one_of": [9]}}, (7, 0, 9)),
    ):
        assert set(drawn(kind, value)) == {expected}
    assert isinstance(drawn(COUNT, 9)[0], int)
    assert SHARE.draw_default(random.Random()) == 0.5
    assert COUNT.draw_default(random.Random(1)) in (2, 3, 4)


def test_a_range_is_filled_evenly_and_one_of_whole_numbers_has_both_ends():
    counts = Counter(drawn(COUNT, [2, 4], 3000))
    assert counts == pytest.approx({2: 1000, 3: 1000, 4: 1000}, abs=150)
    numbers = drawn(SHARE, (0.2, 0.6), 3000)
    assert 0.2 <= min(numbers) < 0.21 < 0.59 < max(numbers) <= 0.6
    assert np.mean(numbers) == pytest.approx(0.4, abs=0.01)


def test_one_of_draws_every_option_as_often_ranges_too():
    words = drawn(WORD, {"one_of": ["over", "under"]}, 1000)
    assert 400 < words.count("over") < 600
    numbers = drawn(SHARE, {"one_of": [0, [0.5, 0.6]]}, 1000)
    assert 400 < numbers.count(0) < 600
    assert all(0.5 <= number <= 0.6 for number in numbers if number)


def test_once_is_drawn_for_an_image_and_then_stays():
    number, rng = Number(0, 9, 0), random.Random(1)
    draw = number.parse({"once": {"one_of": [1, [5, 9]]}}, "it")
    images = [settle({"it": draw}, rng)["it"] for _ in range(50)]
    values = [image(rng) for image in images]
    assert [image(rng) for image in images] == values
    assert 1 in values
    assert len({*values}) > 10
    plain = number.parse([5, 9], "it")
    assert settle({"it": plain}, rng) == {"it": plain}


def test_colours_are_drawn_by_channel_or_by_luminance():
    assert {blue for _, _, blue in drawn(COLOR, {"red": 1}, 5000)} == set(range(256))
    lights = [light_of(rgb) for rgb in drawn(COLOR, {"luminance": [40, 90]})]
    assert 39 < min(lights) < 45 < 85 < max(lights) < 91


def test_a_colour_has_the_luminance_that_is_asked_for_and_the_hue_of_its_primary():
    lights = (0, 20, 128, 254, 255)
    for hue, saturation, luminance in product(range(-360, 361, 40), (0, 0.5, 1), lights):
        rgb = color_of_luminance(hue, saturation, luminance)
        assert all(0 <= channel <= 255 for channel in rgb)
        assert light_of(rgb) == pytest.approx(luminance, abs=0.51)
        assert saturation or max(rgb) == min(rgb)
    lights = {0: 76.245, 120: 149.685, 240: 29.07}
    primaries = [color_of_luminance(hue, 1, light) for hue, light in lights.items()]
    assert primaries == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        *(
            (SHARE, value, "0 to 1")
            for value in (2, -0.1, "x", None, True, [], [1], [0, 0, 1], [1, 0], [0, 2], {})
        ),
        *(
            (SHARE, value, "0 to 1")
            for value in (float("nan"), float("inf"), [0, float("nan")], [False, True])
        ),
        *((COUNT, value, "1 to 9 pixels") for value in (1.5, 0, [1, 2.5], [0, 1], [1, 10**5000])),
        *((WORD, value, "over or under") for value in ("Over", 1, [], ["over"], {"over": 1})),
        *((FLAG, value, "true or false") for value in (1, "true", None, [True])),
        *(
            (COLOR, value, "colour #2f4f4f")
            for value in ("red", "#fff", "#12345", "#gggggg", 5, [], {}, [1, 2, 3])
        ),
        *(
            (COLOR, value, "colour")
            for value in ({"red": 1, "hue": 2}, {"rot": 1}, {"red": 1, "opacity": 1})
        ),
        *((COLOR, {"red": value}, "a.field.red 255") for value in (256, -1, 0.5, "x", [9, 5])),
        (COLOR, {"hue": 361}, "a.field.hue 360 degrees"),
        *((SHARE, {"one_of": value}, "one_of") for value in ([], 5, {}, "ab")),
        (SHARE, {"one_of": [1], "low": 0}, "one_of low"),
        (SHARE, {"once": [0, 1], "low": 0}, "once alone low"),
        (SHARE, {"one_of": [1, 2]}, "0 to 1"),
        (SHARE, {"one_of": [{"one_of": [1]}]}, "one_of"),
    ],
)
def test_another_value_is_refused_by_the_name_of_the_field(kind, value, named):
    with pytest.raises(UsageError, match=naming("a.field", *named.split())) as refusal:
        kind.parse(value, "a.field")
    assert len(str(refusal.value)) < 250


def test_a_colour_that_cannot_be_a_word_does_not_offer_it():
    with pytest.raises(UsageError, match="field") as refusal:
        Color("#ffffff", words=()).parse("text", "field")
    assert '"canvas"' not in str(refusal.value)


def test_values_are_shown_as_in_toml_and_shortened():
    values = (True, "é", [1, 2.5], "x" * 100)
    assert [*map(show, values)] == ["true", '"é"', "[1, 2.5]", '"' + "x" * 56 + "..."]
    assert [*map(in_words, ("a", "ab", "abc"))] == ["a", "a or b", "a, b or c"]


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


@pytest.mark.filterwarnings("error")
def test_both_ends_of_every_range_every_word_and_every_flag_give_the_same_good_result_twice(run):
    for operator in OPERATORS.values():
        for field in operator.fields.keys() - MARK_FIELDS:
            kind = operator.fields[field]
            values = getattr(kind, "low", False), getattr(kind, "high", True)
            values = ("*", "ab") if isinstance(kind, Letters) else values
            for value in getattr(kind, "words", values):
                first, second = (run(operator, {field: value}) for _ in range(2))
                assert np.array_equal(first, second), operator.function


def test_every_operator_has_a_module_and_the_fields_of_its_stage():
    modules = {module.__name__ for module in OPERATOR_MODULES}
    for name, operator in OPERATORS.items():
        assert operator.function.__name__ == name
        assert operator.function.__module__ in modules
        assert COMMON.get(operator.stage, {}).keys() <= operator.fields.keys()


def test_marks_of_several_items_alone_may_have_a_colour_for_each():
    colored = {name for name, operator in OPERATORS.items() if "color_per_item" in operator.fields}
    assert {"lines", "discs", "dots", "tiles"} <= colored
    assert not {"border", "gradient", "grid", "shadow", "blur"} & colored
