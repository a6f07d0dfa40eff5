import json
import random
from itertools import chain

import pytest

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.generation.designs.design import ARITHMETIC, parse_design
from captcha_ocr.generation.fonts.catalogue import Face
from captcha_ocr.generation.fonts.survey import ALPHABET
from captcha_ocr.generation.operators.registry import OPERATORS
from captcha_ocr.generation.random_designs.random_design import (
    CASE_TWINS,
    MAX_WIDTH,
    draw_design,
)
from captcha_ocr.options.model import Lengths


def face(name, *look_alikes, family="A"):
    return Face(family, ALPHABET, look_alikes, False, f"/{name}", name, "00")


FAMILIES = [
    [face("a.ttf", "0O", "1l"), face("a-bold.ttf", "0O")],
    [face("b.ttf", "Il", "CG", family="B")],
    *([face(f"{name}.ttf", family=name)] for name in "cdefg"),
]
LOOK_ALIKES = {each.name: set(each.look_alikes) for family in FAMILIES for each in family}


def documents(count, level="mixed", **options):
    return [draw_design(random.Random(seed), FAMILIES, level, **options) for seed in range(count)]


@pytest.fixture(scope="module")
def many():
    """Some hundred random designs."""
    return documents(400)


def test_every_random_design_is_a_design_of_its_own_and_survives_json(many):
    rng, texts = random.Random(1), [json.dumps(document) for document in many]
    assert len({*texts}) == len(many)
    assert documents(20) == many[:20]
    for text in texts:
        design = parse_design(json.loads(text), "random")
        assert design.faces
        assert design.canvas["height"](rng) == 64
        assert design.canvas["width"](rng) <= MAX_WIDTH


def test_characters_that_look_alike_in_a_chosen_font_are_never_both_asked_for(many):
    for document in many:
        charset, faces = document["text"].get("charset", ""), document["fonts"]["faces"]
        pairs = set(CASE_TWINS if len(faces) > 1 else ()).union(*map(LOOK_ALIKES.get, faces))
        assert not [pair for pair in pairs if set(pair) <= set(charset)], document


def test_there_are_one_or_several_faces_and_one_of_a_family_at_most(many):
    chosen = [document["fonts"]["faces"] for document in many]
    assert sum(len(faces) > 1 for faces in chosen) > 200
    assert not any({"a.ttf", "a-bold.ttf"} <= {*faces} for faces in chosen)
    assert {*chain(*chosen)} == LOOK_ALIKES.keys()


def test_nearly_every_operator_alphabet_and_length_comes_up(many):
    unused = OPERATORS.keys() - {
        step["kind"] for document in many for step in document["operators"]
    }
    assert len(unused) <= 6, unused
    assert {*"345678"} <= {document["text"].get("length") for document in many}
    charsets = [parse_design(document, "it").texts.charset for document in many]
    assert 0.02 < charsets.count(ARITHMETIC) / len(many) < 0.09


def test_a_charset_and_lengths_replace_those_that_would_be_drawn():
    for document in documents(100, charset="01lOxyz", lengths=Lengths(2, 5)):
        design = parse_design(document, "it")
        assert design.texts.lengths == Lengths(2, 5)
        assert set("xyz") <= set(design.texts.charset) <= set("01lOxyz")
    for options in ({"charset": NAMED_ALPHABETS["digits"]}, {"lengths": Lengths(3, 3)}):
        assert not any(document["text"].get("arithmetic") for document in documents(100, **options))


def test_harder_levels_have_more_operators():
    def count_operators(level):
        return sum(len(document["operators"]) for document in documents(60, level))

    easy, medium, hard, mixed = map(count_operators, ("easy", "medium", "hard", "mixed"))
    assert easy < medium < hard
    assert easy < mixed < hard


def test_long_texts_are_made_smaller_to_fit():
    for document in documents(50, lengths=Lengths(64, 64)):
        size = parse_design(document, "it").text["size"](random.Random(1))
        assert 4 <= size < 64 * 1.6


@pytest.mark.parametrize(
    ("characters", "look_alikes", "charsets"),
    [
        ("0Oab", ["0O"], {"0ab", "Oab"}),
        ("0O", ["0O", "Oo"], {"0", "O"}),
        ("a", ["aa"], {"a"}),
        ("abc", ["xy", "ax"], {"abc"}),
    ],
)
def test_twins_lose_one_of_them_at_random_and_one_character_stays(
    characters, look_alikes, charsets
):
    families = [[face("a.ttf", *look_alikes)]]
    drawn = [draw_design(random.Random(n), families, "easy", characters) for n in range(30)]
    assert {document["text"]["charset"] for document in drawn} == charsets


def test_a_font_that_draws_capitals_for_small_letters_is_asked_for_capitals():
    pairs = [f"{letter}{letter.lower()}" for letter in "ABCDEFGHIJKLMNOPQRST"]
    capitals = [[face("capitals.ttf", *pairs)]]
    for seed in range(30):
        charset = draw_design(random.Random(seed), capitals, "easy", "abcXYZ1")["text"]["charset"]
        assert sorted(charset) == sorted("ABCXYZ1")


def test_hollow_letters_have_the_colour_of_the_canvas_and_something_that_shows_them(many):
    hollow = [document for document in many if document["text"]["color"] == "canvas"]
    assert 0.02 < len(hollow) / len(many) < 0.1
    for document in hollow:
        kinds = {step["kind"] for step in document["operators"]}
        assert kinds & {"halo", "extrusion", "shadow", "plate"}
        assert document["redraw_illegible"] is False
        assert "overflow" not in document["text"]


def test_colours_of_any_luminance_keep_away_from_that_of_the_canvas(many):
    distances = []
    for document in many:
        color, ground = document["text"]["color"], document["canvas"]["color"]["luminance"]
        if isinstance(color, dict) and isinstance(color["luminance"], dict):
            ranges = color["luminance"]["one_of"]
            distances.append(min(max(ground - high, low - ground) for low, high in ranges))
    assert min(distances) >= 40
    assert 0.08 < len(distances) / len(many) < 0.2
