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

from captcha_ocr.generation.drawer import drawer_of
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.drawing import CLASSIC_WARP, WARPS, DrawingOptions
from captcha_ocr.options.model import Lengths

SMALL = {"width": 48, "height": 16, "font_sizes": (14,)}
TINY = DrawingOptions(lengths=Lengths(2, 2), charset="digits", renderer="package", **SMALL)
MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DEJAVU = str(FONTS / "DejaVuSans.ttf")


def drawer_with(**options):
    return drawer_of(plan_drawing(DrawingOptions(**options)))


def test_drawing_leaves_the_random_numbers_of_the_caller_and_of_the_package_alone():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    drawer_of(plan_drawing(TINY)).draw(0)
    assert random.random() == expected
    assert captcha.image.secrets is secrets


def test_texts_have_all_characters_and_all_lengths_and_no_others():
    texts = [
        drawer_of(plan_drawing(replace(TINY, charset="abc", lengths=Lengths(1, 3))))
        .draw(index)
        .text
        for index in range(30)
    ]
    assert {len(text) for text in texts} == {1, 2, 3}
    assert set("".join(texts)) == set("abc")


@pytest.mark.parametrize(
    "options", [{"design": CLASSIC_WARP}, {"height": 20}, {"fonts": (DEJAVU,)}]
)
def test_the_options_of_the_drawing_change_the_image_and_not_the_text(options):
    drawn, other = (
        drawer_of(plan_drawing(config)).draw(3) for config in (TINY, replace(TINY, **options))
    )
    assert other.text == drawn.text
    assert other.image.tobytes() != drawn.image.tobytes()


def arguments_of(owner, name, design):
    """The arguments of every call of a method while 20 captchas are drawn."""
    calls, original = [], getattr(owner, name)

    def record(self, *arguments, **options):
        calls.append(arguments)
        return original(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, record)
        for index in range(20):
            drawer_with(design=design, renderer="package").draw(index)
    return calls


def test_the_classic_warp_moves_the_corners_of_a_glyph_several_times_as_far():
    reach = {}
    for design in WARPS:
        calls = arguments_of(Image.Image, "transform", design)
        # The corners of the quadrilateral are (x1, y1, …): y1 is how far the first moves up or down.
        reach[design] = np.mean(
            [abs(corners[1]) for _, method, corners, *_ in calls if method == Image.Transform.QUAD]
        )
    assert reach[CLASSIC_WARP] > 3 * reach["captcha"]


def test_a_classic_noise_arc_ends_in_the_last_fifth_and_one_of_the_package_may_end_sooner():
    ends = {
        design: [box[2] for box, *_ in arguments_of(ImageDraw.ImageDraw, "arc", design)]
        for design in WARPS
    }
    assert len(ends[CLASSIC_WARP]) == 20
    assert all(128 <= end <= 160 for end in ends[CLASSIC_WARP])
    assert min(ends["captcha"]) < 128


@pytest.mark.parametrize(
    "options",
    [
        {"charset": "alnum", "lengths": Lengths(1, 8)},
        {
            "lengths": Lengths(1, 1),
            "width": 16,
            "height": 16,
        },  # squeezed, and glyphs higher than the image
        {
            "charset": "fjyAW_",
            "fonts": (str(FONTS / "STIXGeneralItalic.ttf"),),
            "font_sizes": (20, 70),
        },
        {
            "charset": "lower",
            "fonts": (DEJAVU,),
            "width": 333,
            "height": 77,
            "design": CLASSIC_WARP,
        },
        {"charset": "אבגx12", "fonts": (DEJAVU,)},  # from right to left
        {
            "charset": "ax\u0302שׁ",
            "fonts": (DEJAVU,),
            "lengths": Lengths(1, 3),
        },  # with combining marks
    ],
)
def test_both_renderers_draw_the_same_texts_in_the_same_size(options):
    ours, package = (
        drawer_with(**options),
        drawer_with(**options, renderer="package"),
    )
    for index in range(10):
        drawn, expected = ours.draw(index), package.draw(index)
        assert (drawn.text, drawn.image.size) == (expected.text, expected.image.size)


@pytest.mark.parametrize("design", [*WARPS])
def test_both_renderers_draw_as_much_ink_of_the_same_colours(design):
    means = []
    for renderer in ("fast", "package"):
        drawer = drawer_with(design=design, renderer=renderer)
        pixels = np.stack([np.asarray(drawer.draw(index).image, float) for index in range(300)])
        ink = pixels < pixels.max((1, 2), keepdims=True) - 40
        means.append(
            [pixels.mean(), pixels.std(), ink.mean(), np.abs(np.diff(pixels, axis=2)).mean()]
        )
    assert means[0] == pytest.approx(means[1], rel=0.05)


def test_the_fonts_of_a_folder_are_drawn_by_the_package_too(tmp_path):
    for name in ("DejaVuSans.ttf", "DejaVuSerif.ttf"):
        shutil.copy(FONTS / name, tmp_path)
    config = replace(TINY, fonts=(str(tmp_path),), font_sizes=(), width=0, height=0)
    images = {
        font: drawer_of(plan_drawing(replace(config, fonts=(font,)))).draw(3).image
        for font in (str(tmp_path), DEJAVU)
    }
    assert {image.size for image in images.values()} == {(160, 60)}
    assert len({image.tobytes() for image in images.values()}) == 2
