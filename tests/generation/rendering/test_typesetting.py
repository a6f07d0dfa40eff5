import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from captcha_ocr.generation.designs.design import parse_design
from captcha_ocr.generation.rendering.rasters import raster
from captcha_ocr.generation.rendering.typesetting import Glyph, Typesetter, knock_out, transform

from ..conftest import DEJAVU, SERIF

PLAIN = {"size": 30, "spacing": 0, "x": 0, "y": 0}
BLACK = (0, 0, 0)


def typesetter(operators=(), faces=(DEJAVU,), padding=8, per_glyph=False, **text):
    """A typesetter whose design has these fields."""
    document = {"text": PLAIN | text, "operators": [*operators], "canvas": {"padding": padding}}
    design = parse_design({**document, "fonts": {"per_glyph": per_glyph}}, "it")
    steps = defaultdict(list)
    for step in design.steps:
        steps[step.operator.stage].append(step)
    return Typesetter(design, faces, steps, random.Random(1))


def set_text(characters="abc", width=200, height=60, **fields):
    """Return the glyphs on the canvas, its width and its height."""
    return typesetter(**fields).set_text(characters, [BLACK] * len(characters), width, height)


def glyph_of(character, **fields):
    return typesetter(**fields).make_glyph(character, BLACK)


def right_of(glyph):
    return glyph.left + glyph.image.width


def lefts_of(glyphs):
    return np.array([glyph.left for glyph in glyphs])


def test_glyphs_stand_side_by_side_on_a_baseline():
    placed, wide, _ = set_text("ago")
    assert (wide, *lefts_of(placed)) == (200, 0, *map(right_of, placed[:-1]))
    a, g, o = (glyph.top + glyph.image.height for glyph in placed)
    assert abs(a - o) <= 1
    assert g > a + 4  # it reaches lower


def test_glyphs_at_the_distances_of_the_font_have_their_places_in_a_word():
    font = ImageFont.truetype(DEJAVU, 30)
    for characters in ("ilIM", "fW1."):
        placed, _, _ = set_text(characters, advance=True)
        for number, glyph in enumerate(placed, 1):
            word = Image.new("L", (200, 60))
            ImageDraw.Draw(word).text((0, 10), characters[:number], 255, font)
            assert right_of(glyph) == pytest.approx(word.getbbox()[2], abs=2)
    wider, _, _ = set_text("ilIM", advance=True, spacing=1)
    assert np.diff(lefts_of(wider)).min() > 10


def test_glyphs_aligned_by_their_middles_have_one_middle():
    placed, _, _ = set_text("ag.", align="middle")
    assert np.ptp([glyph.top + glyph.image.height / 2 for glyph in placed]) <= 1


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_x_and_y_place_the_text_between_the_borders(place):
    (first, *_, last), _, _ = set_text("HHH", x=place, y=place)
    assert first.left == round(place * (200 - right_of(last) + first.left))
    assert first.top == pytest.approx(place * (60 - first.image.height), abs=1)


@pytest.mark.parametrize("spacing", [-0.2, 0.5])
def test_spacing_is_a_share_of_the_mean_width_and_may_be_negative(spacing):
    (first, second, _), _, _ = set_text("HHH", spacing=spacing)
    assert second.left == right_of(first) + round(spacing * first.image.width)


def test_a_spread_text_has_each_glyph_in_its_part():
    placed, wide, _ = set_text("HHHH", spread=True)
    assert wide == 200
    middles = lefts_of(placed) + placed[0].image.width / 2
    assert middles == pytest.approx([25, 75, 125, 175], abs=1)
    moved, _, _ = set_text("HHHH", spread=True, spacing=0.5)
    assert 0 < np.abs(lefts_of(moved) - lefts_of(placed)).max() <= 13


def test_an_indent_moves_a_spread_text_by_a_share_of_a_part():
    placed, _, _ = set_text("HHHH", spread=True)
    moved, _, _ = set_text("HHHH", spread=True, indent=0.4)
    assert (lefts_of(moved) - lefts_of(placed)).tolist() == [20] * 4


def test_the_pen_starts_where_a_part_does_in_a_spread_text_at_the_distances_of_the_font():
    placed, _, _ = set_text("HiHH", spread=True, advance=True)
    inked = [raster(DEJAVU, 30, character) for character in "HiHH"]
    bearings = [ink.middle[0] - ink.image.width / 2 for ink in inked]
    assert lefts_of(placed) - bearings == pytest.approx([0, 50, 100, 150], abs=1)


def test_blanks_and_an_indent_move_glyphs_to_the_right():
    (plain, _, _), (moved, _, _) = set_text("HHH"), set_text("HHH", blanks=1)
    blank = raster(DEJAVU, 30, " ").cell[0]
    assert (lefts_of(moved) - lefts_of(plain)).tolist() == [blank, 2 * blank, 3 * blank]
    (indented, *_), _, _ = set_text("HHH", indent=2)
    assert indented.left - plain[0].left == pytest.approx(2 * plain[0].image.width, abs=1)


@pytest.mark.parametrize("size", [[30, 30], 30.0, [30.0, 30.0]])
def test_a_size_from_a_range_is_that_of_the_font(size):
    exact, scaled = glyph_of("H"), glyph_of("H", size=size)
    assert scaled.image.size == pytest.approx(exact.image.size, abs=4)
    assert np.sum(scaled.image) / np.sum(exact.image) == pytest.approx(1, abs=0.12)
    assert scaled.middle == pytest.approx(exact.middle, abs=1)


def test_a_character_without_ink_has_a_width():
    (_, blank, _), _, _ = set_text("a b")
    assert blank.image.size == (raster(DEJAVU, 30, " ").cell[0], 0)
    assert blank.mask.size == 0


def test_operators_on_glyphs_are_applied_in_their_order():
    turn, wide = {"kind": "rotation", "angle": 90}, {"kind": "stretch", "factor": 3}
    width, height = glyph_of("l").image.size
    for operators, expected in (
        ([turn], (height, width)),
        ([turn, wide], (3 * height, width)),
        ([wide, turn], (height, 3 * width)),
    ):
        assert glyph_of("l", operators=operators).image.size == pytest.approx(expected, abs=4)
    outlined = [{"kind": "outline", "width": 1}, {"kind": "corners", "x": 0, "y": 0}]
    assert glyph_of("l", operators=outlined).image.height > height


def test_a_glyph_may_go_without_an_operator():
    thick = {"kind": "thicken", "width": 4, "glyph_probability": 0.25}
    placed, _, _ = set_text("l" * 40, operators=[thick])
    widths = Counter(glyph.image.width for glyph in placed)
    plain = glyph_of("l").image.width
    assert widths == pytest.approx({plain: 30, plain + 4: 10}, abs=6)


def test_a_line_that_slopes_has_its_end_above_its_beginning():
    placed, _, _ = set_text("HHH", operators=[{"kind": "slope", "rise": 0.5}])
    assert placed[0].top - placed[2].top == pytest.approx(15, abs=1)


@pytest.mark.parametrize("per_glyph", [False, True])
def test_one_font_for_the_text_or_one_for_each_glyph(per_glyph):
    placed, _, _ = set_text("g" * 20, faces=(DEJAVU, SERIF), per_glyph=per_glyph)
    assert len({glyph.image.tobytes() for glyph in placed}) == 1 + per_glyph


@pytest.mark.parametrize(
    "matrix", [(1, 0, 0, 1), (0, 1, -1, 0), (0.8, 0.6, -0.6, 0.8), (2, 0, 0, 0.5)]
)
def test_a_transform_keeps_the_ink_and_the_middle(matrix):
    mask = np.zeros((20, 30), np.uint8)
    mask[5:15, 5:25] = 255
    mapped = np.asarray(transform(Image.fromarray(mask), *matrix))
    assert mapped.sum(dtype=int) == pytest.approx(mask.sum(dtype=int), rel=0.05)
    middle = (np.array(mapped.shape) - 1) / 2
    assert np.argwhere(mapped > 127).mean(0) == pytest.approx(middle, abs=0.6)


def test_a_glyph_that_is_shrunk_much_keeps_its_thin_lines():
    mask = np.zeros((200, 200), np.uint8)
    mask[::8] = 255
    small = np.asarray(transform(Image.fromarray(mask), 1 / 8, 0, 0, 1 / 8))
    assert small.shape == pytest.approx((25, 25), abs=2)
    assert small[3:-3, 3:-3].std() < 10


@pytest.mark.parametrize(
    ("left", "top", "rows", "columns"),
    [
        (5, 5, (5, 15), (5, 15)),
        (-4, -3, (0, 7), (0, 6)),
        (35, 15, (15, 20), (35, 40)),
        (99, 99, (99, 99), (99, 99)),
    ],
)
def test_what_lies_outside_the_canvas_is_cut(left, top, rows, columns):
    glyph = Glyph(Image.new("L", (10, 10)), 0, left=left, top=top)
    inside, part = glyph.window(20, 40)
    assert inside == (slice(*rows), slice(*columns))
    assert glyph.mask[part].shape == (rows[1] - rows[0], columns[1] - columns[0])


def test_where_glyphs_overlap_their_ink_is_knocked_out():
    full = Image.new("L", (10, 10), 255)
    first, second = knock_out([Glyph(full, 0), Glyph(full, 0, left=6)], 10, 16)
    assert (first.mask == [255] * 6 + [0] * 4).all()
    assert (second.mask == [0] * 4 + [255] * 6).all()
    assert (second.left, second.top) == (6, 0)


def test_ink_that_is_knocked_out_leaves_the_colours_of_the_rest():
    red = Image.new("RGBA", (10, 10), (255, 0, 0, 255))
    first, _ = knock_out([Glyph(red, 0), Glyph(red, 0, left=6)], 10, 16)
    assert (first.mask == [255] * 6 + [0] * 4).all()
    assert first.image.getpixel((0, 0)) == (255, 0, 0, 255)


def test_a_glyph_that_is_turned_again_as_far_is_the_same_image():
    turned = [{"kind": "rotation", "angle": 20}]
    first, second = (glyph_of("A", operators=turned).image for _ in range(2))
    assert first is second
    # Its size comes from a range: it is not kept.
    first, second = (glyph_of("A", operators=turned, size=[30, 30]).image for _ in range(2))
    assert first is not second
    assert first.tobytes() == second.tobytes()
