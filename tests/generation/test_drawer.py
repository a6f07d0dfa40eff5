import json
import os
import shutil
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import naming

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import design_names
from captcha_ocr.generation.drawer import TRIES, Drawer, drawer_of, plan_drawing
from captcha_ocr.generation.fonts.catalogue import find_faces
from captcha_ocr.options.drawing import CLASSIC_WARP, DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import sha256

from .conftest import DEJAVU, FONTS, SERIF

SOME = (DEJAVU, SERIF, str(FONTS / "STIXGeneral.ttf"))
RANDOM = DrawingOptions(count=12, design="random", fonts=SOME)
TEXT = '[text]\ncolor = {one_of = ["canvas", "#000000"]}'


def drawer_with(options=RANDOM, **changes):
    return Drawer(plan_drawing(replace(options, **changes)))


def draw(drawer, numbers):
    images = [drawer.draw(number) for number in numbers]
    return [(image.text, image.image.size, image.image.tobytes()) for image in images]


@pytest.mark.parametrize("design", [*design_names(), "random", "random:easy", "random:hard"])
def test_an_image_depends_on_the_seed_and_its_number_alone(design):
    first = [draw(drawer_with(design=design), [number])[0] for number in (3, 1)]
    assert draw(drawer_with(design=design, count=9), (3, 1)) == first
    assert draw(drawer_with(design=design, seed=1), [3]) != first[:1]


def test_a_number_of_designs_is_used_again_and_again_with_other_texts():
    drawer = drawer_with(random_designs=3)
    assert len({drawer.draw(index).text for index in range(9)}) > 5
    for number in range(3):
        assert drawer.random_document(number) == drawer_with().random_document(number)


def test_a_saved_design_names_its_number_and_the_hashes_of_its_fonts():
    document = json.loads(drawer_with(fonts=(DEJAVU,)).random_document(5))
    digest = sha256(Path(DEJAVU).read_bytes())
    assert (document["number"], document["fonts"]["sha256"]) == (5, [digest])


def test_a_saved_design_finds_a_font_by_its_suffix_where_its_name_is_free(tmp_path):
    """Where it was made two files had the name, and where it is used only the second of them."""
    for name, font in (("one", DEJAVU), ("two", SERIF)):
        (tmp_path / name).mkdir()
        shutil.copy(font, tmp_path / name / "font.ttf")
    first, second = find_faces([tmp_path])
    fonts = {"faces": [second.name], "sha256": [second.sha256]}
    Path("saved.jsonl").write_text(json.dumps({"fonts": fonts}))
    both, alone = (
        drawer_with(DrawingOptions(design="saved.jsonl", fonts=(folder,)))
        for folder in (str(tmp_path), os.path.dirname(second.path))
    )
    assert (first.name, second.name) == ("font.ttf", f"font.ttf#{second.sha256[:8]}")
    assert draw(both, [0]) == draw(alone, [0])


def test_an_illegible_image_is_drawn_again_until_it_can_be_read():
    def draw_images(text, count):
        Path("mine.toml").write_text(text)
        drawer = drawer_with(DrawingOptions(design="mine.toml", fonts=(DEJAVU,)))
        return [drawer.draw(index) for index in range(count)]

    images = draw_images(TEXT, 40)
    assert {image.redrawn for image in images} >= {0, 1, 2}
    assert all(np.asarray(image.image).min() == 0 for image in images if image.illegible is None)
    assert sum(image.illegible is not None for image in images) <= 2
    kept = draw_images(f"redraw_illegible = false\n{TEXT}", 10)
    assert {image.redrawn for image in kept} == {0}


def test_a_random_design_that_gives_no_legible_image_is_replaced():
    drawer = drawer_with(design="random:hard")
    images = [drawer.draw(index) for index in range(40)]
    assert 0 < np.mean([image.redrawn for image in images]) < 3
    assert {image.illegible for image in images if image.redrawn < TRIES - 1} == {None}


def test_saved_designs_have_the_characters_and_lengths_of_their_texts():
    texts = ({"charset": "一二", "length": "2-3"}, {"pattern": "[0-3]+[0-3]=?"}, {"size": 40})
    lines = [json.dumps({"text": fields}) for fields in texts]
    Path("saved.jsonl").write_text("\n".join(lines), encoding="utf-8")
    plan = planned(design="saved.jsonl")
    assert {*plan.charset} == {*"一二+=?", *string.ascii_uppercase, *string.digits}
    assert plan.lengths == Lengths(2, 5)


def test_a_saved_design_that_is_malformed_is_named_with_its_line():
    fonts = '{"fonts": {"faces": ["DejaVuSans.ttf"]}'
    Path("saved.jsonl").write_text(f'{fonts}}}\n{fonts}, "text": {{"size": 1}}}}\n')
    drawer = drawer_with(DrawingOptions(design="saved.jsonl", fonts=SOME))
    with pytest.raises(UsageError, match=naming("saved.jsonl, line 2", "text.size")):
        draw(drawer, range(2))


def test_designs_that_take_turns_keep_their_drawers():
    drawers = [drawer_of(plan_drawing(replace(RANDOM, seed=seed))) for seed in range(5)]
    assert [drawer_of(plan_drawing(replace(RANDOM, seed=seed))) for seed in range(5)] == drawers


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


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({"lengths": Lengths(1, 1)}, 160),
        ({"lengths": Lengths(4, 4)}, 160),
        ({"lengths": Lengths(5, 5)}, 200),
        ({"lengths": Lengths(10, 10)}, 400),
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
    assert (plan.width, plan.height, plan.lengths, plan.charset) == (280, 70, Lengths(5, 5), "abc")
    assert planned(design="speckle").charset == NAMED_ALPHABETS["upper-alnum"]
    assert planned(charset="digits").charset == NAMED_ALPHABETS["digits"]


def test_equal_designs_are_equal_plans():
    assert planned() == planned(design="captcha")
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
    assert plan.lengths == Lengths(1, 12)
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
        ({"design": "sepckle"}, "sepckle speckle?"),
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
