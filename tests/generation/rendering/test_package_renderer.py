import random
import secrets
from dataclasses import replace

import captcha.image
import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.options.drawing import CLASSIC_WARP, WARPS, DrawingOptions
from captcha_ocr.options.model import Lengths

from ..conftest import DEJAVU, FONTS, SERIF

PACKAGE = DrawingOptions(renderer="package")
TINY = replace(
    PACKAGE, lengths=Lengths(2, 2), charset="digits", width=48, height=16, font_sizes=(14,)
)


def draw(options, numbers):
    drawer = drawer_of(plan_drawing(options))
    return [drawer.draw(number) for number in numbers]


def test_drawing_leaves_the_random_numbers_of_the_caller_and_of_the_package_alone():
    random.seed(1)
    expected = random.random()
    random.seed(1)
    draw(TINY, range(1))
    assert random.random() == expected
    assert captcha.image.secrets is secrets


@pytest.mark.parametrize(
    "options", [{"design": CLASSIC_WARP}, {"height": 20}, {"fonts": (DEJAVU, SERIF)}]
)
def test_the_options_of_the_drawing_change_the_image_and_not_the_text(options):
    (first,), (other,) = draw(TINY, [3]), draw(replace(TINY, **options), [3])
    assert other.text == first.text
    assert other.image.tobytes() != first.image.tobytes()


def test_the_classic_warp_is_stronger_and_its_noise_arc_ends_in_the_last_fifth(monkeypatch):
    reaches = {design: [] for design in WARPS}
    ends = {design: [] for design in WARPS}
    transform, arc = Image.Image.transform, ImageDraw.ImageDraw.arc

    def record_transform(self, size, method, corners, *arguments, **options):
        if method == Image.Transform.QUAD:  # of which the first corner moves up or down so far
            reaches[design].append(abs(corners[1]))
        return transform(self, size, method, corners, *arguments, **options)

    def record_arc(self, box, *arguments, **options):
        ends[design].append(box[2])
        return arc(self, box, *arguments, **options)

    monkeypatch.setattr(Image.Image, "transform", record_transform)
    monkeypatch.setattr(ImageDraw.ImageDraw, "arc", record_arc)
    for design in WARPS:
        draw(replace(PACKAGE, design=design), range(20))
    assert np.mean(reaches[CLASSIC_WARP]) > 3 * np.mean(reaches["captcha"])
    assert len(ends[CLASSIC_WARP]) == 20
    assert 128 <= min(ends[CLASSIC_WARP]) <= max(ends[CLASSIC_WARP]) <= 160
    assert min(ends["captcha"]) < 128


@pytest.mark.parametrize(
    "options",
    [
        {"charset": "alnum", "lengths": Lengths(1, 8)},
        # Squeezed, and glyphs higher than the image.
        {"lengths": Lengths(1, 1), "width": 16, "height": 16},
        {
            "charset": "fjyAW_",
            "fonts": (str(FONTS / "STIXGeneralItalic.ttf"),),
            "font_sizes": (20, 70),
        },
        {"fonts": (DEJAVU,), "width": 333, "height": 77, "design": CLASSIC_WARP},
        {"charset": "אבגx12", "fonts": (DEJAVU,)},  # from right to left
        # With combining marks.
        {"charset": "ax\u0302שׁ", "fonts": (DEJAVU,), "lengths": Lengths(1, 3)},
    ],
)
def test_both_renderers_draw_the_same_texts_in_the_same_size(options):
    ours, package = (
        draw(replace(DrawingOptions(renderer=renderer), **options), range(10))
        for renderer in ("fast", "package")
    )
    for image, expected in zip(ours, package, strict=True):
        assert (image.text, image.image.size) == (expected.text, expected.image.size)


@pytest.mark.parametrize("design", [*WARPS])
def test_both_renderers_draw_as_much_ink_of_the_same_colours(design):
    means = []
    for renderer in ("fast", "package"):
        drawn = draw(DrawingOptions(design=design, renderer=renderer), range(300))
        pixels = np.stack([np.asarray(image.image, np.float32) for image in drawn])
        ink = pixels < pixels.max((1, 2), keepdims=True) - 40
        slopes = np.abs(np.diff(pixels, axis=2))
        means.append([pixels.mean(), pixels.std(), ink.mean(), slopes.mean()])
    assert means[0] == pytest.approx(means[1], rel=0.05)
