import json
import random

import pytest

from captcha_ocr.generation.designs.design import (
    design_names,
    kinds_of_fonts,
    parse_design,
    read_document,
)
from captcha_ocr.generation.fonts.catalogue import Face
from captcha_ocr.generation.fonts.survey import ALPHABET
from captcha_ocr.generation.random_designs.neighbour import draw_neighbour
from captcha_ocr.options.model import Lengths

OF_A_KIND = kinds_of_fonts()["sans-bold"][0]
NAMES = [OF_A_KIND, "b.ttf", "c.ttf", "d.ttf", "e.ttf", "f.ttf", "g.ttf"]
FAMILIES = [[Face(name, ALPHABET, (), False, f"/{name}", name, "00")] for name in NAMES]


def neighbours(count, **options):
    return [draw_neighbour(random.Random(seed), FAMILIES, **options) for seed in range(count)]


@pytest.fixture(scope="module")
def many():
    return neighbours(300)


def test_a_neighbour_is_a_design_that_survives_json_and_that_its_seed_repeats(many):
    texts = [json.dumps(document) for document in many]
    assert len({*texts}) > len(many) / 2
    assert neighbours(20) == many[:20]
    for text in texts:
        assert {*parse_design(json.loads(text), "it").faces} <= {*NAMES}


def test_half_of_the_neighbours_have_fonts_of_the_design_where_there_are_some(many):
    alone = [document["fonts"]["faces"] == [OF_A_KIND] for document in many]
    assert 0.05 < sum(alone) / len(many) < 0.5


def test_three_of_ten_are_the_named_design_itself_but_for_its_fonts(many):
    named = [read_document(name) | {"fonts": None} for name in design_names()]
    themselves = sum(document | {"fonts": None} in named for document in many)
    assert 0.2 < themselves / len(many) < 0.4


def test_every_named_design_comes_up_with_other_numbers():
    kaptcha, sizes = '"zigzag"', set()
    for document in neighbours(900):
        lines = [step for step in document["operators"] if step["kind"] == "lines"]
        if any(kaptcha in json.dumps(step["path"]) for step in lines):
            sizes.add(json.dumps(document["text"]["size"]))
    assert len(sizes) > 3
    assert len(design_names()) > 60


def test_the_canvas_is_wider_where_the_texts_are_longer():
    for document in neighbours(60, lengths=Lengths(12, 12)):
        width, height = document["canvas"]["width"], document["canvas"]["height"]
        if isinstance(width, int) and isinstance(height, int):
            assert width <= 6 * height


def test_a_charset_and_lengths_replace_those_that_would_be_drawn():
    for document in neighbours(100, charset="xyz", lengths=Lengths(2, 5)):
        texts = parse_design(document, "it").texts
        assert (texts.lengths, {*texts.charset} <= {*"xyzXYZ"}) == (Lengths(2, 5), True)
