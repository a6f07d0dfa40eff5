import numpy as np
import pytest

from captcha_ocr.generation.rendering.legibility import why_illegible

SHAPE = (40, 80)
INK = [400 - 64] * 2
DARK, LIGHT = (20, 20, 20), (240, 240, 240)


def scene(color=DARK, ground=LIGHT):
    """An image of two frames of 20 by 20 pixels, and the map of its glyphs."""
    owners = np.zeros(SHAPE, np.uint8)
    for number, left in enumerate((15, 45), 1):
        owners[10:30, left : left + 20] = number
        owners[16:24, left + 6 : left + 14] = 0
    return np.where(owners[..., None], color, ground).astype(np.uint8), owners


@pytest.mark.parametrize(
    ("color", "ground", "reason"),
    [
        (DARK, LIGHT, None),
        ((255, 255, 255), (0, 0, 0), None),
        (LIGHT, LIGHT, "contrast"),
        ((220, 220, 220), LIGHT, "contrast"),
        ((200, 200, 200), LIGHT, None),
        ((255, 0, 0), (0, 130, 0), None),  # of the same luminance, but red on green
    ],
)
def test_too_little_contrast_is_found(color, ground, reason):
    assert why_illegible(*scene(color, ground), INK) == reason


def test_one_glyph_of_too_little_contrast_is_enough():
    pixels, owners = scene()
    pixels[owners == 2] = 235
    assert why_illegible(pixels, owners, INK) == "contrast"


Y, X = np.ogrid[: SHAPE[0], : SHAPE[1]]


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        ((Y - 20) ** 2 + (X - 25) ** 2 < 14**2, 20, "hidden"),  # a disc of the glyph's colour
        ((Y >= 10) & (Y < 22) & (X >= 10) & (X < 35), 240, "hidden"),  # a box of the canvas's
        ((Y == 19) | (Y == 20) & (X >= 0), 20, None),  # a thin line
    ],
)
def test_what_covers_a_glyph_or_its_surroundings_hides_it(where, value, reason):
    pixels, owners = scene()
    pixels[np.broadcast_to(where, SHAPE)] = value
    assert why_illegible(pixels, owners, INK) == reason


def test_noise_hides_a_glyph():
    pixels, owners = scene()
    noise = np.random.default_rng(1).random(SHAPE) < 0.45
    pixels[noise] = 255 - pixels[noise]
    assert why_illegible(pixels, owners, INK) == "hidden"


def test_a_glyph_that_has_lost_much_of_its_ink_or_has_little_is_clipped():
    pixels, owners = scene()
    assert why_illegible(pixels, owners, [INK[0], 600]) == "clipped"
    assert why_illegible(pixels, owners, [*INK, 100]) == "clipped"  # the third is not there at all
    assert why_illegible(pixels, owners, [INK[0], 400]) is None
    owners[owners == 2] = 0
    owners[10, 45:50] = 2
    assert why_illegible(pixels, owners, [INK[0], 5]) == "clipped"


def test_a_glyph_without_surroundings_and_one_between_the_rows_that_are_looked_at_are_hidden():
    pixels, owners = np.zeros((16, 16, 3), np.uint8), np.zeros((16, 16), np.uint8)
    assert why_illegible(pixels, owners + np.uint8(1), [256]) == "hidden"
    owners[5] = 1
    assert why_illegible(pixels, owners, [16]) == "hidden"
