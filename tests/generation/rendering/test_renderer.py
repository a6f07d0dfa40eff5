import random
from itertools import product

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.generation.designs.design import parse_design
from captcha_ocr.generation.rendering.renderer import blend, draw, why_illegible

from ..conftest import DEJAVU

CANVAS, TEXT, RED = (250, 240, 230), (10, 20, 30), (255, 0, 0)
PRIMARY = {RED, (0, 255, 0), (0, 0, 255)}
PLAIN = {"canvas": {"color": "#faf0e6"}, "text": {"color": "#0a141e", "size": 40}}
COLORED = {"color": {"one_of": ["#ff0000", "#00ff00", "#0000ff"]}, "color_per_glyph": True}


def drawing(*operators, text="AB8", seed=1, canvas=None, redraw_illegible=True, **fields):
    """Draw a plain design with operators, and with fields of [text] and [canvas]."""
    document = {
        "canvas": PLAIN["canvas"] | (canvas or {}),
        "text": PLAIN["text"] | fields,
        "operators": operators,
        "redraw_illegible": redraw_illegible,
    }
    return draw(parse_design(document, "it"), [DEJAVU], text, random.Random(seed))


def pixels(*operators, **options):
    return drawing(*operators, **options)[0]


def colors(image):
    """The colours of an image; numpy's unique is quicker for numbers than for rows."""
    numbers = np.unique(image.astype(int) @ [65536, 256, 1]).tolist()
    return {(number >> 16, number >> 8 & 255, number & 255) for number in numbers}


def share_of(image, color):
    return (image == np.array(color)).all(-1).mean()


def test_a_plain_image_has_the_colours_of_canvas_and_text_and_can_be_read():
    image, illegible = drawing()
    assert (image.shape, image.dtype, illegible) == ((60, 160, 3), np.uint8, None)
    assert share_of(image, CANVAS) > 0.5
    assert 0.03 < share_of(image, TEXT) < 0.4
    assert colors(pixels(color="canvas")) == {CANVAS}


DISCS = {"kind": "discs", "radius": 16, "count": 12, "color": "text"}


@pytest.mark.parametrize(
    ("operators", "options", "faults"),
    [
        ([], {"color": "canvas"}, {"contrast"}),
        ([], {"color": "canvas", "redraw_illegible": False}, {None}),
        ([], {"size": 160, "y": 1}, {"clipped"}),
        ([DISCS], {}, {"contrast", "hidden"}),
        ([DISCS | {"behind": True, "color": "#ffffff"}], {}, {None}),
    ],
)
def test_what_cannot_be_read_is_told_and_not_looked_at_if_nobody_asks(operators, options, faults):
    assert {drawing(*operators, **options, seed=seed)[1] for seed in range(20)} == faults


def test_each_glyph_and_what_lies_under_it_may_have_a_colour_of_its_own():
    for seed, per_glyph in product(range(2, 5), (True, False)):
        glyphs = pixels(**COLORED | {"color_per_glyph": per_glyph}, text="HHHHHH", seed=seed)
        assert (len(colors(glyphs) & PRIMARY) > 1) == per_glyph
        plate = {"kind": "plate", "margin": 0, "per_glyph": per_glyph}
        plates = pixels(
            plate, text="HHHHHH", seed=seed, opacity=0, redraw_illegible=False, **COLORED
        )
        assert (len(colors(plates) & PRIMARY) > 1) == per_glyph


def test_opacity_mixes_the_text_with_the_canvas():
    assert pixels(opacity=0.5)[..., 0].min() == pytest.approx(130, abs=2)


# Half of 128, of 255, covers a quarter of 250.
@pytest.mark.parametrize(("gain", "red"), [(0, 128), (0.5, 219), (5, 128)])
def test_opacity_may_be_that_of_the_luminance(gain, red):
    image = pixels(opacity_by_luminance=gain, color="#808080")
    values, counts = np.unique(image[..., 0], return_counts=True)
    most = values[np.argsort(counts)[-2:]].tolist()
    assert sorted(most) == pytest.approx([red, CANVAS[0]], abs=1)


def test_the_canvas_may_be_as_large_as_the_text():
    for size in (20, 60):
        image = pixels(canvas={"width": "text", "height": "text", "padding": 7}, size=size)
        left, top, right, bottom = Image.fromarray((image != CANVAS).any(-1)).getbbox()
        assert (left, top, *image.shape[:2]) == (7, 7, bottom + 7, right + 7)
        assert bottom - top == pytest.approx(0.75 * size, abs=2)


@pytest.mark.parametrize(("overflow", "reason"), [("squeeze", None), ("clip", "clipped")])
def test_a_text_that_is_too_wide_is_squeezed_or_runs_over_the_border(overflow, reason):
    image, illegible = drawing(text="HHHHH", canvas={"width": 60}, overflow=overflow, x=0)
    assert (image.shape, illegible) == ((60, 60, 3), reason)


def test_a_mark_lies_behind_the_text_or_over_it():
    lines = {"kind": "grid", "pitch": 6, "width": 3, "color": "#ff0000", "angle": 0}
    over, behind = (share_of(pixels({**lines, "behind": behind}), TEXT) for behind in (False, True))
    assert behind == pytest.approx(share_of(pixels(), TEXT), abs=0.01)
    assert over < 0.5 * behind


@pytest.mark.parametrize(("color", "rgb"), [("text", TEXT), ("canvas", CANVAS), ("#ff0000", RED)])
@pytest.mark.parametrize(("opacity", "tolerance"), [(0, 0), (0.5, 1), (1, 0)])
def test_a_mark_has_its_colour_and_opacity(color, rgb, opacity, tolerance):
    image = pixels({"kind": "border", "width": 4, "color": color, "opacity": opacity})
    expected = np.array(CANVAS) * (1 - opacity) + np.array(rgb) * opacity
    assert np.abs(image[:4] - expected).max() <= tolerance


@pytest.mark.parametrize(
    "mark",
    [
        {"kind": "discs", "count": 40, "smooth": False},
        {"kind": "dots", "share": 0.2},
        {"kind": "tiles"},
    ],
)
def test_the_items_of_a_mark_may_have_colours_of_their_own(mark):
    several, one = (
        pixels({**mark, "color": COLORED["color"], "color_per_item": per_item}, seed=3)
        for per_item in (True, False)
    )
    assert len(colors(several) & PRIMARY) > 1 == len(colors(one) & PRIMARY)
    shares = [1 - share_of(image, CANVAS) - share_of(image, TEXT) for image in (several, one)]
    assert shares[0] == pytest.approx(shares[1], rel=0.25)


def test_a_shadow_lies_under_the_text():
    image = pixels({"kind": "shadow", "x": 4, "y": 4, "blur": 0, "color": "#ff0000"})
    assert share_of(image, TEXT) == share_of(pixels(), TEXT)
    assert share_of(image, RED) > 0.01


INVERT = {"kind": "inversion", "region": "chequer", "size": 20}
BEND = {"kind": "sine", "x": 3, "y": 3, "wavelength": 60}


@pytest.mark.parametrize("operators", [[INVERT], [INVERT, BEND], [BEND, INVERT]])
def test_an_inversion_is_no_reason_not_to_read_a_text_also_when_the_image_is_bent(operators):
    image, illegible = drawing(*operators)
    assert illegible is None
    assert {CANVAS, (5, 15, 25)} <= colors(image)


BORDER = {"kind": "border", "width": 2, "color": "#ff0000"}


def test_operators_on_the_image_come_in_their_order():
    blur = {"kind": "blur", "sigma": 2}
    assert RED in colors(pixels(blur, BORDER))
    assert RED not in colors(pixels(BORDER, blur))
    # The image of JPEG cannot be written to.
    assert (pixels({"kind": "jpeg", "quality": 90}, BORDER)[0] == RED).all()


def test_a_probability_is_that_of_an_image():
    drawn = [pixels({**BORDER, "probability": 0.3}, seed=seed)[0, 0] == RED for seed in range(100)]
    assert 0.2 < np.all(drawn, axis=1).mean() < 0.4
    assert RED not in colors(pixels({**BORDER, "probability": 0}))


def test_overlapping_glyphs_cover_or_knock_each_other_out():
    over, out = (
        pixels(text="HHH", overlap=overlap, spacing=-0.5) for overlap in ("over", "knock out")
    )
    assert share_of(out, TEXT) < share_of(over, TEXT)


def test_blending_a_few_pixels_or_many_gives_the_same():
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (20, 30, 3), np.uint8)
    few, many = np.zeros((20, 30), np.uint8), np.ones((20, 30), np.uint8)
    few[3:6, 4:9] = many[3:6, 4:9] = rng.integers(1, 256, (3, 5))
    first, second = image.copy(), image.copy()
    blend(first, (200, 100, 0), few, 0.7)
    blend(second, (200, 100, 0), many, 0.7)
    assert np.array_equal(first[3:6, 4:9], second[3:6, 4:9])
    assert np.array_equal(first[10:], image[10:])
    assert np.abs(second.astype(int) - image)[10:].max() <= 1


SHAPE = (40, 80)
INK = [400 - 64] * 2
DARK, LIGHT = (20, 20, 20), (240, 240, 240)


def scene(color=DARK, ground=LIGHT):
    """An image of two frames of 20 by 20 pixels, and the map of its glyphs."""
    owners = np.zeros(SHAPE, np.uint8)
    for number, left in enumerate((15, 45), 1):
        owners[10:30, left : left + 20] = number
        owners[16:24, left + 6 : left + 14] = 0
    return np.where(owners[..., None], color, ground).astype(np.uint8), owners


@pytest.mark.parametrize(
    ("color", "ground", "reason"),
    [
        (DARK, LIGHT, None),
        ((255, 255, 255), (0, 0, 0), None),
        (LIGHT, LIGHT, "contrast"),
        ((220, 220, 220), LIGHT, "contrast"),
        ((200, 200, 200), LIGHT, None),
        ((255, 0, 0), (0, 130, 0), None),  # of the same luminance, but red on green
    ],
)
def test_too_little_contrast_is_found(color, ground, reason):
    assert why_illegible(*scene(color, ground), INK) == reason


Y, X = np.ogrid[: SHAPE[0], : SHAPE[1]]
NOISE = np.random.default_rng(1).random(SHAPE) < 0.45


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        (scene()[1] == 2, 235, "contrast"),  # one glyph is enough
        ((Y - 20) ** 2 + (X - 25) ** 2 < 14**2, 20, "hidden"),  # a disc of the glyph's colour
        ((Y >= 10) & (Y < 22) & (X >= 10) & (X < 35), 240, "hidden"),  # a box of the canvas's
        ((Y == 19) | (Y == 20) & (X >= 0), 20, None),  # a thin line
        (NOISE, 255 - scene()[0][NOISE], "hidden"),
    ],
)
def test_what_covers_a_glyph_or_its_surroundings_hides_it(where, value, reason):
    pixels, owners = scene()
    pixels[np.broadcast_to(where, SHAPE)] = value
    assert why_illegible(pixels, owners, INK) == reason


def test_a_glyph_that_has_lost_much_of_its_ink_or_has_little_is_clipped():
    pixels, owners = scene()
    inks = ([*INK, 100], [INK[0], 600], [INK[0], 400])  # of the first a glyph is not there at all
    reasons = [why_illegible(pixels, owners, ink) for ink in inks]
    assert reasons == ["clipped", "clipped", None]
    owners[owners == 2] = 0
    owners[10, 45:50] = 2
    assert why_illegible(pixels, owners, [INK[0], 5]) == "clipped"


@pytest.mark.parametrize("rows", [slice(None), 5])
def test_a_glyph_without_surroundings_or_between_the_rows_that_are_looked_at_is_hidden(rows):
    owners = np.zeros((16, 16), np.uint8)
    owners[rows] = 1
    assert why_illegible(np.zeros((16, 16, 3), np.uint8), owners, [owners.sum()]) == "hidden"
