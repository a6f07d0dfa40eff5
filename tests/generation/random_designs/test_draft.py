import random
from collections import Counter
from itertools import product

import numpy as np
import pytest

from captcha_ocr.generation.designs.design import parse_design
from captcha_ocr.generation.random_designs.draft import (
    WARP_CHANCES,
    Chance,
    DesignDraft,
    add_background,
    add_camera,
    add_marks,
    add_under,
    mark_fields,
)


def draft(seed, disturb=1.0, hollow=False, light=(200, 220)):
    made = DesignDraft(random.Random(seed), disturb)
    made.canvas["color"] = {"hue": 0, "saturation": 0, "luminance": list(light)}
    made.text |= {"spacing": [0, 0.1], "color_per_glyph": seed % 2 == 0}
    made.hollow = hollow
    return made


@pytest.mark.parametrize(
    "add",
    [
        add_background,
        add_under,
        add_marks,
        lambda made: made.add_some(WARP_CHANCES),
        add_camera,
    ],
)
def test_every_disturbance_is_a_valid_operator(add):
    kinds = set()
    for seed in range(80):
        made = draft(seed)
        add(made)
        parse_design({"canvas": made.canvas, "operators": made.operators}, "it")
        kinds |= {step["kind"] for step in made.operators}
    assert len(kinds) > 4


def test_without_disturbances_nothing_lies_over_the_text_and_hollow_letters_stand_on_a_flat_one():
    for seed in range(50):
        plain, hollow = draft(seed, disturb=0), draft(seed, disturb=0, hollow=True)
        add_marks(plain)
        add_background(hollow)
        assert plain.operators == hollow.operators == []


def test_what_shows_hollow_letters_is_far_from_the_canvas():
    for seed, (light, lowest, highest) in product(
        range(30), (((200, 220), 0, 110), ((10, 20), 100, 255))
    ):
        made = draft(seed, hollow=True, light=light)
        add_under(made)
        ranges = [step["color"]["luminance"] for step in made.operators]
        assert lowest <= np.min(ranges) <= np.max(ranges) <= highest
        assert (np.diff(ranges) >= 0).all()


def test_only_items_with_a_colour_of_their_own_differ():
    for seed in range(100):
        fields = mark_fields(draft(seed), behind=0.5, items=True)
        assert "color_per_item" not in fields or fields["color"] != "text"


def test_a_draft_draws_ranges_in_order_and_disturbances_as_likely_as_its_level_says():
    made = DesignDraft(random.Random(1), 0.5)
    ranges = [part for _ in range(50) for part in (made.part(-0.5, 0.5), made.whole_part(3, 9))]
    assert ranges == [*map(sorted, ranges)]
    counts = Counter()
    for _ in range(1000):
        made.operators.clear()
        made.add_some([Chance("blur", 0.5, lambda made: {"sigma": made.number(1, 2)})])
        made.add_some([Chance("smooth", 0.5, lambda made: {}, disturbs=False)])
        made.add_one([Chance("thin", 0.2, lambda made: {}), Chance("pits", 0.3, lambda made: {})])
        counts.update(step["kind"] for step in made.operators)
    expected = {"blur": 250, "smooth": 500, "thin": 200, "pits": 300}
    assert counts == pytest.approx(expected, abs=50)
