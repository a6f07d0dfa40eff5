import random

import numpy as np

from captcha_ocr.generation.operators.layout import arch, jitter, positions, slope, wave

RNG = random.Random(1)


def test_jitter_moves_each_glyph_by_up_to_its_reach():
    shifts = jitter(1000, RNG, reach=0.2)
    assert -0.2 <= shifts.min() < -0.18
    assert 0.18 < shifts.max() <= 0.2
    assert abs(shifts.mean()) < 0.02


def test_a_line_slopes_upwards_to_its_end():
    assert np.allclose(slope(3, RNG, rise=0.4), [0.2, 0, -0.2])  # positive is down
    assert np.allclose(slope(3, RNG, rise=-0.4), [-0.2, 0, 0.2])


def test_an_arch_has_its_middle_above_its_ends_and_one_that_hangs_below():
    assert np.allclose(arch(3, RNG, height=0.2), [0.1, -0.1, 0.1])
    assert np.allclose(arch(3, RNG, height=-0.2), [-0.1, 0.1, -0.1])


def test_a_wave_repeats_after_its_period_and_has_its_height():
    shifts = wave(400, RNG, height=0.3, period=4.1)
    assert np.allclose(shifts[41:], shifts[:-41])
    assert 0.29 < shifts.max() - shifts.min() <= 0.3


def test_a_single_glyph_stands_in_the_middle():
    assert positions(1).tolist() == [0.5]
    assert slope(1, RNG, rise=1).tolist() == [0]
    assert [len(operator(1, RNG, 0.5)) for operator in (jitter, slope, arch)] == [1, 1, 1]
