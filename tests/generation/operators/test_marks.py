import random
from functools import partial

import numpy as np
import pytest
from PIL import Image, ImageDraw

from captcha_ocr.generation.operators import marks
from captcha_ocr.generation.operators.marks import (
    PATHS,
    arc,
    blobs,
    border,
    decoys,
    discs,
    dots,
    ghost,
    gradient,
    grid,
    hatching,
    lines,
    path_points,
    rings,
    small_print,
    specks,
    spiral,
    texture,
    tiles,
)
from captcha_ocr.generation.operators.registry import Area

LARGE = Area(300, 400, 5, "", [(100, 140), (200, 170), (300, 150)])


def share(mask):
    """The share of the image that a mask covers."""
    return mask.mean() / 255


def covered(mask, axis):
    """The numbers of the rows (axis 0) or columns (axis 1) of a mask that are not empty."""
    return np.flatnonzero(mask.any(1 - axis))


def largest_step(mask, axis):
    return np.abs(np.diff(mask.astype(int), axis=axis)).max()


def mean_step(mask, axis):
    return np.abs(np.diff(mask.astype(int), axis=axis)).mean()


def draw_lines(seed, path="across", **fields):
    fields = {"count": 1, "width": 2, "length": 0, "beads": 0, "smooth": False} | fields
    return lines(LARGE, random.Random(seed), path=path, **fields)


@pytest.mark.parametrize("path", [path for path in PATHS if path != "text"])
def test_lines_are_as_wide_as_they_say_and_more_of_them_cover_more(path):
    def mean_share(**fields):
        return np.mean([share(draw_lines(seed, path, smooth=True, **fields)) for seed in range(5)])

    thin = mean_share()
    assert mean_share(width=8) == pytest.approx(4 * thin, rel=0.3)
    assert mean_share(count=6) > 3 * thin


def test_paths_run_from_side_to_side_or_from_top_to_bottom(rng):
    for path in ("across", "bent", "bezier", "sine", "arc") * 20:
        (first, _), *_, (last, _) = path_points(LARGE, rng, path)
        assert -0.05 * 400 <= first <= 0.2 * 400
        assert 0.8 * 400 <= last <= 1.05 * 400
    assert [y for _, y in path_points(LARGE, rng, "upright")] == [0, LARGE.height]
    assert [len(path_points(LARGE, rng, path)) for path in ("bent", "zigzag")] == [3, 5]
    through_text = [(0, 140), *LARGE.middles, (400, 150)]
    assert path_points(LARGE, rng, "text") == through_text


def test_straight_lines_are_as_long_as_they_may_be():
    for length in (5, 40):
        masks = [draw_lines(seed, "straight", length=length) for seed in range(40)]
        longest = max(len(covered(mask, axis)) for mask in masks for axis in (0, 1))
        assert 0.7 * length < longest <= length + 3


def test_only_smooth_lines_have_grey_pixels():
    hard, smooth = (draw_lines(1, "bezier", width=3, smooth=smooth) for smooth in (False, True))
    assert {*np.unique(hard)} == {0, 255} < {*np.unique(smooth)}


def test_beads_are_discs_along_the_line():
    beads = draw_lines(1, width=4, beads=10)
    starts = np.flatnonzero(np.diff(beads.any(0).astype(int)) == 1)
    assert 9 <= np.diff(starts).mean() <= 10  # pixels along the line, which slopes a little
    assert not (beads & ~draw_lines(1, width=8)).any()


def test_arcs_begin_in_the_left_fifth_and_reach_their_end():
    for end, least, most in ((0.8, 0.7, 0.9), (0.2, 0, 0.4)):
        masks = [arc(LARGE, random.Random(n), count=1, width=1, end=end) for n in range(40)]
        assert max(covered(mask, 1)[0] for mask in masks) < 0.35 * 400
        assert least * 400 < min(covered(mask, 1)[-1] for mask in masks) < most * 400


def draw_discs(rng, **fields):
    known = {"radius": 20, "ring": 0, "flatness": 1, "shape": "ellipse", "smooth": True}
    return discs(LARGE, rng, **known | fields)


def test_boxes_are_full_and_flat_discs_have_a_shorter_side():
    for seed in range(9):
        box = draw_discs(random.Random(seed), count=1, shape="box", smooth=False)
        assert box[np.ix_(covered(box, 0), covered(box, 1))].all()
    ratios = []
    for seed in range(40):
        flat = draw_discs(random.Random(seed), count=1, flatness=4, radius=10)
        ratios.append(len(covered(flat, 0)) / len(covered(flat, 1)))
    assert min(ratios) < 0.5 < 2 < max(ratios)


def test_discs_are_filled_and_rings_hollow(rng):
    disc, ring = (draw_discs(random.Random(4), count=1, ring=ring, smooth=False) for ring in (0, 3))
    rows, columns = covered(disc, 0), covered(disc, 1)
    assert 2 * 0.6 * 20 - 2 <= max(len(rows), len(columns)) <= 2 * 20 + 2
    middle = int(rows.mean()), int(columns.mean())
    assert (disc[middle], ring[middle]) == (255, 0)
    assert share(ring) < share(disc)
    assert share(draw_discs(rng, count=10)) > 3 * share(disc)


def test_dots_cover_about_their_share_in_squares(rng):
    for wanted, size in ((0, 1), (0.02, 1), (0.05, 2), (0.1, 3)):
        mask = dots(LARGE, rng, share=wanted, size=size)
        assert np.count_nonzero(mask == 255) == np.count_nonzero(mask)
        assert share(mask) == pytest.approx(wanted, rel=0.1)
    dot = dots(LARGE, random.Random(2), share=9 / (300 * 400), size=3)
    assert [np.count_nonzero(dot), *map(len, (covered(dot, 0), covered(dot, 1)))] == [9, 3, 3]


def test_specks_are_those_of_pillow_and_as_many_as_asked_for(rng):
    image = Image.new("1", (20, 20))
    ImageDraw.Draw(image).line(((10, 10), (9, 9)), fill=1, width=3)  # what the package draws
    assert np.array_equal(np.argwhere(np.asarray(image)) - 10, marks._SPECK)
    mask = specks(LARGE, rng, count=200)
    assert np.count_nonzero(mask) == pytest.approx(200 * len(marks._SPECK), rel=0.1)


def test_a_grid_has_lines_of_its_width_every_pitch(rng):
    for pitch in (6, 9.5, 20):
        draw_grid = partial(grid, LARGE, rng, pitch=pitch, width=2)
        mask = draw_grid(rows=True, columns=False, angle=0)
        assert (mask == mask[:, :1]).all()
        starts = np.flatnonzero((mask[1:, 0] > 0) & (mask[:-1, 0] == 0)) + 1
        assert np.diff(starts).mean() == pytest.approx(pitch, abs=0.1)
        shares = [share(draw_grid(rows=True, columns=both, angle=0)) for both in (False, True)]
        assert shares == pytest.approx([2 / pitch, 1 - (1 - 2 / pitch) ** 2], rel=0.1)
        assert not draw_grid(rows=False, columns=False, angle=0).any()
        turned = draw_grid(rows=True, columns=False, angle=90)
        assert (turned == turned[:1]).all()


def test_rings_lie_within_each_other_a_pitch_apart(rng):
    for shape in ("circle", "ellipse", "box"):
        mask = rings(Area(200, 200, 1, ""), rng, shape=shape, pitch=10, width=1)
        assert np.flatnonzero(mask[100, 100:]).tolist()[:4] == [10, 20, 30, 40]
        inner = mask[1:, 1:]  # 100 pixels on each side of the middle, which is a pixel
        assert np.array_equal(inner, inner[::-1, ::-1])


def test_a_spiral_has_an_arm_every_pitch_and_without_arms_is_rings():
    for arms in (0, 1, 7):
        mask = spiral(LARGE, random.Random(3), arms=arms, pitch=10, width=2)
        assert share(mask) == pytest.approx(0.2, abs=0.03)
        starts = np.flatnonzero(np.diff(mask[0].astype(int)) > 0)
        assert len(starts) > 15
    rings_ = spiral(Area(41, 41, 1, ""), random.Random(1), arms=0, pitch=8, width=2)
    arms_ = spiral(Area(41, 41, 1, ""), random.Random(1), arms=1, pitch=8, width=2)
    assert not np.array_equal(rings_, arms_)


def test_hatching_has_about_one_direction():
    ratios = []
    for seed in range(20):
        mask = hatching(Area(90, 120, 5, ""), random.Random(seed), count=9, width=1, smooth=True)
        ratios.append(mean_step(mask, 0) / mean_step(mask, 1))
    assert min(ratios) < 0.6 < 1.6 < max(ratios)


def test_a_texture_repeats(rng):
    for pattern in ("dots", "chevrons", "checks"):
        mask = texture(LARGE, rng, pattern=pattern, pitch=8)
        assert np.array_equal(mask, np.tile(mask[:16, :16], (19, 25))[:300])
        assert {*np.unique(mask)} == {0, 255}


def test_blobs_are_soft_and_finer_with_more_cells():
    few, many, strong = masks = [
        blobs(LARGE, random.Random(1), cells=cells, contrast=contrast)
        for cells, contrast in ((2, 1), (8, 1), (8, 4))
    ]
    assert mean_step(few, 1) < mean_step(many, 1) < mean_step(strong, 1)
    assert all(0.3 < share(mask) < 0.7 for mask in masks)
    assert largest_step(few, 1) < 20


def test_a_gradient_grows_in_its_direction(rng):
    for angle, axis, sign in ((0, 1, 1), (180, 1, -1), (90, 0, 1), (-90, 0, -1)):
        mask = gradient(LARGE, rng, angle=angle).astype(int)
        assert (np.diff(mask, axis=axis) * sign).min() >= 0
        assert (mask.min(), mask.max()) == (0, 255)
        assert largest_step(mask, 1 - axis) <= 1


def test_tiles_part_the_width_evenly(rng):
    for count, expected in ((0, 5), (3, 3), (16, 16)):
        masks = tiles(LARGE, rng, count=count)
        assert len(masks) == expected
        assert (np.sum(masks, axis=0) == 255).all()
        assert np.ptp(np.count_nonzero(masks, axis=(1, 2))) <= 300


def test_a_border_marks_exactly_its_width_and_covers_an_image_that_is_smaller(rng):
    for width in (1, 4, 20):
        expected = np.full((300, 400), 255, np.uint8)
        expected[width : 300 - width, width : 400 - width] = 0
        assert np.array_equal(border(LARGE, rng, width=width), expected)
    assert (border(Area(16, 16, 1, ""), rng, width=20) == 255).all()


def test_more_decoys_cover_more_and_larger_ones_too_and_have_their_size(area):
    def mean_over(measure, area, count, size):
        return np.mean(
            [measure(decoys(area, random.Random(n), count, size, "AX")) for n in range(10)]
        )

    few, many, large = (mean_over(share, area, *sizes) for sizes in ((2, 10), (8, 10), (8, 20)))
    assert few < many < large
    for size in (10, 20, 40):
        square = area._replace(height=200, width=200)
        height = mean_over(lambda mask: len(covered(mask, 0)), square, 1, size)
        assert 0.4 * size < height < 1.1 * size


def test_decoys_are_of_the_letters_that_are_given(area):
    flat, high = (decoys(area, random.Random(1), 1, 20, letter) for letter in "-l")
    assert len(covered(flat, 0)) < 5 < len(covered(high, 0))


def test_a_ghost_is_one_large_letter_and_blurred(area):
    sharp, soft = (ghost(area, random.Random(1), sigma=sigma) for sigma in (0, 4))
    assert len(covered(sharp, 0)) > area.height / 2
    assert soft.max() < sharp.max()
    assert largest_step(soft, 0) < largest_step(sharp, 0)


def test_small_print_stands_along_the_lower_border(area):
    mask = small_print(area, random.Random(1), size=8)
    assert covered(mask, 0)[0] >= area.height - 14
    assert np.ptp(covered(mask, 1)) > area.width / 2
