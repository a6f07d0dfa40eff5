import importlib.util
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import design_names, parse_design, read_document
from captcha_ocr.generation.rendering.renderer import Scene, blend, draw

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DEJAVU = str(FONTS / "DejaVuSans.ttf")
CANVAS, TEXT = (250, 240, 230), (10, 20, 30)
PLAIN = {"canvas": {"color": "#faf0e6"}, "text": {"color": "#0a141e", "size": 40}}


def drawing(document=PLAIN, *operators, text="AB8", seed=1):
    design = parse_design({**document, "operators": [*operators]}, "it")
    return draw(design, [DEJAVU], text, random.Random(seed))


def pixels(*arguments, **options):
    return drawing(*arguments, **options).pixels


def with_fields(**sections):
    return {name: {**PLAIN.get(name, {}), **sections.get(name, {})} for name in {*PLAIN, *sections}}


def colors(image):
    """The colours of an image; numpy's unique is quicker for numbers than for rows."""
    numbers = np.unique(image.astype(int) @ [65536, 256, 1]).tolist()
    return {(number >> 16, number >> 8 & 255, number & 255) for number in numbers}


def share_of(image, color):
    return (image == np.array(color)).all(-1).mean()


def test_a_plain_image_has_the_colours_of_canvas_and_text_and_can_be_read():
    image, illegible = drawing()
    assert (image.shape, image.dtype, illegible) == ((60, 160, 3), np.uint8, None)
    assert {CANVAS, TEXT} <= colors(image)
    assert share_of(image, CANVAS) > 0.5
    assert 0.03 < share_of(image, TEXT) < 0.4


def test_the_same_random_state_gives_the_same_image():
    for name in design_names():
        design = parse_design(read_document(name), name)
        first, second, other = (
            draw(design, [DEJAVU], "ab12", random.Random(seed)) for seed in (1, 1, 2)
        )
        assert np.array_equal(first.pixels, second.pixels)
        assert not np.array_equal(first.pixels, other.pixels)


def test_text_of_the_canvas_s_colour_cannot_be_read_and_is_not_looked_at_if_nobody_asks():
    document = with_fields(text={"color": "canvas"})
    assert drawing(document).illegible == "contrast"
    assert colors(pixels(document)) == {CANVAS}
    assert drawing({**document, "redraw_illegible": False}).illegible is None


def test_text_outside_the_canvas_is_clipped_and_text_under_a_disc_hidden():
    assert drawing(with_fields(text={"size": 160, "y": 1})).illegible == "clipped"
    disc = {"kind": "discs", "radius": 16, "count": 12, "color": "text"}
    assert {drawing(PLAIN, disc, seed=seed).illegible for seed in range(20)} >= {"hidden"}
    assert drawing(PLAIN, {**disc, "behind": True, "color": "#ffffff"}).illegible is None


def test_each_glyph_may_have_a_colour_of_its_own():
    color = {"one_of": ["#ff0000", "#00ff00", "#0000ff"]}
    document = with_fields(text={"color": color, "color_per_glyph": True})
    primary = {(255, 0, 0), (0, 255, 0), (0, 0, 255)}
    assert len(colors(pixels(document, text="HHHHHH", seed=2)) & primary) > 1
    document["text"]["color_per_glyph"] = False
    assert all(
        len(colors(pixels(document, text="HHHHHH", seed=seed)) & primary) == 1 for seed in range(5)
    )


def test_opacity_mixes_the_text_with_the_canvas():
    half = colors(pixels(with_fields(text={"opacity": 0.5})))
    assert TEXT not in half
    assert min(red for red, _, _ in half) == pytest.approx(130, abs=2)
    by_light = []
    for gain in (0, 0.5, 5):
        drawn = pixels(with_fields(text={"opacity_by_luminance": gain, "color": "#808080"}))
        found = Counter(map(tuple, drawn.reshape(-1, 3).tolist()))
        by_light.append(next(color for color, _ in found.most_common(2) if color != CANVAS)[0])
    assert by_light[0] == 128
    assert by_light[2] == pytest.approx(128, abs=1)
    assert by_light[1] == pytest.approx(219, abs=1)  # half of 128, of 255, covers a quarter of 250


def test_the_canvas_may_be_as_wide_as_the_text_and_a_text_that_is_too_wide_is_squeezed():
    wide = pixels(with_fields(canvas={"width": "text", "padding": 10}))
    assert (wide[:, :9] == CANVAS).all()
    assert wide.shape[1] < 160
    squeezed, illegible = drawing(with_fields(canvas={"width": 60}), text="HHHHH")
    assert squeezed.shape == (60, 60, 3)
    assert illegible is None


def test_the_canvas_may_be_as_high_as_the_text():
    document = with_fields(canvas={"height": "text", "padding": 10})
    small, large = (
        pixels(with_fields(**{**document, "text": {"size": size}})) for size in (20, 60)
    )
    assert large.shape[0] - 20 == pytest.approx(3 * (small.shape[0] - 20), abs=4)
    for image in (small, large):
        assert (image[:9] == CANVAS).all()
        assert (image[-9:] == CANVAS).all()


def test_what_lies_under_the_text_may_have_the_colours_of_its_glyphs():
    color = {"one_of": ["#ff0000", "#00ff00", "#0000ff"]}
    document = with_fields(text={"color": color, "color_per_glyph": True, "opacity": 0})
    primary = {(255, 0, 0), (0, 255, 0), (0, 0, 255)}
    for per_glyph, several in ((True, True), (False, False)):
        plate = {"kind": "plate", "margin": 0, "per_glyph": per_glyph}
        drawn = (
            colors(pixels({**document, "redraw_illegible": False}, plate, text="HHHHHH", seed=2))
            & primary
        )
        assert (len(drawn) > 1) == several


def test_a_text_that_is_too_wide_may_run_over_the_border():
    clipped = drawing(
        with_fields(canvas={"width": 60}, text={"overflow": "clip", "x": 0}), text="HHHHH"
    )
    assert clipped.pixels.shape == (60, 60, 3)
    assert clipped.illegible == "clipped"


def test_a_mark_lies_behind_the_text_or_over_it():
    lines = {"kind": "grid", "pitch": 6, "width": 3, "color": "#ff0000", "angle": 0}
    over, behind = (pixels(PLAIN, {**lines, "behind": behind}) for behind in (False, True))
    assert share_of(behind, TEXT) == pytest.approx(share_of(pixels(), TEXT), abs=0.01)
    assert share_of(over, TEXT) < 0.5 * share_of(behind, TEXT)


@pytest.mark.parametrize("color", ["text", "canvas", "#ff0000"])
def test_a_mark_has_its_colour_and_opacity(color):
    border = {"kind": "border", "width": 4, "color": color}
    expected = np.array({"text": TEXT, "canvas": CANVAS}.get(color, (255, 0, 0)))
    assert (pixels(PLAIN, border)[:4] == expected).all()
    assert (pixels(PLAIN, {**border, "opacity": 0})[:4] == CANVAS).all()
    mixed = pixels(PLAIN, {**border, "opacity": 0.5})[0, 0]
    assert mixed == pytest.approx((np.array(CANVAS) + expected) / 2, abs=1)


@pytest.mark.parametrize(
    "mark",
    [
        {"kind": "discs", "count": 40, "smooth": False},
        {"kind": "dots", "share": 0.2},
        {"kind": "tiles"},
    ],
)
def test_the_items_of_a_mark_may_have_colours_of_their_own(mark):
    hues = {"one_of": ["#ff0000", "#00ff00", "#0000ff", "#ffff00", "#00ffff"]}
    several = pixels(PLAIN, {**mark, "color": hues, "color_per_item": True}, seed=3)
    one = pixels(PLAIN, {**mark, "color": hues, "color_per_item": False}, seed=3)
    pure = {(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255)}
    assert len(colors(several) & pure) > 1
    assert len(colors(one) & pure) == 1
    covered = [
        (~((image == CANVAS).all(-1) | (image == TEXT).all(-1))).mean() for image in (several, one)
    ]
    assert covered[0] == pytest.approx(covered[1], rel=0.25)


def test_a_shadow_lies_under_the_text():
    shadow = {"kind": "shadow", "x": 4, "y": 4, "blur": 0, "color": "#ff0000"}
    image = pixels(PLAIN, shadow)
    assert share_of(image, TEXT) == share_of(pixels(), TEXT)
    assert share_of(image, (255, 0, 0)) > 0.01


def test_an_inversion_is_no_reason_not_to_read_a_text_also_when_the_image_is_bent():
    invert = {"kind": "inversion", "region": "chequer", "size": 20}
    bend = {"kind": "sine", "x": 3, "y": 3, "wavelength": 60}
    for operators in ([invert], [invert, bend], [bend, invert]):
        image, illegible = drawing(PLAIN, *operators)
        assert illegible is None
        assert {CANVAS, (5, 15, 25)} <= colors(image)


def test_operators_on_the_image_come_in_their_order():
    border, blur = {"kind": "border", "width": 2, "color": "#ff0000"}, {"kind": "blur", "sigma": 2}
    assert (255, 0, 0) in colors(pixels(PLAIN, blur, border))
    assert (255, 0, 0) not in colors(pixels(PLAIN, border, blur))


def test_a_mark_may_follow_an_operator_whose_result_cannot_be_written_to():
    assert (
        pixels(PLAIN, {"kind": "jpeg", "quality": 90}, {"kind": "border", "width": 1})[0] == TEXT
    ).all()


def test_a_probability_is_that_of_an_image():
    border = {"kind": "border", "width": 2, "color": "#ff0000", "probability": 0.3}
    found = [(255, 0, 0) in colors(pixels(PLAIN, border, seed=seed)) for seed in range(200)]
    assert 0.2 < np.mean(found) < 0.4
    assert (255, 0, 0) not in colors(pixels(PLAIN, {**border, "probability": 0}))


def test_overlapping_glyphs_cover_or_knock_each_other_out():
    def ink(overlap):
        image = pixels(with_fields(text={"overlap": overlap, "spacing": -0.5}), text="HHH")
        return share_of(image, TEXT)

    assert ink("knock out") < ink("over")


def test_an_image_of_too_many_pixels_is_refused_before_it_is_made():
    document = {"canvas": {"width": "text", "height": 4096}, "text": {"size": 512}}
    with pytest.raises(UsageError, match=r"(?=.*canvas\.height)(?=.*text\.size).*4,000,000"):
        drawing(document, text="H" * 64)


def test_blending_a_few_pixels_or_many_gives_the_same():
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (20, 30, 3), np.uint8)
    few = np.zeros((20, 30), np.uint8)
    few[3:6, 4:9] = rng.integers(1, 256, (3, 5))
    many = np.full((20, 30), 1, np.uint8)
    many[3:6, 4:9] = few[3:6, 4:9]
    first, second = image.copy(), image.copy()
    blend(first, (200, 100, 0), few, 0.7)
    blend(second, (200, 100, 0), many, 0.7)
    assert np.array_equal(first[3:6, 4:9], second[3:6, 4:9])
    assert np.array_equal(first[10:], image[10:])
    assert np.abs(second.astype(int) - image)[10:].max() <= 1


def test_a_scene_knows_its_colours():
    scene = Scene(parse_design(PLAIN, "it"), [DEJAVU], random.Random(1))
    assert [scene.rgb(color) for color in ("canvas", "text", (1, 2, 3))] == [
        CANVAS,
        TEXT,
        (1, 2, 3),
    ]
