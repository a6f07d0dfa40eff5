import random

import numpy as np
import pytest

from captcha_ocr.generation.operators.marks import (
    PATHS,
    arc,
    blobs,
    border,
    discs,
    dots,
    gradient,
    grid,
    hatching,
    lines,
    path_points,
    rings,
    speck,
    specks,
    texture,
    tiles,
)
from captcha_ocr.generation.operators.registry import Area

LARGE = Area(300, 400, 5, "")


def share(mask):
    """The share of the image that a mask covers."""
    return mask.mean() / 255


@pytest.mark.parametrize("path", PATHS)
def test_lines_are_as_wide_as_they_say_and_more_of_them_cover_more(path):
    covered = {
        (count, width): np.mean(
            [
                share(
                    lines(
                        LARGE,
                        random.Random(seed),
                        count=count,
                        path=path,
                        width=width,
                        beads=0,
                        smooth=True,
                    )
                )
                for seed in range(8)
            ]
        )
        for count, width in ((1, 2), (1, 8), (6, 2))
    }
    assert covered[1, 8] == pytest.approx(4 * covered[1, 2], rel=0.3)
    assert covered[6, 2] > 3 * covered[1, 2]


@pytest.mark.parametrize("path", [path for path in PATHS if path not in ("straight", "upright")])
def test_a_path_runs_from_the_left_of_the_image_to_its_right(path, rng):
    for _ in range(50):
        x = [point[0] for point in path_points(LARGE, rng, path)]
        assert -0.05 * 400 <= x[0] <= 0.2 * 400
        assert 0.8 * 400 <= x[-1] <= 1.05 * 400


def test_only_smooth_lines_have_grey_pixels():
    for smooth in (False, True):
        mask = lines(
            LARGE, random.Random(1), count=1, path="bezier", width=3, beads=0, smooth=smooth
        )
        assert bool({*np.unique(mask)} - {0, 255}) == smooth


def test_arcs_begin_in_the_left_fifth_and_reach_their_end():
    ends = []
    for seed in range(100):
        columns = np.flatnonzero(arc(LARGE, random.Random(seed), count=1, width=1, end=0.8).any(0))
        ends.append(columns[-1])
        assert columns[0] < 0.35 * 400
    assert min(ends) > 0.7 * 400
    soon = [
        np.flatnonzero(arc(LARGE, random.Random(n), count=1, width=1, end=0.2).any(0))[-1]
        for n in range(100)
    ]
    assert min(soon) < 0.4 * 400


def test_discs_are_filled_and_rings_hollow(rng):
    disc = discs(LARGE, random.Random(4), count=1, radius=20, ring=0, smooth=False)
    ring = discs(LARGE, random.Random(4), count=1, radius=20, ring=3, smooth=False)
    rows, columns = (np.flatnonzero(disc.any(axis)) for axis in (1, 0))
    assert 2 * 0.6 * 20 - 2 <= max(len(rows), len(columns)) <= 2 * 20 + 2
    middle = rows.mean().astype(int), columns.mean().astype(int)
    assert (disc[middle], ring[middle]) == (255, 0)
    assert share(ring) < share(disc)
    assert share(discs(LARGE, rng, count=10, radius=20, ring=0, smooth=True)) > 3 * share(disc)


@pytest.mark.parametrize(("wanted", "size"), [(0, 1), (0.02, 1), (0.05, 2), (0.1, 3)])
def test_dots_cover_about_their_share_in_squares(rng, wanted, size):
    mask = dots(LARGE, rng, share=wanted, size=size)
    assert {*np.unique(mask)} <= {0, 255}
    assert share(mask) == pytest.approx(wanted, rel=0.1)


def test_a_dot_is_a_square_of_its_size():
    area = Area(60, 60, 1, "")
    mask = dots(area, random.Random(2), share=9 / 3600, size=3)
    assert np.count_nonzero(mask) == 9
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    assert (len(rows), len(columns)) == (3, 3)


def test_specks_are_three_pixels_by_two_or_three_and_as_many_as_asked_for(rng):
    down, across = speck()
    assert 5 <= len(down) <= 9
    assert max(np.ptp(down), np.ptp(across)) <= 3
    assert share(specks(LARGE, rng, count=200)) * LARGE.height * LARGE.width == pytest.approx(
        200 * len(down), rel=0.1
    )


@pytest.mark.parametrize("pitch", [6, 9.5, 20])
def test_a_grid_has_lines_of_its_width_every_pitch(rng, pitch):
    mask = grid(LARGE, rng, pitch=pitch, width=2, angle=0, rows=True, columns=False)
    assert (mask == mask[:, :1]).all()
    starts = np.flatnonzero((mask[1:, 0] > 0) & (mask[:-1, 0] == 0)) + 1
    assert np.diff(starts).mean() == pytest.approx(pitch, abs=0.1)
    assert share(mask) == pytest.approx(2 / pitch, rel=0.1)
    both = grid(LARGE, rng, pitch=pitch, width=2, angle=0, rows=True, columns=True)
    assert share(both) == pytest.approx(1 - (1 - 2 / pitch) ** 2, rel=0.1)
    assert not grid(LARGE, rng, pitch=pitch, width=2, angle=0, rows=False, columns=False).any()


def test_a_grid_at_an_angle_turns_its_lines(rng):
    mask = grid(LARGE, rng, pitch=12, width=2, angle=90, rows=True, columns=False)
    assert (mask == mask[:1]).all()


@pytest.mark.parametrize("shape", ["circle", "ellipse", "box"])
def test_rings_lie_within_each_other_a_pitch_apart(rng, shape):
    mask = rings(Area(200, 200, 1, ""), rng, shape=shape, pitch=10, width=1)
    assert np.flatnonzero(mask[100, 100:]).tolist()[:4] == [10, 20, 30, 40]
    inner = mask[1:, 1:]  # 100 pixels on each side of the middle, which is a pixel
    assert np.array_equal(inner, inner[::-1, ::-1])


def test_hatching_has_about_one_direction():
    def energy(mask, axis):
        return np.abs(np.diff(mask.astype(float), axis=axis)).mean()

    ratios = []
    for seed in range(20):
        mask = hatching(LARGE, random.Random(seed), count=30, width=1, smooth=True)
        ratios.append(energy(mask, 0) / energy(mask, 1))
        assert mask.any()
    assert min(ratios) < 0.6
    assert max(ratios) > 1.6


@pytest.mark.parametrize("pattern", ["dots", "chevrons", "checks"])
def test_a_texture_repeats(rng, pattern):
    mask = texture(LARGE, rng, pattern=pattern, pitch=8)
    assert np.array_equal(mask[16:], mask[:-16])
    assert np.array_equal(mask[:, 16:], mask[:, :-16])
    assert {*np.unique(mask)} == {0, 255}


def test_blobs_are_soft_and_finer_with_more_cells():
    def roughness(**fields):
        mask = blobs(LARGE, random.Random(1), **fields).astype(int)
        assert 0.3 < share(mask) < 0.7
        return np.abs(np.diff(mask, axis=1)).mean()

    assert (
        roughness(cells=2, contrast=1)
        < roughness(cells=8, contrast=1)
        < roughness(cells=8, contrast=4)
    )
    assert (
        np.abs(
            np.diff(blobs(LARGE, random.Random(1), cells=3, contrast=1).astype(int), axis=1)
        ).max()
        < 20
    )


@pytest.mark.parametrize(
    ("angle", "axis", "sign"), [(0, 1, 1), (180, 1, -1), (90, 0, 1), (-90, 0, -1)]
)
def test_a_gradient_grows_in_its_direction(rng, angle, axis, sign):
    mask = gradient(LARGE, rng, angle=angle).astype(int)
    steps = np.diff(mask, axis=axis) * sign
    assert steps.min() >= 0
    assert (mask.min(), mask.max()) == (0, 255)
    assert np.abs(np.diff(mask, axis=1 - axis)).max() <= 1


@pytest.mark.parametrize(("count", "expected"), [(0, 5), (3, 3), (16, 16)])
def test_tiles_part_the_width_evenly(rng, count, expected):
    masks = tiles(LARGE, rng, count=count)
    assert len(masks) == expected
    assert (sum(mask.astype(int) for mask in masks) == 255).all()
    widths = [np.count_nonzero(mask[0]) for mask in masks]
    assert max(widths) - min(widths) <= 1


@pytest.mark.parametrize("width", [1, 4, 20])
def test_a_border_marks_exactly_its_width(rng, width):
    mask = border(LARGE, rng, width=width)
    assert np.count_nonzero(mask) == 300 * 400 - (300 - 2 * width) * (400 - 2 * width)
    assert (mask[:width] == 255).all()
    assert not mask[width:-width, width:-width].any()


def test_a_border_wider_than_the_image_covers_it(rng):
    assert (border(Area(16, 16, 1, ""), rng, width=20) == 255).all()


def test_an_upright_line_runs_from_top_to_bottom_and_a_bent_one_has_a_bend():
    assert [y for _, y in path_points(LARGE, random.Random(1), "upright")] == [0, LARGE.height]
    assert len(path_points(LARGE, random.Random(1), "bent")) == 3


def test_beads_are_discs_along_the_line():
    beads = lines(LARGE, random.Random(1), count=1, path="across", width=4, beads=10, smooth=False)
    whole = lines(LARGE, random.Random(1), count=1, path="across", width=8, beads=0, smooth=False)
    covered = beads.any(0)
    starts = np.flatnonzero(np.diff(covered.astype(int)) == 1)
    assert 9 <= np.diff(starts).mean() <= 10  # pixels along the line, which slopes a little
    assert not (beads & ~whole).any()
