import numpy as np
import pytest

from captcha_ocr.generation.rendering.legibility import why_illegible

SHAPE = (40, 80)
PLACES = ((10, 15), (10, 45))  # (top, left) of two glyphs of 20 by 20 pixels: frames


def scene(color=(20, 20, 20), ground=(240, 240, 240)):
    """An image of two frames, and the map of its glyphs."""
    pixels, owners = np.full((*SHAPE, 3), ground, np.uint8), np.zeros(SHAPE, np.uint8)
    for number, (top, left) in enumerate(PLACES, 1):
        box = owners[top : top + 20, left : left + 20]
        box[:] = number
        box[6:-6, 6:-6] = 0
    pixels[owners > 0] = color
    return pixels, owners


INK = [400 - 64] * 2


def test_a_clean_image_can_be_read_dark_or_light():
    assert why_illegible(*scene(), INK) is None
    assert why_illegible(*scene((255, 255, 255), (0, 0, 0)), INK) is None


@pytest.mark.parametrize(
    ("color", "ground", "reason"),
    [
        ((240, 240, 240), (240, 240, 240), "contrast"),
        ((220, 220, 220), (240, 240, 240), "contrast"),
        ((200, 200, 200), (240, 240, 240), None),
        ((255, 0, 0), (0, 130, 0), None),  # of the same luminance, but red on green
    ],
)
def test_too_little_contrast_is_found(color, ground, reason):
    assert why_illegible(*scene(color, ground), INK) == reason


def test_one_glyph_of_too_little_contrast_is_enough():
    pixels, owners = scene()
    pixels[owners == 2] = 235
    assert why_illegible(pixels, owners, INK) == "contrast"


def test_a_disc_of_its_colour_hides_a_glyph():
    pixels, owners = scene()
    y, x = np.ogrid[: SHAPE[0], : SHAPE[1]]
    pixels[(y - 20) ** 2 + (x - 25) ** 2 < 14**2] = 20
    assert why_illegible(pixels, owners, INK) == "hidden"


def test_a_disc_of_the_canvas_over_a_glyph_hides_it():
    pixels, owners = scene()
    pixels[10:22, 10:35] = 240
    assert why_illegible(pixels, owners, INK) == "hidden"


def test_noise_hides_a_glyph_and_a_thin_line_does_not():
    pixels, owners = scene()
    line = pixels.copy()
    line[19:21] = 20
    assert why_illegible(line, owners, INK) is None
    noise = np.random.default_rng(1).random(SHAPE) < 0.45
    pixels[noise] = 255 - pixels[noise]
    assert why_illegible(pixels, owners, INK) == "hidden"


def test_a_glyph_that_has_lost_much_of_its_ink_is_clipped():
    pixels, owners = scene()
    assert why_illegible(pixels, owners, [INK[0], 600]) == "clipped"
    assert why_illegible(pixels, owners, [*INK, 100]) == "clipped"  # the third is not there at all
    assert why_illegible(pixels, owners, [INK[0], 400]) is None


def test_a_glyph_of_a_few_pixels_is_clipped():
    pixels, owners = scene()
    owners[owners == 2] = 0
    owners[10, 45:50] = 2
    assert why_illegible(pixels, owners, [INK[0], 5]) == "clipped"


def test_a_glyph_without_surroundings_and_one_between_the_rows_that_are_looked_at_are_hidden():
    pixels = np.zeros((16, 16, 3), np.uint8)
    assert why_illegible(pixels, np.ones((16, 16), np.uint8), [256]) == "hidden"
    owners = np.zeros((16, 16), np.uint8)
    owners[5] = 1
    assert why_illegible(pixels, owners, [16]) == "hidden"
