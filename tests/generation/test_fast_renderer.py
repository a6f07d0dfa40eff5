import importlib.util
from pathlib import Path

import numpy as np
import pytest

from captcha_ocr.config import Lengths
from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.fast_renderer import render
from captcha_ocr.generation.package_renderer import render_by_package

MATPLOTLIB = Path(importlib.util.find_spec("matplotlib").submodule_search_locations[0])  # not imported: it is slow
FONTS = MATPLOTLIB / "mpl-data" / "fonts" / "ttf"
DEJAVU = str(FONTS / "DejaVuSans.ttf")
ITALICS = (str(FONTS / "STIXGeneralItalic.ttf"), str(FONTS / "DejaVuSerif-BoldItalic.ttf"))


@pytest.mark.parametrize("warp", ["package", "classic"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"charset": "alnum", "lengths": Lengths(1, 8)},
        {"lengths": Lengths(1, 1), "width": 16, "height": 16},  # squeezed, and glyphs higher than the image
        {"charset": "fjyAW_", "fonts": ITALICS, "font_sizes": (20, 70)},  # glyphs that begin left of their place
        {"charset": "lower", "fonts": (DEJAVU,), "width": 333, "height": 77},
        {"charset": "אבגx12", "fonts": (DEJAVU,)},  # from right to left
        {"charset": "ax\u0302שׁ", "fonts": (DEJAVU,), "lengths": Lengths(1, 3)},  # with combining marks
    ],
)
def test_both_renderers_draw_the_same_pixels(options, warp):
    config = GeneratorConfig(**options, warp=warp)
    for index in range(30):
        (text, image), (package_text, package_image) = render(config, index), render_by_package(config, index)
        assert text == package_text
        assert np.array_equal(image, package_image), index
