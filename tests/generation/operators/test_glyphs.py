import random

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.generation.operators.glyphs import (
    arch,
    blurred,
    box_of,
    corners,
    dilated,
    dotted,
    eroded,
    extrusion,
    glow,
    halo,
    jitter,
    outline,
    pits,
    plate,
    positions,
    rotation,
    scale,
    shadow,
    shear,
    shifted,
    slope,
    spray,
    squares,
    stretch,
    stripes,
    strokes,
    thicken,
    thin,
    threshold,
    wave,
)

RNG = random.Random(1)
FULL = np.full((400, 400), 255, np.uint8)


def test_rotation_scale_stretch_and_shear_move_points_as_they_say():
    for entries, point, moved in (  # y points down
        (rotation(RNG, angle=90), (1, 0), (0, -1)),
        (rotation(RNG, angle=90), (0, 1), (1, 0)),
        (rotation(RNG, angle=30), (2, 0), (3**0.5, -1)),
        (rotation(RNG, angle=30.4), (2, 0), (3**0.5, -1)),  # by whole degrees
        (scale(RNG, factor=1.5), (2, 10), (3, 15)),
        (stretch(RNG, factor=0.5), (2, 10), (1, 10)),
        (shear(RNG, factor=0.2, rise=0), (2, 10), (0, 10)),
        (shear(RNG, factor=0.2, rise=0), (0, -1), (0.2, -1)),  # what is above moves to the right
        (shear(RNG, factor=0, rise=0.5), (2, 10), (2, 9)),  # what is to the right moves up
    ):
        assert np.allclose(np.array(entries).reshape(2, 2) @ point, moved)


def test_corners_move_by_up_to_their_share_and_a_glyph_may_fill_its_cell(square):
    def move(seed, reach, fill=False, sampling="nearest"):
        image, rng = Image.fromarray(square), random.Random(seed)
        return np.asarray(corners(image, (50, 60), rng, reach, reach, fill, sampling))

    assert np.array_equal(move(1, 0), square)
    assert move(1, 0, fill=True).shape == (60, 50)
    masks = [move(seed, 0.2, sampling="smooth") for seed in range(9)]
    assert len({mask.tobytes() for mask in masks}) == 9
    for mask in masks:
        assert (mask.shape, mask[16, 16]) == (square.shape, 255)
        assert 0.4 < mask.sum(dtype=int) / square.sum(dtype=int) < 1.8
    assert not np.array_equal(move(1, 0.2), masks[1])


def test_strokes_get_wider_or_narrower_by_half_of_a_width_on_each_side(square):
    for width in (1, 2, 3, 4, 10):
        wide, narrow = thicken(square, RNG, width=width), thin(square, RNG, width=width)
        extra = (len(wide) - 32) // 2
        assert (wide[extra : extra + 32, extra : extra + 32][square > 0] == 255).all()
        sides = [mask[len(mask) // 2].sum(dtype=int) / 255 for mask in (narrow, wide)]
        assert sides == pytest.approx([20 - width, 20 + width], abs=0.02)
    point = np.array([[255]], np.uint8)
    assert dilated(point, 1).tolist() == [[0, 255, 0], [255, 255, 255], [0, 255, 0]]
    assert np.count_nonzero(eroded(FULL, 1)) == 398**2


def test_an_outline_has_a_hole_and_a_line_of_its_width(square):
    for width in (0.5, 1, 2, 3, 8):
        mask = outline(square, RNG, width=width)
        line = mask[len(mask) // 2]
        assert line[len(mask) // 2] == 0
        assert line.sum(dtype=int) / 255 == pytest.approx(2 * width, abs=0.05)


@pytest.mark.parametrize(("share", "size"), [(0, 1), (0.1, 1), (0.3, 2), (0.6, 4)])
def test_pits_remove_their_share_in_squares(share, size):
    mask = pits(FULL, RNG, share=share, size=size)
    assert 1 - mask.mean() / 255 == pytest.approx(share, abs=0.02)
    blocks = mask.reshape(400 // size, size, 400 // size, size)
    assert (blocks.min((1, 3)) == blocks.max((1, 3))).all()


def test_stripes_cut_a_gap_every_pitch_across_or_upright():
    for pitch, gap in ((3, 1), (5, 2), (2, 10)):
        mask = stripes(FULL, RNG, pitch=pitch, gap=gap, angle=0)
        kept = np.arange(400) % pitch >= min(gap, pitch - 1)
        assert np.array_equal(mask, np.repeat(kept[:, None] * np.uint8(255), 400, axis=1))
    upright = stripes(FULL, RNG, pitch=4, gap=1, angle=90)
    assert (upright == upright[:1]).all()
    assert 270 <= np.count_nonzero(upright[0]) <= 330


def test_dots_repeat_every_pitch_and_leave_space_between_them():
    mask = dotted(FULL, RNG, pitch=6)
    assert np.array_equal(mask[6:, 6:], mask[:-6, :-6])
    assert (mask[0, 0], mask[2, 2]) == (0, 255)
    assert 0.5 < mask.mean() / 255 < 0.9


def test_glyphs_become_hollow_squares_where_the_glyph_covers_a_third_of_them():
    mask = FULL.copy()
    mask[:, 203:] = 0
    built = squares(mask, RNG, pitch=5, width=1, angle=0)
    assert (built[:, :201:5] == 255).all()
    assert (built[2::5, 2:200:5] == 0).all()
    assert (built[:, 202:205] > 0).any()
    assert not built[:, 206:].any()
    turned = squares(FULL, RNG, pitch=5, width=1, angle=45)
    assert 0.2 < turned.mean() / 255 < 0.6


def test_a_threshold_leaves_nothing_between_ink_and_none():
    mask = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for level in (1, 128, 255):
        expected = np.where(mask >= level, np.uint8(255), np.uint8(0))
        assert np.array_equal(threshold(mask, RNG, level=level), expected)


def test_jitter_moves_each_glyph_by_up_to_its_reach():
    shifts = jitter(1000, RNG, reach=0.2)
    assert -0.2 <= shifts.min() < -0.18 < 0.18 < shifts.max() <= 0.2
    assert abs(shifts.mean()) < 0.02


def test_a_line_slopes_upwards_to_its_end_and_an_arch_has_its_middle_above():
    for shifts, expected in (  # positive is down
        (slope(3, RNG, rise=0.4), [0.2, 0, -0.2]),
        (slope(3, RNG, rise=-0.4), [-0.2, 0, 0.2]),
        (slope(1, RNG, rise=1), [0]),  # a single glyph stands in the middle
        (positions(1), [0.5]),
        (arch(3, RNG, height=0.2), [0.1, -0.1, 0.1]),
        (arch(3, RNG, height=-0.2), [-0.1, 0.1, -0.1]),
    ):
        assert shifts == pytest.approx(expected)


def test_a_wave_repeats_after_its_period_and_has_its_height():
    shifts = wave(400, RNG, height=0.3, period=4.1)
    assert np.allclose(shifts[41:], shifts[:-41])
    assert 0.29 < np.ptp(shifts) <= 0.3


def test_a_shadow_is_the_shifted_text(square):
    for x, y in ((3, 2), (-3, 2), (0, -4), (0, 0)):
        expected = np.roll(square, (y, x), (0, 1))  # the square stays away from the border
        assert np.array_equal(shadow(square, RNG, x=x, y=y, blur=0), expected)
        assert np.array_equal(shadow(square, RNG, x=x, y=y, blur=2), blurred(expected, 2))


def test_what_leaves_the_canvas_is_lost():
    for x, y, left in ((3, -4, 397 * 396), (400, 0, 0), (0, -400, 0), (-500, 800, 0)):
        assert np.count_nonzero(shifted(FULL, x, y)) == left


def test_an_extrusion_joins_the_text_and_its_shadow(square):
    mask = extrusion(square, RNG, x=4, y=-2)
    assert (mask[(square > 0) | (np.roll(square, (-2, 4), (0, 1)) > 0)] == 255).all()
    assert np.count_nonzero(mask) < 26 * 24
    assert np.array_equal(extrusion(square, RNG, x=0, y=0), square)


def test_a_glow_is_brightest_at_the_text_and_fades(square):
    mask = glow(square, RNG, sigma=2)
    assert (mask[10:22, 10:22] == 255).all()
    outside = mask[16, 26:32].astype(int)
    assert 0 < outside[1] < 255
    assert (np.diff(outside) <= 0).all()


def test_a_halo_reaches_its_width_around_the_text_and_is_cut_at_the_border(square):
    for width in (1, 2, 3.5):
        mask = halo(square, RNG, width=width)
        assert (mask[square > 0] == 255).all()
        assert mask[16].sum(dtype=int) / 255 == pytest.approx(20 + 2 * width, abs=0.02)
    assert np.array_equal(halo(FULL, RNG, width=10), FULL)


def test_spray_is_densest_in_the_text_and_thins_out_around_it():
    text = np.zeros((200, 200), np.uint8)
    text[80:120, 80:120] = 255
    mask = spray(text, random.Random(1), sigma=5, share=0.4)
    assert {*np.unique(mask)} == {0, 255}
    inside, near, far = mask[90:110, 90:110], mask[60:80, 80:120], mask[:50]
    assert inside.mean() / 255 == pytest.approx(0.4, abs=0.06)
    assert 0 < near.mean() < inside.mean() / 2
    assert not far.any()


def test_a_plate_is_the_box_of_the_text_and_its_margin(square):
    left, top, right, bottom = box_of(square)
    expected = np.zeros_like(square)
    expected[top - 3 : bottom + 3, left - 3 : right + 3] = 255
    assert np.array_equal(plate(square, RNG, margin=3, shape="box"), expected)
    ellipse = plate(square, RNG, margin=3, shape="ellipse")
    assert 0.7 < np.count_nonzero(ellipse) / np.count_nonzero(expected) < 0.85  # a quarter of pi
    assert not plate(np.zeros_like(square), RNG, margin=3, shape="box").any()


def test_strokes_run_across_the_text_and_not_beyond(square):
    left, top, right, bottom = box_of(square)
    mask = strokes(square, random.Random(1), count=1, width=1)
    across, down = mask[:, left:right].any(0), mask[top:bottom].any(1)
    assert across.all() or down.all()
    assert np.all(np.array(box_of(mask)[:2]) >= (left - 1, top - 1))
    many = strokes(square, random.Random(1), count=9, width=2)
    assert np.count_nonzero(many) > 5 * np.count_nonzero(mask)
