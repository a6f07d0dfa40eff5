import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import parse_design
from captcha_ocr.generation.rendering.rasters import raster
from captcha_ocr.generation.rendering.typesetting import Placed, Typesetter, knock_out, transform

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DEJAVU, SERIF = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSerif.ttf")
PLAIN = {"size": 30, "spacing": 0, "x": 0, "y": 0}
BLACK = (0, 0, 0)


def typesetter(text=PLAIN, seed=1, operators=(), faces=(DEJAVU,), **sections):
    """A typesetter whose design has these fields."""
    design = parse_design({"text": text, "operators": [*operators], **sections}, "it")
    steps = {stage: [] for stage in ("shape", "corners", "stroke", "layout", "under")}
    for step in design.steps:
        steps[step.operator.stage].append(step)
    return Typesetter(design, faces, steps, random.Random(seed))


def set_text(characters="abc", width=200, height=60, **options):
    return typesetter(**options).set_text(characters, [BLACK] * len(characters), width, height)[:2]


def glyph_of(character, **options):
    return typesetter(**options).make_glyph(character, BLACK)


def test_glyphs_stand_side_by_side_on_a_baseline():
    placed, wide = set_text("ago")
    assert wide == 200
    rights = [glyph.left + glyph.mask.shape[1] for glyph in placed]
    assert [glyph.left for glyph in placed] == [0, *rights[:-1]]
    bottoms = [glyph.top + glyph.mask.shape[0] for glyph in placed]
    assert abs(bottoms[0] - bottoms[2]) <= 1  # a and o; g reaches lower
    assert bottoms[1] > bottoms[0] + 4


def test_glyphs_aligned_by_their_middles_have_one_middle():
    placed, _ = set_text("ag.", text={**PLAIN, "align": "middle"})
    middles = [glyph.top + glyph.mask.shape[0] / 2 for glyph in placed]
    assert max(middles) - min(middles) <= 1


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_x_and_y_place_the_text_between_the_borders(place):
    placed, _ = set_text("HHH", text={**PLAIN, "x": place, "y": place})
    extent = placed[-1].left + placed[-1].mask.shape[1] - placed[0].left
    assert placed[0].left == round(place * (200 - extent))
    assert placed[0].top == pytest.approx(place * (60 - placed[0].mask.shape[0]), abs=1)


def test_spacing_is_a_share_of_the_mean_width_and_may_be_negative():
    for spacing in (-0.2, 0.5):
        placed, _ = set_text("HHH", text={**PLAIN, "spacing": spacing})
        width = placed[0].mask.shape[1]
        assert placed[1].left - placed[0].left == width + round(spacing * width)


def test_a_canvas_may_be_as_wide_as_the_text_with_padding():
    placed, wide = set_text("HHH", width=0, canvas={"padding": 7}, text={**PLAIN, "x": 0.5})
    assert placed[0].left == 7
    assert placed[-1].left + placed[-1].mask.shape[1] == wide - 7


def test_a_canvas_may_be_as_high_as_the_text_with_padding():
    setter = typesetter(canvas={"padding": 7}, text={**PLAIN, "y": 0.5})
    placed, _, high = setter.set_text("HHH", [BLACK] * 3, 200, 0)
    assert placed[0].top == 7
    assert high == placed[0].mask.shape[0] + 14


def test_a_text_wider_than_the_canvas_is_told():
    placed, wide = set_text("HHHHHHHHHH", width=50)
    assert wide == sum(glyph.mask.shape[1] for glyph in placed)


def test_a_spread_text_has_each_glyph_in_its_part():
    placed, wide = set_text("HHHH", text={**PLAIN, "spread": True})
    assert wide == 200
    middles = [glyph.left + glyph.mask.shape[1] / 2 for glyph in placed]
    assert middles == pytest.approx([25, 75, 125, 175], abs=1)
    moved, _ = set_text("HHHH", text={**PLAIN, "spread": True, "spacing": 0.5})
    shifts = [glyph.left - still.left for glyph, still in zip(moved, placed, strict=True)]
    assert 0 < max(map(abs, shifts)) <= 13


def test_blanks_and_an_indent_move_glyphs_to_the_right():
    plain, _ = set_text("HHH")
    blank = raster(DEJAVU, 30, " ").cell[0]
    with_blanks, _ = set_text("HHH", text={**PLAIN, "blanks": 1})
    assert [a.left - b.left for a, b in zip(with_blanks, plain, strict=True)] == [
        blank,
        2 * blank,
        3 * blank,
    ]
    indented, _ = set_text("HHH", text={**PLAIN, "indent": 2})
    assert indented[0].left - plain[0].left == pytest.approx(2 * plain[0].mask.shape[1], abs=1)


def test_a_size_from_a_range_is_that_of_the_font():
    exact = glyph_of("H")
    for size in ([30, 30], 30.0, [30.0, 30.0]):
        scaled = glyph_of("H", text={**PLAIN, "size": size})
        assert scaled.image.size == pytest.approx(exact.image.size, abs=4)
        ink = [np.asarray(glyph.image).sum() for glyph in (scaled, exact)]
        assert ink[0] / ink[1] == pytest.approx(1, abs=0.12)
        assert scaled.middle == pytest.approx(exact.middle, abs=1)


def test_a_character_without_ink_has_a_width():
    glyph = glyph_of(" ")
    assert (glyph.image.size, glyph.width) == ((0, 0), raster(DEJAVU, 30, " ").cell[0])
    assert set_text("a b")[0][1].mask.size == 0


def test_operators_on_glyphs_are_applied_in_their_order():
    def shape(*operators):
        return np.array(glyph_of("l", operators=operators).image.size[::-1])

    turn, wide = {"kind": "rotation", "angle": 90}, {"kind": "stretch", "factor": 3}
    plain = shape()
    assert shape(turn) == pytest.approx(plain[::-1], abs=3)
    assert shape(turn, wide) == pytest.approx([plain[1], 3 * plain[0]], abs=4)
    assert shape(wide, turn) == pytest.approx([3 * plain[1], plain[0]], abs=4)
    assert shape({"kind": "outline", "width": 1}, {"kind": "corners", "x": 0, "y": 0})[0] > plain[0]


def test_a_line_that_slopes_has_its_end_above_its_beginning():
    placed, _ = set_text("HHH", operators=[{"kind": "slope", "rise": 0.5}])
    assert placed[0].top - placed[2].top == pytest.approx(15, abs=1)


def test_one_font_for_the_text_or_one_for_each_glyph():
    def shapes(per_glyph):
        placed, _ = set_text("g" * 20, faces=(DEJAVU, SERIF), fonts={"per_glyph": per_glyph})
        return len({glyph.mask.tobytes() for glyph in placed})

    assert (shapes(False), shapes(True)) == (1, 2)


@pytest.mark.parametrize("factor", [4, 0.1])
def test_operators_that_scale_without_end_are_refused(factor):
    with pytest.raises(UsageError, match="scale"):
        set_text(operators=[{"kind": "scale", "factor": factor}] * 40)


def test_a_transform_keeps_the_ink_and_the_middle():
    mask = np.zeros((20, 30), np.uint8)
    mask[5:15, 5:25] = 255
    for matrix in ((1, 0, 0, 1), (0, 1, -1, 0), (0.8, 0.6, -0.6, 0.8), (2, 0, 0, 0.5)):
        mapped = np.asarray(transform(Image.fromarray(mask), *matrix))
        assert mapped.sum(dtype=int) == pytest.approx(mask.sum(dtype=int), rel=0.05)
        rows, columns = np.nonzero(mapped > 127)
        assert rows.mean() == pytest.approx((mapped.shape[0] - 1) / 2, abs=0.6)
        assert columns.mean() == pytest.approx((mapped.shape[1] - 1) / 2, abs=0.6)


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
    glyph = Placed(Image.fromarray(np.arange(100, dtype=np.uint8).reshape(10, 10)), left, top)
    (inside, across), part = glyph.window(20, 40)
    assert ((inside.start, inside.stop), (across.start, across.stop)) == (rows, columns)
    shape = rows[1] - rows[0], columns[1] - columns[0]
    assert glyph.mask[part].shape == shape
    assert np.zeros((20, 40), np.uint8)[inside, across].shape == shape


def test_where_glyphs_overlap_their_ink_is_knocked_out():
    full = Image.new("L", (10, 10), 255)
    first, second = knock_out([Placed(full, 0, 0), Placed(full, 6, 0)], 10, 16)
    assert (first.mask[:, :6] == 255).all()
    assert not first.mask[:, 6:].any()
    assert not second.mask[:, :4].any()
    assert (second.left, second.top) == (6, 0)
