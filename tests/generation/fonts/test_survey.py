import importlib.util
from pathlib import Path

import numpy as np
import pytest

from captcha_ocr.generation.fonts.survey import ALPHABET, alike, examine

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
BAR = ((0, 0, 100, 700),)
ELL = ((0, 0, 100, 700), (100, 0, 400, 100))
TEE = ((150, 0, 250, 700), (0, 600, 400, 700))
FRAME = ((0, 0, 700, 60), (0, 640, 700, 700), (0, 60, 60, 640), (640, 60, 700, 640))


def glyphs_of(name):
    return examine((FONTS / name).read_bytes())


def test_a_sans_serif_has_all_characters_and_the_same_bar_for_two_of_them():
    glyphs = glyphs_of("DejaVuSans.ttf")
    assert (glyphs.family, glyphs.characters, glyphs.framed) == ("DejaVu Sans", ALPHABET, False)
    assert glyphs.look_alikes == ("Il",)


@pytest.mark.parametrize(
    "name", ["DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf", "DejaVuSerif.ttf"]
)
def test_no_pair_looks_alike_in_a_font_that_tells_them_apart(name):
    assert glyphs_of(name).look_alikes == ()


def test_the_font_of_last_resort_draws_the_same_frame_for_every_letter():
    glyphs = glyphs_of("LastResortHE-Regular.ttf")
    assert glyphs.framed
    assert len(glyphs.look_alikes) == 62 * 61 // 2


def test_characters_without_ink_or_glyph_are_not_held(make_font):
    glyphs = examine(
        make_font({"A": BAR, "B": (), "+": TEE, "é": TEE})
    )  # it draws C and others as boxes
    assert glyphs.characters == "A+"


def test_a_font_with_an_empty_glyph_for_missing_ones_holds_only_its_own(make_font):
    assert examine(make_font({"L": ELL, "T": TEE}, notdef=())).characters == "LT"


def test_signs_are_held_but_never_paired(make_font):
    glyphs = examine(make_font({"1": BAR, "l": BAR, "/": BAR}))
    assert (glyphs.characters, glyphs.look_alikes) == ("1l/", ("1l",))


def test_a_font_without_letters_has_no_pairs(make_font):
    glyphs = examine(make_font({"+": TEE, "é": BAR}))
    assert (glyphs.characters, glyphs.look_alikes, glyphs.framed) == ("+", (), False)


@pytest.mark.parametrize("scale", [0.25, 1, 2])
def test_the_share_of_the_em_that_a_font_fills_does_not_matter(make_font, scale):
    drawn = {"L": ELL, "J": ELL, "T": TEE, "l": BAR, "o": ((0, 0, 100, 350),)}
    scaled = {
        character: [tuple(round(scale * side) for side in box) for box in boxes]
        for character, boxes in drawn.items()
    }
    assert examine(make_font(scaled)).look_alikes == ("JL",)


def test_the_same_shape_at_another_size_or_height_is_another_character(make_font):
    small, high = ((0, 0, 100, 500),), ((0, 200, 100, 900),)
    assert examine(make_font({"I": BAR, "l": BAR, "i": small, "j": high})).look_alikes == ("Il",)


def test_letters_in_frames_are_framed(make_font):
    inside = {
        "L": ((200, 150, 260, 550),),
        "T": ((320, 150, 380, 550),),
        "A": ((200, 320, 500, 380),),
    }
    assert examine(
        make_font({character: (*FRAME, *boxes) for character, boxes in inside.items()})
    ).framed
    assert not examine(make_font({"L": ELL, "T": TEE, "A": ((0, 320, 300, 380),)})).framed


def test_a_glyph_larger_than_its_cell_is_missing_and_fills_no_memory(make_font):
    huge = ((-16000, -16000, 16000, 16000),)
    assert examine(make_font({"A": BAR, "B": huge, "C": TEE})).characters == "AC"


@pytest.mark.parametrize("data", [b"", b"text", b"\x00\x01\x00\x00" + bytes(200)])
def test_what_is_no_font_is_an_os_error(data):
    with pytest.raises(OSError, match=r"\w"):
        examine(data)


def test_a_font_with_damaged_outlines_lacks_characters_and_is_no_error():
    data = bytearray((FONTS / "cmr10.ttf").read_bytes())
    data[3000:12000] = b"\xff" * 9000
    assert len(examine(bytes(data)).characters) < len(ALPHABET)


def mask(*boxes):
    """Ink in boxes (top, left, bottom, right) of 40 x 40 pixels."""
    pixels = np.zeros((40, 40), bool)
    for top, left, bottom, right in boxes:
        pixels[top:bottom, left:right] = True
    return pixels


def look_alike(first, second):
    matrix = alike(np.stack([first, second]))
    assert matrix[0, 0]
    assert matrix[0, 1] == matrix[1, 0]
    return bool(matrix[0, 1])


def test_an_outline_that_moves_by_a_pixel_does_not_tell_characters_apart():
    assert look_alike(mask((5, 10, 35, 11)), mask((5, 11, 35, 12)))
    assert look_alike(mask((5, 10, 35, 20)), mask((4, 11, 35, 21)))


def test_a_thin_stroke_and_a_narrow_gap_do():
    stem, solid = (5, 10, 35, 11), (5, 5, 35, 35)
    assert not look_alike(mask(stem), mask(stem, (34, 10, 35, 20)))
    gap = mask(solid)
    gap[15:35, 19:21] = False  # nowhere more than a pixel from ink
    assert not look_alike(mask(solid), gap)
