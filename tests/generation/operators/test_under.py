import random

import numpy as np
import pytest

from captcha_ocr.generation.operators.under import (
    blurred,
    box_of,
    extrusion,
    glow,
    halo,
    plate,
    shadow,
    shifted,
    strokes,
)

RNG = random.Random(1)


FULL = np.full((10, 20), 255, np.uint8)


def test_a_shadow_is_the_shifted_text(square):
    for x, y in ((3, 2), (-3, 2), (0, -4), (0, 0)):
        expected = np.roll(square, (y, x), (0, 1))  # the square stays away from the border
        assert np.array_equal(shadow(square, RNG, x=x, y=y, blur=0), expected)
        assert np.array_equal(shadow(square, RNG, x=x, y=y, blur=2), blurred(expected, 2))


def test_what_leaves_the_canvas_is_lost():
    assert np.count_nonzero(shifted(FULL, 3, -4)) == 17 * 6
    for x, y in ((20, 0), (0, -20), (-100, 100)):
        assert not shifted(FULL, x, y).any()


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
        assert mask.shape == square.shape
        assert (mask[square > 0] == 255).all()
        assert mask[16].sum(dtype=int) / 255 == pytest.approx(20 + 2 * width, abs=0.02)
    assert halo(FULL, RNG, width=10).shape == FULL.shape


def test_a_plate_is_the_box_of_the_text_and_its_margin(square):
    left, top, right, bottom = box_of(square)
    box = plate(square, RNG, margin=3, shape="box")
    assert (box[top - 3 : bottom + 3, left - 3 : right + 3] == 255).all()
    assert np.count_nonzero(box) == (bottom - top + 6) * (right - left + 6)
    ellipse = plate(square, RNG, margin=3, shape="ellipse")
    assert 0.7 < np.count_nonzero(ellipse) / np.count_nonzero(box) < 0.85  # a quarter of pi
    assert not plate(np.zeros_like(square), RNG, margin=3, shape="box").any()


def test_strokes_run_across_the_text_and_not_beyond(square):
    left, top, right, bottom = box_of(square)
    mask = strokes(square, random.Random(1), count=1, width=1)
    across, down = mask[:, left:right].any(0), mask[top:bottom].any(1)
    assert across.all() or down.all()
    assert not mask[: top - 1].any()
    assert not mask[:, : left - 1].any()
    many = strokes(square, random.Random(1), count=9, width=2)
    assert np.count_nonzero(many) > 5 * np.count_nonzero(mask)
