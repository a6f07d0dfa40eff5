import random
from itertools import product

import numpy as np
import pytest
from PIL import Image, ImageFilter

from captcha_ocr.generation.operators.registry import Area
from captcha_ocr.generation.operators.whole_image import (
    blur,
    downscale,
    edges,
    elastic,
    grain,
    inversion,
    jpeg,
    lens,
    palette,
    ripple,
    salt_and_pepper,
    sharpen,
    sine,
    smooth,
    swirl,
    tint,
    tone,
    turn,
)
from captcha_ocr.generation.rendering.renderer import find_sources, warp, warp_nearest

LARGE = Area(200, 300, 5, "")
AREA = Area(61, 121, 4, "")


@pytest.fixture
def steps():
    """An image of 200 by 200 pixels with soft and hard edges."""
    y, x = np.mgrid[:200, :200]
    return np.stack([x * 1.2, y * 1.2, (x // 40 + y // 40) % 2 * 200], -1).astype(np.uint8)


def grey(value):
    return np.full((200, 200, 3), value, np.uint8)


def roughness(image):
    """How far a pixel is from its neighbour to the right, on average."""
    return np.abs(np.diff(image.astype(int), axis=1)).mean()


@pytest.mark.parametrize(
    ("operator", "fields"),
    [
        (blur, {"sigma": 0}),
        (sharpen, {"amount": 0}),
        (downscale, {"factor": 1, "down": "area", "up": "smooth"}),
        (downscale, {"factor": 1, "down": "nearest", "up": "smooth"}),
        (tint, {"hue": 0, "amount": 0}),
        (edges, {"amount": 0}),
    ],
)
def test_an_operator_of_no_strength_changes_no_pixel(rng, pixels, operator, fields):
    assert np.array_equal(operator(pixels, rng, **fields), pixels)


@pytest.mark.parametrize(
    ("operator", "fields"),
    [
        (sine, {"x": 0, "y": 0, "wavelength": 40}),
        (elastic, {"sigma": 0, "rows": 4}),
        (lens, {"strength": 0, "width": 0.5}),
        (swirl, {"angle": 0}),
        (turn, {"angle": 0}),
    ],
)
def test_a_warp_of_no_strength_moves_nothing(rng, operator, fields):
    assert not operator(AREA, rng, **fields).any()


def test_grain_has_its_sigma_and_a_colour_only_if_asked_for(rng):
    for colored in (False, True):
        noise = grain(grey(128), rng, sigma=10, colored=colored).astype(float) - 128
        assert noise.std() == pytest.approx(10, abs=0.3)
        assert abs(noise.mean()) < 1
        assert (noise[..., 0] == noise[..., 1]).all() != colored


def test_salt_and_pepper_make_their_share_black_or_white(rng):
    result = salt_and_pepper(grey(128), rng, share=0.1)
    shares = [(result == value).mean() for value in (0, 128, 255)]
    assert shares == pytest.approx([0.05, 0.9, 0.05], abs=0.005)
    assert sum(shares) == pytest.approx(1)
    assert (result[..., 0] == result[..., 2]).all()


def test_a_blur_is_nearly_that_of_a_gaussian(rng, steps):
    for sigma in (0.5, 1.2, 1.5, 4):
        result = blur(steps, rng, sigma=sigma)
        assert result.mean() == pytest.approx(steps.mean(), abs=1)
        exact = np.asarray(Image.fromarray(steps).filter(ImageFilter.GaussianBlur(sigma)))
        assert np.abs(result - exact.astype(int)).mean() < 1.5
        assert not np.array_equal(result, steps)


def test_smooth_is_pillow_s_filter_to_the_bit(rng):
    source = np.random.default_rng(1)
    for size in ((32, 80), (16, 170), (1, 80), (80, 1), (3, 3)):
        image = source.integers(0, 256, (*size, 3), np.uint8)
        expected = np.asarray(Image.fromarray(image).filter(ImageFilter.SMOOTH))
        assert np.array_equal(smooth(image, rng), expected)


def test_sharpen_widens_the_differences_at_edges_and_keeps_what_is_flat(rng, steps):
    assert roughness(sharpen(steps, rng, amount=1)) > roughness(steps)
    assert np.array_equal(sharpen(grey(99), rng, amount=5), grey(99))


@pytest.mark.parametrize("down", ["area", "nearest"])
def test_a_downscaled_image_has_as_few_different_pixels_as_the_small_one(rng, pixels, down):
    result = downscale(pixels, rng, factor=0.5, down=down, up="nearest")
    assert len(np.unique(result.reshape(-1, 3), axis=0)) <= 16 * 40
    assert abs(result.mean() - pixels.mean()) < 8


def test_jpeg_changes_pixels_and_keeps_the_mean_and_less_with_more_quality(rng, steps):
    differences = [
        jpeg(steps, rng, quality=quality) - steps.astype(int) for quality in (10, 50, 95)
    ]
    assert np.mean(differences, (1, 2, 3)) == pytest.approx(0, abs=3)
    worst, middle, best = np.abs(differences).mean((1, 2, 3))
    assert worst > middle > best > 0


def test_a_palette_has_at_most_its_colours_and_dithering_mixes_them(rng, steps):
    for colors, dither in product((2, 8, 256), (False, True)):
        image = palette(steps, rng, colors=colors, dither=dither)
        assert 1 < len(Image.fromarray(image).getcolors(40_000)) <= colors
    plain, dithered = (palette(steps, rng, colors=8, dither=dither) for dither in (False, True))
    assert roughness(dithered) > roughness(plain)


def test_a_gamma_darkens_or_brightens_and_a_contrast_moves_from_the_middle(rng):
    for value, gamma, contrast, expected in (
        (100, 1, 1, 100),
        (100, 2, 1, 255 * (100 / 255) ** 2),
        (100, 0.5, 1, 255 * (100 / 255) ** 0.5),
        (100, 1, 0.5, 113),
        (0, 1, 3, 0),
        (255, 1, 3, 255),
    ):
        result = tone(grey(value), rng, gamma=gamma, contrast=contrast)
        assert np.abs(result - expected).max() <= 1.5


def test_a_tint_mixes_in_its_hue(rng):
    for hue, channel in ((0, 0), (120, 1), (240, 2), (-120, 2)):
        result = tint(grey(128), rng, hue=hue, amount=0.3)[0, 0]
        assert result.argmax() == channel
        assert result[channel] == pytest.approx(0.7 * 128 + 0.3 * 255, abs=1.5)


def test_edges_stand_on_grey(rng, steps):
    only, half = edges(steps, rng, amount=1), edges(steps, rng, amount=0.5)
    same = (np.diff(steps.astype(int), axis=1) == 0).all((0, 2))  # columns like the next one
    flat = np.flatnonzero(same[:-1] & same[1:]) + 1
    assert (only[1:-1, flat] == 127).all()
    assert (only[1:-1, 1:-1] != 127).any()
    assert np.abs(half - (steps.astype(int) + only) / 2).max() <= 1


def test_an_inversion_marks_a_part_and_not_all_and_a_band_has_its_size():
    for region, seed in product(("curve", "chequer", "band"), range(10)):
        mask = inversion(LARGE, random.Random(seed), region=region, size=30)
        assert {*np.unique(mask)} == {0, 255}
        assert 0.02 < mask.mean() / 255 < 0.98
    assert 15 <= np.count_nonzero(mask[:, 0]) <= 30
    assert (mask == mask[:, :1]).all()


def warped(pixels, shifts):
    return warp(pixels, find_sources(shifts)).astype(int)


def test_a_sine_moves_rows_by_up_to_x_and_columns_by_up_to_y(rng):
    down, across = sine(AREA, rng, x=3, y=2, wavelength=40)
    for shifts, reach in ((down, 2), (across.T, 3)):
        assert (shifts == shifts[:1]).all()
        assert reach - 0.1 < np.abs(shifts).max() <= reach
    assert np.allclose(down[0, 40:], down[0, :-40], atol=1e-4)


def test_elastic_is_smooth_and_as_strong_as_its_sigma(rng):
    shifts = np.stack([elastic(AREA, rng, sigma=2, rows=4) for _ in range(30)])
    assert 1 < shifts.std() < 2
    assert np.abs(np.diff(shifts, axis=-1)).max() < 1.5


def test_a_lens_magnifies_the_middle_and_a_negative_one_shrinks_it(rng):
    square = np.zeros((61, 121, 3), np.uint8)
    square[26:35, 56:65] = 255
    lenses = [lens(AREA, rng, strength=strength, width=1) for strength in (-0.3, 0, 0.3)]
    shrunk, same, enlarged = (warped(square, shifts).sum() / 765 for shifts in lenses)
    assert shrunk < 65 < same < 120 < enlarged
    assert same == pytest.approx(81)
    assert np.abs(lenses[0][:, [0, -1]]).max() < 0.1  # the border stays
    narrow = lens(AREA, rng, strength=0.3, width=0.25)
    assert np.flatnonzero(np.abs(narrow).max((0, 1)) > 0.01).tolist() == [*range(46, 75)]


def test_a_swirl_turns_the_middle_by_its_angle_and_leaves_the_border(rng):
    shifts = swirl(AREA, rng, angle=90)
    for y, x, moved in ((30, 61, (-1, -1)), (31, 60, (-1, 1)), (30, 59, (1, 1))):
        assert shifts[:, y, x] == pytest.approx(moved, abs=0.05)  # a quarter turn, clockwise
    assert np.abs(shifts[:, :, 0]).max() < 0.05


def test_a_ripple_moves_bands_of_rows_sideways(rng):
    for rows in (1, 3, 20):
        down, across = ripple(AREA, rng, x=2, rows=rows)
        assert not down.any()
        assert (across == across[:, :1]).all()
        changes = np.flatnonzero(np.diff(across[:, 0])) + 1
        assert changes.tolist() == [*range(rows, 61, rows)]
        assert np.abs(across).max() <= 2


def test_pixels_are_sampled_where_shifts_point_to():
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8).astype(int)
    still = np.zeros((2, 20, 30), np.float32)
    down, right = np.array([[[1]], [[0]]], np.float32), np.array([[[0]], [[1]]], np.float32)
    between = (pixels[:-1] + pixels[1:]) / 2
    for shifts, expected, tolerance in (
        (still, pixels[:-1, :-1], 0),
        (still, pixels, 32),  # the last row and column are 1/16 pixel off
        (still + 5 * right, pixels[:-1, 5:25], 0),
        (still + down / 2, between[:, :-1], 1),
        (still + 1000, np.broadcast_to(pixels[-1, -1], pixels.shape), 64),
    ):
        result = warped(pixels.astype(np.uint8), shifts)[: len(expected), : len(expected[0])]
        assert np.abs(result - expected).max() <= tolerance
    owners = pixels[..., 0].astype(np.uint8)
    assert np.array_equal(warp_nearest(owners, find_sources(still)), owners)
    assert (warp_nearest(owners, find_sources(still + 1000)) == owners[-1, -1]).all()


def test_a_turn_turns_the_whole_image_counterclockwise(rng):
    pixels = np.zeros((61, 121, 3), np.uint8)
    pixels[29:32, 75:106] = 255  # to the right of the middle
    turned = warped(pixels, turn(AREA, rng, angle=90))[..., 0]
    assert (turned[3:14, 60] == 255).all()  # above it
    assert not turned[31:].any()
