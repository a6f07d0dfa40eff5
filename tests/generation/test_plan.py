import json
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import design_names
from captcha_ocr.generation.drawer import Drawer
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.drawing import CLASSIC_WARP, DrawingOptions
from captcha_ocr.options.model import Lengths

NINE, TWO, LONGEST = Lengths(9, 9), Lengths(2, 2), Lengths(64, 64)


@pytest.fixture(autouse=True)
def designs():
    """Files with designs in the folder of the test."""
    Path("saved.jsonl").write_text("{}\n")
    Path("short.toml").write_text("[text]\nlength = 3\n")
    Path("any.toml").write_text("[canvas]\nwidth = [100, 200]\nheight = [50, 60]\n")
    Path("huge.toml").write_text("[canvas]\nwidth = 4000\nheight = 4000\n")


def planned(**options):
    return plan_drawing(DrawingOptions(**options))


@pytest.mark.parametrize(("length", "width"), [(1, 160), (4, 160), (5, 200), (10, 400)])
def test_the_default_width_grows_with_the_length(length, width):
    drawn = Drawer(planned(lengths=Lengths(length, length))).draw(0)
    assert (len(drawn.text), drawn.image.width) == (length, width)


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({"design": "gradient", "lengths": NINE}, 200 * 9 // 5),
        ({"design": "tiles", "lengths": NINE}, 320 * 9 // 4),
        ({"design": "outline", "lengths": NINE}, 180 * 9 // 6),
        ({"design": "gradient", "lengths": TWO}, 200),
        ({"design": "night", "lengths": NINE}, "text"),
        ({"design": "gradient", "lengths": NINE, "width": 300}, 300),
        ({"design": "tiles", "lengths": LONGEST, "width": 2000}, 2000),
        ({"design": "short.toml"}, 160),  # the default canvas
        ({"design": "short.toml", "lengths": NINE}, 480),
    ],
)
def test_a_text_longer_than_the_design_s_makes_the_canvas_wider_in_proportion(options, width):
    assert json.loads(planned(**options).document)["canvas"]["width"] == width


def test_options_are_filled_into_the_design_and_what_they_leave_open_is_taken_from_it():
    plan = planned(design="speckle", height=70, font_sizes=(20, 30), charset="abc")
    document = json.loads(plan.document)
    assert (document["canvas"]["height"], document["text"]["size"]) == (70, {"one_of": [20, 30]})
    assert document["fonts"]["faces"]
    assert (plan.width, plan.height, plan.lengths) == (280, 70, Lengths(5, 5))
    assert plan.charset == "abc"
    assert planned(design="speckle").charset == NAMED_ALPHABETS["upper-alnum"]
    assert planned(charset="digits").charset == NAMED_ALPHABETS["digits"]


def test_equal_designs_are_equal_plans():
    assert planned() == planned(design="captcha")
    assert hash(planned()) == hash(planned())
    assert planned(design=CLASSIC_WARP) != planned()
    assert planned(design=CLASSIC_WARP).document == planned(design="captcha-classic").document
    saved = planned(design="saved.jsonl")
    assert planned(design="saved.jsonl") == saved
    Path("saved.jsonl").write_text("{}\n{}\n")
    assert planned(design="saved.jsonl") != saved


def test_random_designs_have_no_document_and_name_what_their_texts_may_have():
    plan = planned(design="random:hard")
    assert (plan.document, plan.options.level) == ("", "hard")
    assert set(NAMED_ALPHABETS["alnum"]) < set(plan.charset)
    assert plan.lengths == Lengths(1, 10)
    plan = planned(design="random", charset="abc", lengths=TWO)
    assert (plan.charset, plan.lengths) == ("abc", TWO)


@pytest.mark.parametrize(
    ("design", "words"),
    [
        ("captcha", "4 characters, 160x60"),
        ("night", "4-7 characters, 64 high"),
        ("random:easy", "random designs"),
        ("saved.jsonl", "saved.jsonl designs"),
        ("short.toml", "3 characters, 160x60"),
        ("any.toml", "4 characters, any size"),
    ],
)
def test_a_plan_is_described(design, words):
    assert planned(design=design).kind == words


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"design": "random", "width": 200, "height": 60}, "`size`"),
        ({"design": "random", "font_sizes": (42,)}, "`font_sizes`"),
        ({"design": "random", "random_designs": 0}, "`random_designs` 1,000,000"),
        ({"design": "random:none"}, "`design` random:none easy hard"),
        ({"design": "speckle", "random_designs": 3}, "`random_designs` speckle"),
        ({"design": "speckle", "renderer": "package"}, "`renderer` speckle"),
        ({"design": "sepckle"}, " ".join(["sepckle", *design_names()])),
        ({"design": "saved.jsonl", "lengths": TWO}, "`lengths` saved.jsonl"),
        ({"design": "saved.jsonl", "charset": "abc"}, "`charset` saved.jsonl"),
        ({"design": "saved.jsonl", "width": 99, "height": 99}, "`size` saved.jsonl"),
        ({"design": "saved.jsonl", "font_sizes": (9,)}, "`font_sizes` saved.jsonl"),
        ({"design": "saved.jsonl", "random_designs": 2}, "`random_designs` saved.jsonl"),
        ({"design": "saved.jsonl", "often": "0O"}, "`often` saved.jsonl"),
        ({"design": "gone.jsonl"}, "gone.jsonl"),
        ({"count": 0}, "`count`"),
        ({"start": -1}, "`start`"),
        ({"renderer": "gl"}, "gl"),
        ({"height": 15}, "`size` 16 15"),
        ({"width": 5000}, "`size` 5000"),
        ({"width": 4000, "height": 4000}, "`size` 4000x4000 4,000,000"),
        ({"width": 100, "lengths": NINE}, "`size` 144 100"),
        ({"design": "tiles", "lengths": LONGEST}, "`lengths` 64 5,120 `size`"),
        ({"design": "huge.toml"}, "huge.toml canvas 4000x4000"),
        ({"font_sizes": (3,)}, "`font_sizes` 512"),
        ({"charset": "a b"}, "`charset` space"),
        ({"charset": "aa"}, "a"),
        ({"charset": "abc", "often": "bd"}, "text.often d"),
        ({"design": "random", "often": "0O"}, "`often`"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options, named):
    with pytest.raises(UsageError, match=naming(*named.split())):
        planned(**options)
