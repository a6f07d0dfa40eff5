import random

from captcha_ocr.generation.designs.design import parse_design
from captcha_ocr.generation.random_designs.disturbances import (
    add_background,
    add_camera,
    add_marks,
    add_under,
    add_warps,
    mark_fields,
)
from captcha_ocr.generation.random_designs.draft import DesignDraft


def draft(seed, disturb=1.0, hollow=False, light=(200, 220)):
    made = DesignDraft(random.Random(seed), disturb)
    made.canvas["color"] = {"hue": 0, "saturation": 0, "luminance": list(light)}
    made.text |= {"spacing": [0, 0.1], "color_per_glyph": seed % 2 == 0}
    made.hollow = hollow
    return made


def test_every_disturbance_is_a_valid_operator():
    for add in (add_background, add_under, add_marks, add_warps, add_camera):
        kinds = set()
        for seed in range(150):
            made = draft(seed)
            add(made)
            parse_design({"canvas": made.canvas, "operators": made.operators}, add.__name__)
            kinds |= {step["kind"] for step in made.operators}
        assert len(kinds) > 4, add.__name__


def test_without_disturbances_nothing_lies_over_the_text():
    for seed in range(50):
        made = draft(seed, disturb=0)
        add_marks(made)
        assert made.operators == []


def test_what_shows_hollow_letters_is_far_from_the_canvas():
    for light, is_far in (
        ((200, 220), lambda low, high: high <= 110),
        ((10, 20), lambda low, high: low >= 100),
    ):
        for seed in range(30):
            made = draft(seed, hollow=True, light=light)
            add_under(made)
            assert made.operators
            assert all(is_far(*step["color"]["luminance"]) for step in made.operators)


def test_hollow_letters_stand_on_a_flat_background():
    for seed in range(50):
        made = draft(seed, disturb=0, hollow=True)
        add_background(made)
        assert made.operators == []


def test_only_items_with_a_colour_of_their_own_differ():
    for seed in range(100):
        fields = mark_fields(draft(seed), behind=0.5, items=True)
        assert "color_per_item" not in fields or fields["color"] != "text"
