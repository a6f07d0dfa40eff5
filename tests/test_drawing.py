import importlib.util
import random
import secrets
from collections import Counter
from dataclasses import replace
from pathlib import Path

import captcha.image
import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.config import GeneratorConfig, Lengths
from captcha_ocr.drawing import Chance, Glyph, render, render_by_package

TINY = GeneratorConfig(lengths=Lengths(2, 2), charset="digits", width=48, height=16, font_sizes=(14,))
MATPLOTLIB = Path(importlib.util.find_spec("matplotlib").submodule_search_locations[0])  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DEJAVU = str(FONTS / "DejaVuSans.ttf")
ITALICS = (str(FONTS / "STIXGeneralItalic.ttf"), str(FONTS / "DejaVuSerif-BoldItalic.ttf"))


def recorded_calls(monkeypatch, owner, name):
    """A list that fills with the positional arguments of every call of a method, which still does its work."""
    calls, original = [], getattr(owner, name)

    def record(self, *arguments, **options):
        calls.append(arguments)
        return original(self, *arguments, **options)

    monkeypatch.setattr(owner, name, record)
    return calls


# --- our renderer draws the package's pixels -----------------------------------------------------


@pytest.mark.parametrize("warp", ["package", "classic"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"charset": "alnum", "lengths": Lengths(1, 8)},
        {"lengths": Lengths(1, 1), "width": 16, "height": 16},  # squeezed, and glyphs higher than the image
        {"charset": "fjyAW_", "fonts": ITALICS, "font_sizes": (20, 70)},  # glyphs that begin left of their place
        {"charset": "lower", "fonts": (DEJAVU,), "width": 333, "height": 77},
    ],
)
def test_both_renderers_draw_the_same_pixels(options, warp):
    config = GeneratorConfig(**options, warp=warp)
    for index in range(30):
        (text, image), (package_text, package_image) = render(config, index), render_by_package(config, index)
        assert text == package_text
        assert np.array_equal(image, package_image), index


def test_an_italic_glyph_is_cut_off_as_the_package_cuts_it(monkeypatch):
    """Or the test above would not see a glyph that begins left of its place."""
    monkeypatch.setattr("captcha_ocr.drawing.Glyph.ink", lambda glyph, x, y, ink=Glyph.ink: ink(glyph, 9, 9))
    config = GeneratorConfig(charset="fjyAW_", fonts=ITALICS, font_sizes=(20, 70))
    assert any(not np.array_equal(render(config, index)[1], render_by_package(config, index)[1]) for index in range(30))


def test_the_same_bits_make_the_same_numbers_as_the_standard_library():
    chance, rng = Chance(random.Random(3)), random.Random(3)
    for bound in (1, 2, 5, 7, 36, 61, 161):
        assert [chance.below(bound) for _ in range(50)] == [rng.randrange(bound) for _ in range(50)]


# --- what is drawn -------------------------------------------------------------------------------


def test_drawing_does_not_touch_the_chance_of_the_caller():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    render(TINY, 0)
    render_by_package(TINY, 0)
    assert random.random() == expected


def test_the_package_has_its_own_source_of_chance_back_after_drawing():
    render_by_package(TINY, 0)
    assert captcha.image.secrets is secrets


def test_texts_are_made_of_the_whole_alphabet_and_nothing_else():
    texts = [render(replace(TINY, charset="abc", lengths=Lengths(3, 3)), index)[0] for index in range(20)]
    assert {len(text) for text in texts} == {3}
    assert set("".join(texts)) == set("abc")


def test_texts_of_several_lengths_come_in_all_of_them():
    texts = [render(replace(TINY, lengths=Lengths(1, 3)), index)[0] for index in range(60)]
    counts = Counter(map(len, texts))
    assert counts.keys() == {1, 2, 3}
    assert min(counts.values()) > 10


@pytest.mark.parametrize(("length", "width"), [(1, 160), (4, 160), (5, 200), (10, 400)])
def test_the_default_width_grows_with_the_length(length, width):
    assert GeneratorConfig(lengths=Lengths(length, length)).width == width


@pytest.mark.parametrize("warp", ["package", "classic"])
def test_a_long_text_is_drawn_at_its_default_width(warp):
    text, image = render(GeneratorConfig(lengths=Lengths(10, 10), warp=warp), 0)
    assert (len(text), image.size) == (10, (400, 60))


def test_the_text_does_not_depend_on_how_it_is_drawn():
    assert render(replace(TINY, warp="classic", height=20), 3)[0] == render(TINY, 3)[0]


def test_another_font_draws_other_images():
    assert render(replace(TINY, fonts=(DEJAVU,)), 0)[1].tobytes() != render(TINY, 0)[1].tobytes()


def test_16_pixels_a_character_are_enough():
    assert render(GeneratorConfig(lengths=Lengths(4, 4), width=64), 0)[1].size == (64, 60)


# --- the classic warp ----------------------------------------------------------------------------


def test_the_two_warps_draw_one_text_differently():
    (text, image), (classic_text, classic) = render(TINY, 0), render(replace(TINY, warp="classic"), 0)
    assert classic_text == text
    assert not np.array_equal(image, classic)


def test_the_classic_warp_moves_the_corners_of_a_glyph_several_times_as_far(monkeypatch):
    calls = recorded_calls(monkeypatch, Image.Image, "transform")
    reach = {}
    for warp in ("package", "classic"):
        for index in range(10):
            render(GeneratorConfig(warp=warp), index)
        # The corners of the quadrilateral are (x1, y1, …): y1 is how far the first moves up or down.
        reach[warp] = np.mean([abs(corners[1]) for _, method, corners, *_ in calls if method == Image.Transform.QUAD])
        calls.clear()
    assert reach["classic"] > 3 * reach["package"]


def test_a_classic_noise_arc_always_ends_in_the_last_fifth(monkeypatch):
    calls = recorded_calls(monkeypatch, ImageDraw.ImageDraw, "arc")
    for index in range(30):
        render(GeneratorConfig(warp="classic"), index)
    assert [128 <= box[2] <= 160 for box, *_ in calls] == [True] * 30


def test_a_noise_arc_of_the_package_may_end_sooner(monkeypatch):
    calls = recorded_calls(monkeypatch, ImageDraw.ImageDraw, "arc")
    for index in range(30):
        render(GeneratorConfig(), index)
    assert min(box[2] for box, *_ in calls) < 128
