import random

import numpy as np
import pytest
from PIL import Image

from captcha_ocr.generation.operators.glyphs import (
    corners,
    dilated,
    dotted,
    eroded,
    outline,
    pits,
    rotation,
    same_size,
    scale,
    shear,
    stretch,
    stripes,
    thicken,
    thin,
    threshold,
)

RNG = random.Random(1)
RIGHT, DOWN = np.array([1, 0]), np.array([0, 1])


def matrix(entries):
    return np.array(entries).reshape(2, 2)


def moved_corners(mask, *rest, **options):
    return np.asarray(corners(Image.fromarray(mask), *rest, **options))


def test_a_rotation_turns_counterclockwise_where_y_points_down():
    quarter = matrix(rotation(RNG, angle=90))
    assert np.allclose(quarter @ RIGHT, -DOWN)
    assert np.allclose(quarter @ DOWN, RIGHT)
    assert np.allclose(
        matrix(rotation(RNG, angle=30)) @ matrix(rotation(RNG, angle=-30)), np.eye(2)
    )


def test_scale_stretch_and_shear_move_points_as_they_say():
    point = np.array([2, 10])
    assert np.allclose(matrix(scale(RNG, factor=1.5)) @ point, [3, 15])
    assert np.allclose(matrix(stretch(RNG, factor=0.5)) @ point, [1, 10])
    assert np.allclose(matrix(shear(RNG, factor=0.2)) @ point, [0, 10])
    assert np.allclose(
        matrix(shear(RNG, factor=0.2)) @ -DOWN, [0.2, -1]
    )  # what is above moves to the right


def test_corners_that_do_not_move_leave_a_glyph_as_it_is_or_fill_its_cell(square):
    still = {"x": 0, "y": 0}
    assert np.array_equal(
        moved_corners(square, (50, 60), RNG, **still, fill=False, sampling="nearest"), square
    )
    assert moved_corners(square, (50, 60), RNG, **still, fill=True, sampling="nearest").shape == (
        60,
        50,
    )


def test_corners_move_by_up_to_their_share(square):
    moved = [
        moved_corners(
            square, (32, 32), random.Random(seed), x=0.2, y=0.2, fill=False, sampling="smooth"
        )
        for seed in range(9)
    ]
    assert len({mask.tobytes() for mask in moved}) == 9
    for mask in moved:
        assert mask.shape == square.shape
        assert mask[16, 16] == 255
        assert 0.4 < mask.sum(dtype=int) / square.sum(dtype=int) < 1.8
    nearest = moved_corners(
        square, (32, 32), random.Random(1), x=0.2, y=0.2, fill=False, sampling="nearest"
    )
    assert not np.array_equal(nearest, moved[1])


@pytest.mark.parametrize(("width", "sides"), [(2, 22), (4, 24), (1, 21), (3, 23), (10, 30)])
def test_thicken_adds_half_of_its_width_on_each_side(square, width, sides):
    mask = thicken(square, RNG, width=width)
    extra = (mask.shape[0] - 32) // 2
    inner = mask[extra : extra + 32, extra : extra + 32]
    assert (inner[square > 0] == 255).all()
    assert mask[mask.shape[0] // 2].sum(dtype=int) / 255 == pytest.approx(sides, abs=0.02)


@pytest.mark.parametrize(("width", "sides"), [(2, 18), (4, 16), (1, 19), (3, 17), (10, 10)])
def test_thin_takes_half_of_its_width_from_each_side(square, width, sides):
    mask = thin(square, RNG, width=width)
    assert mask[mask.shape[0] // 2].sum(dtype=int) / 255 == pytest.approx(sides, abs=0.02)


def test_a_round_shape_stays_round():
    mask = np.zeros((21, 21), np.uint8)
    mask[10, 10] = 255
    grown = dilated(mask, 1)
    assert grown[10:13, 11].tolist() == [255, 255, 255]
    assert grown.shape == (23, 23)
    assert eroded(np.full((9, 9), 255, np.uint8), 1)[1:-1, 1:-1].sum(dtype=int) <= 9 * 9 * 255


@pytest.mark.parametrize("width", [1, 2, 3])
def test_an_outline_has_a_hole_and_a_line_of_its_width(square, width):
    mask = outline(square, RNG, width=width)
    middle = mask.shape[0] // 2
    assert mask[middle, middle] == 0
    line = mask[middle]
    assert line.sum(dtype=int) / 255 == pytest.approx(2 * width, abs=0.05)


def test_masks_with_one_middle_get_one_size():
    for first, second in ((4, 8), (8, 4), (4, 4)):
        big, small = same_size(
            np.full((first,) * 2, 255, np.uint8), np.full((second,) * 2, 255, np.uint8)
        )
        assert big.shape == small.shape == (max(first, second),) * 2


@pytest.mark.parametrize(("share", "size"), [(0, 1), (0.1, 1), (0.3, 2), (0.6, 4)])
def test_pits_remove_their_share_in_squares(share, size):
    full = np.full((400, 400), 255, np.uint8)
    mask = pits(full, RNG, share=share, size=size)
    assert {*np.unique(mask)} <= {0, 255}
    assert 1 - mask.mean() / 255 == pytest.approx(share, abs=0.02)
    blocks = mask.reshape(400 // size, size, 400 // size, size)
    assert (blocks.min((1, 3)) == blocks.max((1, 3))).all()


@pytest.mark.parametrize(("pitch", "gap"), [(3, 1), (5, 2), (2, 10)])
def test_stripes_cut_a_gap_every_pitch(pitch, gap):
    mask = stripes(np.full((60, 60), 255, np.uint8), RNG, pitch=pitch, gap=gap, angle=0)
    kept = [bool(row.all()) for row in mask]
    assert kept == [number % pitch >= min(gap, pitch - 1) for number in range(60)]
    assert ((mask == 0) | (mask == 255)).all()


def test_stripes_at_a_right_angle_stand_upright():
    mask = stripes(np.full((60, 60), 255, np.uint8), RNG, pitch=4, gap=1, angle=90)
    assert (mask == mask[:1]).all()
    assert 40 <= np.count_nonzero(mask[0]) <= 50


def test_dots_repeat_every_pitch_and_leave_space_between_them():
    mask = dotted(np.full((48, 48), 255, np.uint8), RNG, pitch=6)
    assert np.array_equal(mask[6:], mask[:-6])
    assert np.array_equal(mask[:, 6:], mask[:, :-6])
    assert mask[0, 0] == 0
    assert mask[2, 2] == 255
    assert 0.5 < mask.mean() / 255 < 0.9


def test_a_threshold_leaves_nothing_between_ink_and_none():
    mask = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert {
        level: np.count_nonzero(threshold(mask, RNG, level=level)) for level in (1, 128, 255)
    } == {**{1: 255, 128: 128, 255: 1}}
    assert {*np.unique(threshold(mask, RNG, level=100))} == {0, 255}
