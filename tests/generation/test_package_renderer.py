import importlib.util
import random
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import captcha.image
import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.config import Lengths
from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.fast_renderer import render
from captcha_ocr.generation.package_renderer import render_by_package

TINY = GeneratorConfig(lengths=Lengths(2, 2), charset="digits", width=48, height=16, font_sizes=(14,))


MATPLOTLIB = Path(importlib.util.find_spec("matplotlib").submodule_search_locations[0])  # not imported: it is slow


FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"


DEJAVU = str(FONTS / "DejaVuSans.ttf")


def test_drawing_leaves_the_random_numbers_of_the_caller_and_of_the_package_alone():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    render(TINY, 0)
    render_by_package(TINY, 0)
    assert random.random() == expected
    assert captcha.image.secrets is secrets


def test_texts_have_all_characters_and_all_lengths_and_no_others():
    texts = [render(replace(TINY, charset="abc", lengths=Lengths(1, 3)), index)[0] for index in range(30)]
    assert {len(text) for text in texts} == {1, 2, 3}
    assert set("".join(texts)) == set("abc")


@pytest.mark.parametrize("options", [{"warp": "classic"}, {"height": 20}, {"fonts": (DEJAVU,)}])
def test_the_options_of_the_drawing_change_the_image_and_not_the_text(options):
    (text, image), (other_text, other) = render(TINY, 3), render(replace(TINY, **options), 3)
    assert other_text == text
    assert other.tobytes() != image.tobytes()


def arguments_of(owner, name, warp):
    """The arguments of every call of a method while 20 captchas are drawn."""
    calls, original = [], getattr(owner, name)

    def record(self, *arguments, **options):
        calls.append(arguments)
        return original(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, record)
        for index in range(20):
            render(GeneratorConfig(warp=warp), index)
    return calls


def test_the_classic_warp_moves_the_corners_of_a_glyph_several_times_as_far():
    reach = {}
    for warp in ("package", "classic"):
        calls = arguments_of(Image.Image, "transform", warp)
        # The corners of the quadrilateral are (x1, y1, …): y1 is how far the first moves up or down.
        reach[warp] = np.mean([abs(corners[1]) for _, method, corners, *_ in calls if method == Image.Transform.QUAD])
    assert reach["classic"] > 3 * reach["package"]


def test_a_classic_noise_arc_ends_in_the_last_fifth_and_one_of_the_package_may_end_sooner():
    ends = {
        warp: [box[2] for box, *_ in arguments_of(ImageDraw.ImageDraw, "arc", warp)] for warp in ("package", "classic")
    }
    assert len(ends["classic"]) == 20
    assert all(128 <= end <= 160 for end in ends["classic"])
    assert min(ends["package"]) < 128


def test_the_fonts_of_a_folder_are_drawn_by_the_package_too(tmp_path):
    for name in ("DejaVuSans.ttf", "DejaVuSerif.ttf"):
        shutil.copy(FONTS / name, tmp_path)
    config = replace(TINY, fonts=(str(tmp_path),), font_sizes=(), width=0, height=0)
    for index in range(5):
        (text, image), (other_text, other) = render(config, index), render_by_package(config, index)
        assert (text, image.tobytes()) == (other_text, other.tobytes())
        assert image.size == (160, 60)
