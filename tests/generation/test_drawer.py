import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.drawer import TRIES, Drawer, drawer_of
from captcha_ocr.generation.fonts.catalogue import find_faces
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.options.model import Lengths

from .conftest import DEJAVU, FONTS, SERIF

SOME = (DEJAVU, SERIF, str(FONTS / "STIXGeneral.ttf"))
RANDOM = DrawingOptions(count=12, design="random", fonts=SOME)
TEXT = '[text]\ncolor = {one_of = ["canvas", "#000000"]}'


def drawer_with(options=RANDOM, **changes):
    return Drawer(plan_drawing(replace(options, **changes)))


def draw(drawer, numbers):
    images = [drawer.draw(number) for number in numbers]
    return [(image.text, image.image.size, image.image.tobytes()) for image in images]


@pytest.mark.parametrize("design", ["captcha", "speckle", "random", "random:easy", "random:hard"])
def test_an_image_depends_on_the_seed_and_its_number_alone(design):
    first = [draw(drawer_with(design=design), [number])[0] for number in (3, 1)]
    assert draw(drawer_with(design=design, count=9), (3, 1)) == first
    assert draw(drawer_with(design=design, seed=1), [3]) != first[:1]


@pytest.mark.parametrize("design", ["captcha", "random"])
def test_texts_have_the_characters_and_lengths_in_the_options_and_no_others(design):
    drawer = drawer_with(design=design, charset="abz", lengths=Lengths(1, 3))
    texts = [drawer.draw(index).text for index in range(20)]
    assert {len(text) for text in texts} == {1, 2, 3}
    assert {*"".join(texts)} == {*"abz"}


def test_a_number_of_designs_is_used_again_and_again_with_other_texts():
    drawer = drawer_with(random_designs=3)
    assert len({drawer.draw(index).text for index in range(9)}) > 5
    for number in range(3):
        assert drawer.random_document(number) == drawer_with().random_document(number)


def test_a_saved_design_names_its_number_and_the_hashes_of_its_fonts():
    document = json.loads(drawer_with().random_document(5))
    digests = {face.name: face.sha256 for face in find_faces(list(map(Path, SOME)))}
    assert document["number"] == 5
    assert document["fonts"]["sha256"] == [digests[name] for name in document["fonts"]["faces"]]


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
    Path("mine.toml").write_text(TEXT)
    drawer = drawer_with(DrawingOptions(design="mine.toml", fonts=(DEJAVU,)))
    images = [drawer.draw(index) for index in range(40)]
    assert {image.redrawn for image in images} >= {0, 1, 2}
    assert all(np.asarray(image.image).min() == 0 for image in images if image.illegible is None)
    assert sum(image.illegible is not None for image in images) <= 2
    Path("mine.toml").write_text(f"redraw_illegible = false\n{TEXT}")
    drawer = drawer_with(DrawingOptions(design="mine.toml", fonts=(DEJAVU,)))
    assert {drawer.draw(index).redrawn for index in range(10)} == {0}


def test_a_random_design_that_gives_no_legible_image_is_replaced():
    drawer = drawer_with(design="random:hard")
    images = [drawer.draw(index) for index in range(40)]
    assert 0 < np.mean([image.redrawn for image in images]) < 3
    assert {image.illegible for image in images if image.redrawn < TRIES - 1} == {None}


def test_a_saved_design_that_is_malformed_is_named_with_its_line():
    fonts = {"faces": ["DejaVuSans.ttf"]}
    lines = [json.dumps({"fonts": fonts}), json.dumps({"fonts": fonts, "text": {"size": 1}})]
    Path("saved.jsonl").write_text("\n".join(lines))
    drawer = drawer_with(DrawingOptions(design="saved.jsonl", fonts=SOME))
    drawer.draw(0)
    with pytest.raises(UsageError, match=naming("saved.jsonl, line 2", "text.size")):
        drawer.draw(1)


def test_designs_that_take_turns_keep_their_drawers():
    drawers = [drawer_of(plan_drawing(replace(RANDOM, seed=seed))) for seed in range(5)]
    assert [drawer_of(plan_drawing(replace(RANDOM, seed=seed))) for seed in range(5)] == drawers
