import numpy as np
from PIL import Image, ImageDraw

from captcha_ocr.generation.rendering.rasters import load_font, raster

from ..conftest import DEJAVU


def test_a_raster_is_the_ink_that_pillow_draws_at_the_place_of_its_middle_and_is_kept():
    inked = raster(DEJAVU, 40, "g")
    image = Image.new("L", (100, 100))
    ImageDraw.Draw(image).text((30, 60), "g", font=load_font(DEJAVU, 40), fill=255, anchor="ls")
    left, top, right, bottom = image.getbbox()
    assert np.array_equal(image.crop(image.getbbox()), inked.image)
    assert inked.middle == ((left + right) / 2 - 30, (top + bottom) / 2 - 60)
    assert raster(DEJAVU, 40, "g") is inked


def test_a_margin_is_empty_and_moves_nothing():
    plain, wide = raster(DEJAVU, 40, "g"), raster(DEJAVU, 40, "g", margin=3)
    assert wide.image.getbbox() == (3, 3, wide.image.width - 3, wide.image.height - 3)
    assert np.array_equal(wide.image.crop(wide.image.getbbox()), plain.image)
    assert (wide.middle, wide.cell) == (plain.middle, plain.cell)


def test_the_cell_reaches_from_the_pen_and_the_top_of_the_line_to_the_end_of_the_ink():
    dot, blank = raster(DEJAVU, 40, "."), raster(DEJAVU, 40, " ")
    assert dot.cell[0] > dot.image.width
    assert dot.cell[1] > 3 * dot.image.height
    width = round(load_font(DEJAVU, 40).getlength(" ")) + 1  # of the pen's way
    assert (blank.image.size, blank.cell[0]) == ((0, 0), width)


def test_a_combining_mark_adds_ink():
    assert raster(DEJAVU, 40, "x\u0302").image.height > raster(DEJAVU, 40, "x").image.height
