import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from captcha_ocr.generation.rendering.rasters import load_font, raster

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
DEJAVU = str(MATPLOTLIB / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf")


def test_a_raster_is_the_ink_that_pillow_draws_at_the_place_of_its_middle():
    inked = raster(DEJAVU, 40, "g")
    image = Image.new("L", (100, 100))
    ImageDraw.Draw(image).text((30, 60), "g", font=load_font(DEJAVU, 40), fill=255, anchor="ls")
    left, top, right, bottom = image.getbbox()
    assert np.array_equal(np.asarray(image)[top:bottom, left:right], inked.mask)
    assert inked.middle == ((left + right) / 2 - 30, (top + bottom) / 2 - 60)


def test_a_margin_is_empty_and_moves_nothing():
    plain, wide = raster(DEJAVU, 40, "g"), raster(DEJAVU, 40, "g", margin=3)
    assert np.array_equal(wide.mask[3:-3, 3:-3], plain.mask)
    assert wide.mask.sum() == plain.mask.sum(dtype=np.uint64)
    assert (wide.middle, wide.cell) == (plain.middle, plain.cell)


def test_the_cell_reaches_from_the_pen_and_the_top_of_the_line_to_the_end_of_the_ink():
    inked = raster(DEJAVU, 40, ".")
    assert inked.cell[0] > inked.mask.shape[1]
    assert inked.cell[1] > 3 * inked.mask.shape[0]


def test_a_blank_has_no_ink_and_the_width_of_the_pen_s_way():
    blank = raster(DEJAVU, 40, " ")
    assert blank.mask.shape == (0, 0)
    assert blank.cell[0] == round(load_font(DEJAVU, 40).getlength(" ")) + 1


def test_a_combining_mark_belongs_to_its_base():
    assert raster(DEJAVU, 40, "x\u0302").mask.shape[0] > raster(DEJAVU, 40, "x").mask.shape[0]


def test_glyphs_are_kept():
    assert raster(DEJAVU, 40, "k") is raster(DEJAVU, 40, "k")
