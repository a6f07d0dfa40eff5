import random

import numpy as np
import pytest

from captcha_ocr.generation.operators.glyph_marks import decoys, ghost, place, small_print


def test_more_decoys_cover_more_and_larger_ones_too(area):
    covered = [
        np.mean(
            [decoys(area, random.Random(seed), count=count, size=size).mean() for seed in range(10)]
        )
        for count, size in ((2, 10), (8, 10), (8, 20))
    ]
    assert covered[0] < covered[1] < covered[2]


@pytest.mark.parametrize("size", [10, 20, 40])
def test_a_letter_has_the_size_that_is_asked_for(area, size):
    reach = []
    for seed in range(20):
        mask = decoys(area._replace(height=200, width=200), random.Random(seed), count=1, size=size)
        reach.append(len(np.flatnonzero(mask.any(1))))
    assert 0.4 * size < np.mean(reach) < 1.1 * size


def test_a_ghost_is_one_large_letter_and_blurred(area):
    sharp, soft = (ghost(area, random.Random(1), sigma=sigma) for sigma in (0, 4))
    assert len(np.flatnonzero(sharp.any(1))) > area.height / 2
    assert soft.max() < sharp.max()
    assert (
        np.abs(np.diff(soft.astype(int), axis=0)).max()
        < np.abs(np.diff(sharp.astype(int), axis=0)).max()
    )


def test_small_print_stands_along_the_lower_border(area):
    rows = np.flatnonzero(small_print(area, random.Random(1), size=8).any(1))
    assert rows[0] >= area.height - 14
    columns = np.flatnonzero(small_print(area, random.Random(1), size=8).any(0))
    assert np.ptp(columns) > area.width / 2


def test_a_letter_partly_outside_is_cut(area):
    from PIL import Image

    canvas = Image.new("L", (area.width, area.height))
    place(canvas, area.font, 20, 0, 0, random.Random(1))
    mask = np.asarray(canvas)
    assert mask.any()
    assert not mask[16:].any()
