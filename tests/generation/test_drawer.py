import importlib.util
import json
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

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
SOME = tuple(str(FONTS / name) for name in ("DejaVuSans.ttf", "DejaVuSerif.ttf", "STIXGeneral.ttf"))
RANDOM = DrawingOptions(count=12, design="random", fonts=SOME)


def drawer_with(options):
    return Drawer(plan_drawing(options))


def image_of(drawn):
    return drawn.text, drawn.image.size, drawn.image.tobytes()


def save(path, drawer, numbers):
    path.write_text(
        "".join(drawer.random_document(number) + "\n" for number in numbers), encoding="utf-8"
    )
    return str(path)


@pytest.mark.parametrize("design", ["captcha", "speckle", "random", "random:easy", "random:hard"])
def test_an_image_depends_on_the_seed_and_its_number_alone(design):
    config = DrawingOptions(design=design, fonts=SOME)
    first = [image_of(drawer_with(config).draw(index)) for index in (3, 1)]
    drawer = drawer_with(replace(config, count=9))
    assert [image_of(drawer.draw(index)) for index in (3, 1)] == first
    assert image_of(drawer_with(replace(config, seed=1)).draw(3)) != first[0]


def test_options_hold_for_random_designs():
    drawer = drawer_with(replace(RANDOM, charset="abcxyz", lengths=Lengths(3, 5)))
    texts = [drawer.draw(index).text for index in range(12)]
    assert {len(text) for text in texts} <= {3, 4, 5}
    assert {*"".join(texts)} <= {*"abcxyz"}


def test_a_number_of_designs_is_used_again_and_again_with_other_texts():
    drawer = drawer_with(replace(RANDOM, designs=3))
    images = [drawer.draw(index) for index in range(9)]
    assert len({image.text for image in images}) > 5
    assert [drawer.random_design(number)[0].document for number in range(3)] == [
        drawer_with(RANDOM).random_design(number)[0].document for number in range(3)
    ]


@pytest.mark.parametrize("designs", [None, 3])
def test_saved_designs_draw_the_same_images_again(tmp_path, designs):
    config = replace(RANDOM, designs=designs, start=4)
    drawer = drawer_with(config)
    path = save(tmp_path / "saved.jsonl", drawer, range(3) if designs else range(4, 16))
    again = drawer_with(DrawingOptions(design=path, fonts=SOME))
    for index in range(4, 16):
        assert image_of(again.draw(index)) == image_of(drawer.draw(index)), index


def test_a_saved_design_names_its_number_and_the_hashes_of_its_fonts():
    document = json.loads(drawer_with(RANDOM).random_document(5))
    digests = {face.name: face.sha256 for face in find_faces([Path(font) for font in SOME])}
    assert document["number"] == 5
    assert document["fonts"]["sha256"] == [digests[name] for name in document["fonts"]["faces"]]


def test_a_saved_design_finds_a_font_by_its_suffix_where_its_name_is_free(tmp_path):
    """Where it was made two files had the name, and where it is used only the second of them."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    shutil.copy(SOME[0], tmp_path / "one" / "font.ttf")
    shutil.copy(SOME[1], tmp_path / "two" / "font.ttf")
    suffixed = next(face for face in find_faces([tmp_path]) if "#" in face.name)
    made = drawer_with(DrawingOptions(design="random", fonts=(str(tmp_path),)))
    number = next(
        number
        for number in range(30)
        if json.loads(made.random_document(number))["fonts"]["faces"] == [suffixed.name]
    )
    path = save(tmp_path / "saved.jsonl", made, [number])
    used = drawer_with(DrawingOptions(design=path, fonts=(str(Path(suffixed.path).parent),)))
    assert image_of(used.draw(number)) == image_of(made.draw(number))


def test_an_illegible_image_is_drawn_again_until_it_can_be_read():
    text = '[text]\ncolor = {one_of = ["canvas", "#000000"]}'
    Path("mine.toml").write_text(text)
    drawer = drawer_with(DrawingOptions(design="mine.toml", fonts=SOME[:1]))
    images = [drawer.draw(index) for index in range(40)]
    assert {image.redrawn for image in images} >= {0, 1, 2}
    assert all(np.asarray(image.image).min() == 0 for image in images if image.illegible is None)
    assert sum(image.illegible is not None for image in images) <= 2
    Path("other.toml").write_text(f"redraw_illegible = false\n{text}")
    drawer = drawer_with(DrawingOptions(design="other.toml", fonts=SOME[:1]))
    assert {drawer.draw(index).redrawn for index in range(10)} == {0}


def test_an_image_that_can_never_be_read_is_given_up_and_told():
    Path("mine.toml").write_text('[text]\ncolor = "canvas"')
    drawn = drawer_with(DrawingOptions(design="mine.toml", fonts=SOME[:1])).draw(0)
    assert (drawn.redrawn, drawn.illegible) == (TRIES - 1, "contrast")


def test_a_random_design_that_gives_no_legible_image_is_replaced(monkeypatch):
    counts = []
    drawer = drawer_with(replace(RANDOM, design="random:hard"))
    for index in range(60):
        drawn = drawer.draw(index)
        counts.append(drawn.redrawn)
        assert drawn.illegible is None or drawn.redrawn >= TRIES - 1
    assert max(counts) > 0
    assert np.mean(counts) < 3


def test_a_saved_design_that_is_malformed_is_named_with_its_line(tmp_path):
    path = tmp_path / "saved.jsonl"
    fonts = {"faces": ["DejaVuSans.ttf"]}
    path.write_text(
        json.dumps({"fonts": fonts})
        + "\n"
        + json.dumps({"fonts": fonts, "text": {"size": 1}})
        + "\n"
    )
    drawer = drawer_with(DrawingOptions(design=str(path), fonts=SOME))
    drawer.draw(0)
    with pytest.raises(UsageError, match=naming("saved.jsonl, line 2", "text.size")):
        drawer.draw(1)


def test_a_drawer_is_kept_for_its_configuration():
    assert drawer_of(plan_drawing(RANDOM)) is drawer_of(plan_drawing(replace(RANDOM)))


def test_designs_that_take_turns_keep_their_drawers():
    plans = [plan_drawing(replace(RANDOM, seed=seed)) for seed in range(5)]
    drawers = [drawer_of(plan) for plan in plans]
    assert [drawer_of(plan) for plan in plans] == drawers
