import random
import secrets
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import captcha.image
import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.generation.operators.glyphs import corners, rotation
from captcha_ocr.generation.rendering.rasters import raster
from captcha_ocr.generation.rendering.typesetting import paint, transform
from captcha_ocr.options.drawing import CLASSIC_WARP, WARPS, DrawingOptions
from captcha_ocr.options.model import Lengths

from ..conftest import DEJAVU, DROID, FONTS, SERIF

PACKAGE = DrawingOptions(renderer="package")
TINY = replace(
    PACKAGE, lengths=Lengths(2, 2), charset="digits", width=48, height=16, font_sizes=(14,)
)


def draw(options, numbers):
    drawer = drawer_of(plan_drawing(options))
    return [drawer.draw(number) for number in numbers]


def test_drawing_leaves_the_random_numbers_of_the_caller_and_of_the_package_alone():
    state = random.getstate()
    draw(TINY, range(1))
    assert random.getstate() == state
    assert captcha.image.secrets is secrets


@pytest.mark.parametrize(
    "options", [{"design": CLASSIC_WARP}, {"height": 20}, {"fonts": (DEJAVU, SERIF)}]
)
def test_the_options_of_the_drawing_change_the_image_and_not_the_text(options):
    (first,), (other,) = draw(TINY, [3]), draw(replace(TINY, **options), [3])
    assert other.text == first.text
    assert other.image.tobytes() != first.image.tobytes()


def test_the_classic_warp_is_stronger_and_its_noise_arc_ends_in_the_last_fifth():
    def draw_with(design):
        """Return how far the first corner of each glyph moves up or down, and the arcs' ends."""
        with (
            mock.patch.object(Image.Image, "transform", autospec=True, side_effect=warp) as warps,
            mock.patch.object(ImageDraw.ImageDraw, "arc", autospec=True, side_effect=arc) as arcs,
        ):
            draw(replace(PACKAGE, design=design), range(20))
        quads = [call.args[3] for call in warps.mock_calls if call.args[2] == Image.Transform.QUAD]
        return np.abs(quads)[:, 1].mean(), [call.args[1][2] for call in arcs.mock_calls]

    warp, arc = Image.Image.transform, ImageDraw.ImageDraw.arc
    (reach, ends), (classic_reach, classic_ends) = map(draw_with, ("captcha", CLASSIC_WARP))
    assert classic_reach > 3 * reach
    assert len(classic_ends) == 20
    assert min(ends) < 128 <= min(classic_ends) <= max(classic_ends) <= 160


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
        slope = np.abs(np.diff(pixels, axis=2)).mean()
        means.append([pixels.mean(), pixels.std(), ink.mean(), slope])
    assert means[0] == pytest.approx(means[1], rel=0.05)


@pytest.mark.parametrize("character", "AQ7W")
def test_a_glyph_of_one_angle_size_and_colour_has_the_pixels_of_the_package(character, monkeypatch):
    turn, color = 0.8, (150, 90, 30)  # of the way from -30 to 30 degrees
    bits = iter([int(turn * 2**32)])
    settled = SimpleNamespace(  # turns a glyph as far, and leaves its corners in place
        choice=lambda fonts: fonts[0],
        randbelow=lambda bound: 0,
        randbits=lambda number: next(bits, 2**31),
    )
    monkeypatch.setattr(captcha.image, "secrets", settled)
    pen, package = ImageDraw.Draw(Image.new("L", (1, 1))), captcha.image.ImageCaptcha()
    theirs = package._draw_character(character, pen, (*color, 255))

    inked = raster(DROID, 42, character)
    turned = transform(inked.image, *rotation(random.Random(1), turn * 60 - 30))
    still = corners(turned, inked.cell, random.Random(1), x=0, y=0, fill=True, sampling="nearest")
    colored = paint(still, color, 1, 1.97)
    # The package also turns and warps the colours, rounded to 8 bits each time.
    assert np.abs(np.asarray(still).astype(int) - np.asarray(theirs.getchannel("A"))).max() <= 3
    painted, expected = (Image.new("RGB", still.size, "white") for _ in range(2))
    painted.paste(colored, mask=colored)
    expected.paste(theirs, mask=theirs.convert("L").point(package.lookup_table))
    assert np.abs(np.asarray(painted).astype(int) - expected).mean() < 2
