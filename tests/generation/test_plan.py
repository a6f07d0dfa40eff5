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

NINE, TWO = Lengths(9, 9), Lengths(2, 2)


def planned(**options):
    return plan_drawing(DrawingOptions(**options))


def canvas(**options):
    """The section [canvas] of the design with the options filled in."""
    return json.loads(planned(**options).document)["canvas"]


def test_the_default_width_grows_with_the_length():
    drawn = [Drawer(planned(lengths=Lengths(length, length))).draw(0) for length in (1, 4, 5, 10)]
    assert [(len(each.text), each.image.width) for each in drawn] == [
        (1, 160),
        (4, 160),
        (5, 200),
        (10, 400),
    ]


def test_a_text_longer_than_the_design_s_makes_the_canvas_wider_in_proportion():
    widths = {
        design: canvas(design=design, lengths=NINE)["width"]
        for design in ("gradient", "tiles", "outline")
    }
    assert widths == {"gradient": 200 * 9 // 5, "tiles": 320 * 9 // 4, "outline": 180 * 9 // 6}
    assert canvas(design="gradient", lengths=TWO)["width"] == 200
    assert canvas(design="night", lengths=NINE)["width"] == "text"
    assert canvas(design="gradient", lengths=NINE, width=300)["width"] == 300


def test_a_text_too_long_for_any_canvas_needs_a_size():
    length = Lengths(64, 64)
    with pytest.raises(UsageError, match=naming("`lengths` 64", "5,120", "`size`")):
        planned(design="tiles", lengths=length)
    assert canvas(design="tiles", lengths=length, width=2000)["width"] == 2000


def test_options_are_filled_into_the_design_and_what_they_leave_open_is_taken_from_it():
    config = planned(design="speckle", height=70, font_sizes=(20, 30), charset="abc")
    document = json.loads(config.document)
    assert (document["canvas"]["height"], document["text"]["size"]) == (70, {"one_of": [20, 30]})
    assert (config.width, config.height, config.lengths, config.charset) == (
        280,
        70,
        Lengths(5, 5),
        "abc",
    )
    assert document["fonts"]["faces"]
    assert planned(design="speckle").charset == NAMED_ALPHABETS["upper-alnum"]
    assert planned(charset="digits").charset == NAMED_ALPHABETS["digits"]


def test_equal_designs_are_equal_configurations():
    assert planned() == planned(design="captcha")
    assert hash(planned()) == hash(planned())
    assert planned(design=CLASSIC_WARP) != planned()
    assert planned(design=CLASSIC_WARP).document == planned(design="captcha-classic").document


def test_a_file_of_designs_with_another_content_is_another_configuration():
    configs = []
    for content in ("{}\n", "{}\n{}\n"):
        Path("saved.jsonl").write_text(content)
        configs.append(planned(design="saved.jsonl"))
    assert configs[0] != configs[1]
    assert planned(design="saved.jsonl") == configs[1]


def test_random_designs_have_no_document_and_name_what_their_texts_may_have():
    plan = planned(design="random:hard")
    assert (plan.document, plan.options.level, plan.design) == ("", "hard", None)
    assert set(NAMED_ALPHABETS["alnum"]) < set(plan.charset)
    assert plan.lengths == Lengths(1, 10)
    plan = planned(design="random", charset="abc", lengths=TWO)
    assert (plan.charset, plan.lengths) == ("abc", TWO)
    assert planned().options.level is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "4 characters, 160x60"),
        ({"design": "night"}, "4-7 characters, 64 high"),
        ({"design": "random:easy"}, "random designs"),
    ],
)
def test_a_configuration_is_described(options, words):
    assert planned(**options).kind == words


def test_a_design_that_leaves_out_the_canvas_has_the_default_one_and_it_grows_too():
    Path("mine.toml").write_text("[text]\nlength = 3\n")
    config = planned(design="mine.toml")
    assert (config.width, config.height) == (160, 60)
    assert canvas(design="mine.toml", lengths=NINE)["width"] == 480


def test_any_size_is_described():
    Path("mine.toml").write_text("[canvas]\nwidth = [100, 200]\nheight = [50, 60]\n")
    assert planned(design="mine.toml").kind == "4 characters, any size"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"design": "random", "width": 200, "height": 60}, "`size`"),
        ({"design": "random", "font_sizes": (42,)}, "`font_sizes`"),
        ({"design": "random", "designs": 0}, "`designs` 1,000,000"),
        ({"design": "random:none"}, "`design` random:none easy hard"),
        ({"design": "speckle", "designs": 3}, "`designs` speckle"),
        ({"design": "speckle", "renderer": "package"}, "`renderer` speckle"),
        ({"design": "sepckle"}, " ".join(["sepckle", *design_names()])),
        ({"design": "saved.jsonl", "lengths": TWO}, "`lengths` saved.jsonl"),
        ({"design": "saved.jsonl", "charset": "abc"}, "`charset` saved.jsonl"),
        ({"design": "saved.jsonl", "width": 99, "height": 99}, "`size` saved.jsonl"),
        ({"design": "saved.jsonl", "font_sizes": (9,)}, "`font_sizes` saved.jsonl"),
        ({"design": "saved.jsonl", "designs": 2}, "`designs` saved.jsonl"),
        ({"design": "gone.jsonl"}, "gone.jsonl"),
        ({"count": 0}, "`count`"),
        ({"start": -1}, "`start`"),
        ({"renderer": "gl"}, "gl"),
        ({"height": 15}, "`size` 16 15"),
        ({"width": 5000}, "`size` 5000"),
        ({"width": 4000, "height": 4000}, "`size` 4000x4000 4,000,000"),
        ({"width": 100, "lengths": NINE}, "`size` 144 100"),
        ({"font_sizes": (3,)}, "`font_sizes` 512"),
        ({"charset": "a b"}, "`charset` space"),
        ({"charset": "aa"}, "a"),
        ({"charset": "abc", "often": "bd"}, "text.often d"),
        ({"design": "random", "often": "0O"}, "`often`"),
        ({"design": "saved.jsonl", "often": "0O"}, "`often` saved.jsonl"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options, named):
    Path("saved.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=naming(*named.split())):
        planned(**options)


def test_a_canvas_of_too_many_pixels_is_named_where_it_is_asked_for():
    Path("mine.toml").write_text("[canvas]\nwidth = 4000\nheight = 4000\n")
    with pytest.raises(UsageError, match=naming("mine.toml", "canvas", "4000x4000")):
        planned(design="mine.toml")
