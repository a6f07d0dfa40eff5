import numpy as np
import pytest

from captcha_ocr.generation.operators.registry import Area
from captcha_ocr.generation.operators.warps import (
    around_middle,
    elastic,
    lens,
    ripple,
    sine,
    swirl,
    turn,
)
from captcha_ocr.generation.rendering.renderer import find_sources, warp, warp_nearest

AREA = Area(61, 121, 4, "")


def warped(pixels, shifts):
    return warp(pixels, find_sources(shifts)).astype(int)


def test_a_sine_moves_rows_by_up_to_x_and_columns_by_up_to_y(rng):
    down, across = sine(AREA, rng, x=3, y=2, wavelength=40)
    assert (across == across[:, :1]).all()
    assert (down == down[:1]).all()
    assert 2.9 < np.abs(across).max() <= 3
    assert 1.9 < np.abs(down).max() <= 2
    assert np.allclose(down[0, 40:], down[0, :-40], atol=1e-4)
    assert not sine(AREA, rng, x=0, y=0, wavelength=40).any()


def test_elastic_is_smooth_and_as_strong_as_its_sigma(rng):
    shifts = np.stack([elastic(AREA, rng, sigma=2, rows=4) for _ in range(30)])
    assert 1 < shifts.std() < 2
    assert np.abs(np.diff(shifts, axis=-1)).max() < 1.5
    assert not elastic(AREA, rng, sigma=0, rows=4).any()


def test_a_lens_magnifies_the_middle_and_a_negative_one_shrinks_it(rng):
    square = np.zeros((61, 121, 3), np.uint8)
    square[26:35, 56:65] = 255
    sizes = [
        warped(square, lens(AREA, rng, strength=strength)).sum() / 765
        for strength in (-0.3, 0, 0.3)
    ]
    assert sizes[0] < 65
    assert sizes[1] == pytest.approx(81)
    assert sizes[2] > 120


def test_a_swirl_turns_the_middle_by_its_angle_and_leaves_the_border(rng):
    shifts = swirl(AREA, rng, angle=90)
    for y, x, moved in ((30, 61, (-1, -1)), (31, 60, (-1, 1)), (30, 59, (1, 1))):
        assert shifts[:, y, x] == pytest.approx(moved, abs=0.05)  # a quarter turn, clockwise
    assert np.abs(shifts[:, :, 0]).max() < 0.05
    assert not swirl(AREA, rng, angle=0).any()


def test_a_ripple_moves_bands_of_rows_sideways(rng):
    for rows in (1, 3, 20):
        down, across = ripple(AREA, rng, x=2, rows=rows)
        assert not down.any()
        assert (across == across[:, :1]).all()
        changes = np.flatnonzero(np.diff(across[:, 0])) + 1
        assert changes.tolist() == [*range(rows, 61, rows)]
        assert np.abs(across).max() <= 2


def test_the_weight_falls_from_the_middle_to_the_border():
    y, x, weight = around_middle(AREA)
    assert (y[30, 0], x[0, 60], weight[30, 60]) == (0, 0, 1)
    assert (np.diff(weight[30, 60:]) <= 0).all()
    assert weight[0, 0] == weight[-1, -1] == 0


def test_pixels_are_sampled_where_shifts_point_to():
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
    still = np.zeros((2, 20, 30), np.float32)
    down, right = np.array([[[1]], [[0]]], np.float32), np.array([[[0]], [[1]]], np.float32)
    assert np.array_equal(warped(pixels, still)[:-1, :-1], pixels[:-1, :-1])
    # The last row and column are 1/16 pixel off.
    assert np.abs(warped(pixels, still) - pixels).max() <= 32
    assert np.array_equal(warped(pixels, still + 5 * right)[:-1, :20], pixels[:-1, 5:25])
    between = (pixels[:-1].astype(int) + pixels[1:]) / 2
    assert np.abs(warped(pixels, still + down / 2)[:-1, :-1] - between[:, :-1]).max() <= 1
    far = still + np.float32(1000)
    assert np.abs(warped(pixels, far) - pixels[-1, -1]).max() <= 64
    owners = pixels[..., 0]
    assert np.array_equal(warp_nearest(owners, find_sources(still)), owners)
    assert (warp_nearest(owners, find_sources(far)) == owners[-1, -1]).all()


def test_a_turn_turns_the_whole_image_counterclockwise(rng):
    pixels = np.zeros((61, 121, 3), np.uint8)
    pixels[29:32, 75:106] = 255  # to the right of the middle
    turned = warped(pixels, turn(AREA, rng, angle=90))[..., 0]
    assert (turned[3:14, 60] == 255).all()  # above it
    assert not turned[31:].any()
    assert not turn(AREA, rng, angle=0).any()
