import numpy as np
import pytest

from captcha_ocr.generation.fonts.survey import ALPHABET, examine, find_alike

from ..conftest import BAR, FONTS, TEE, make_font

ELL = ((0, 0, 100, 700), (100, 0, 400, 100))
FRAME = ((0, 0, 700, 60), (0, 640, 700, 700), (0, 60, 60, 640), (640, 60, 700, 640))


@pytest.mark.parametrize(
    ("name", "family", "framed", "pairs"),
    [
        ("DejaVuSans.ttf", "DejaVu Sans", False, 1),  # the same bar for I and l
        ("DejaVuSansMono.ttf", "DejaVu Sans Mono", False, 0),
        ("DejaVuSerif.ttf", "DejaVu Serif", False, 0),
        # The same frame for every letter.
        ("LastResortHE-Regular.ttf", "Last Resort High-Efficiency", True, 62 * 61 // 2),
    ],
)
def test_a_font_of_all_characters_tells_them_apart_or_not(name, family, framed, pairs):
    glyphs = examine((FONTS / name).read_bytes())
    assert (glyphs.family, glyphs.characters) == (family, ALPHABET)
    assert (glyphs.framed, len(glyphs.look_alikes)) == (framed, pairs)


HUGE = ((-16000, -16000, 16000, 16000),)


@pytest.mark.parametrize(
    ("glyphs", "expected"),
    [
        # B has no ink; C and others are drawn as the box of a missing character.
        ({"A": BAR, "B": (), "+": TEE, "é": TEE}, ("A+", ())),
        ({"1": BAR, "l": BAR, "/": BAR}, ("1l/", ("1l",))),  # signs are never paired
        ({"+": TEE, "é": BAR}, ("+", ())),
        ({"A": BAR, "B": HUGE, "C": TEE}, ("AC", ())),  # larger than its cell
        # The same shape at another size or height is another character.
        (
            {"I": BAR, "l": BAR, "i": ((0, 0, 100, 500),), "j": ((0, 200, 100, 900),)},
            ("Iijl", ("Il",)),
        ),
    ],
)
def test_characters_with_ink_of_their_own_are_held_and_letters_of_one_shape_are_paired(
    glyphs, expected
):
    surveyed = examine(make_font(glyphs))
    assert (surveyed.characters, surveyed.look_alikes) == expected


def test_a_font_with_an_empty_glyph_for_missing_ones_holds_only_its_own():
    assert examine(make_font({"L": ELL, "T": TEE}, notdef=())).characters == "LT"
    assert not examine(make_font({"+": TEE})).framed


@pytest.mark.parametrize("scale", [0.25, 1, 2])
def test_the_share_of_the_em_that_a_font_fills_does_not_matter(scale):
    drawn = {"L": ELL, "J": ELL, "T": TEE, "l": BAR, "o": ((0, 0, 100, 350),)}
    for character, boxes in drawn.items():
        drawn[character] = (scale * np.array(boxes)).round().astype(int).tolist()
    assert examine(make_font(drawn)).look_alikes == ("JL",)


def test_letters_in_frames_are_framed():
    inside = {"L": (200, 150, 260, 550), "T": (320, 150, 380, 550), "A": (200, 320, 500, 380)}
    framed = {character: (*FRAME, box) for character, box in inside.items()}
    assert examine(make_font(framed)).framed
    assert not examine(make_font({"L": ELL, "T": TEE, "A": ((0, 320, 300, 380),)})).framed


@pytest.mark.parametrize("data", [b"", b"text", b"\x00\x01\x00\x00" + bytes(200)])
def test_what_is_no_font_is_an_os_error(data):
    with pytest.raises(OSError, match=r"\w"):
        examine(data)


def test_a_font_with_damaged_outlines_lacks_characters_and_is_no_error():
    data = bytearray((FONTS / "cmr10.ttf").read_bytes())
    data[3000:12000] = b"\xff" * 9000
    assert len(examine(bytes(data)).characters) < len(ALPHABET)


STEM, SOLID = (5, 10, 35, 11), (5, 5, 35, 35)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([(5, 10, 35, 11)], [(5, 11, 35, 12)], True),  # outlines that move by a pixel
        ([(5, 10, 35, 20)], [(4, 11, 35, 21)], True),
        ([STEM], [STEM, (34, 10, 35, 20)], False),  # a thin stroke
        ([SOLID], [(5, 5, 35, 19), (5, 21, 35, 35), (5, 5, 15, 35)], False),  # a narrow gap
    ],
)
def test_a_thin_stroke_and_a_narrow_gap_tell_characters_apart(first, second, expected):
    masks = np.zeros((2, 40, 40), bool)
    for mask, boxes in zip(masks, (first, second), strict=True):
        for top, left, bottom, right in boxes:
            mask[top:bottom, left:right] = True
    assert find_alike(masks).tolist() == [[True, expected], [expected, True]]
