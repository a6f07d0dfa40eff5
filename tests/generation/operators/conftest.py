import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest

from captcha_ocr.generation.operators.registry import Area

MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
DEJAVU = str(MATPLOTLIB / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf")
HEIGHT, WIDTH = 32, 80


@pytest.fixture
def rng():
    return random.Random(1)


@pytest.fixture
def area():
    """A canvas of 80 by 32 pixels, for 4 characters."""
    return Area(HEIGHT, WIDTH, 4, DEJAVU)


@pytest.fixture
def pixels():
    """A colourful image of this size that cannot be written to."""
    image = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    image.flags.writeable = False
    return image


@pytest.fixture
def square():
    """A mask of 32 by 32 pixels, with a square of 20 in its middle, that cannot be written to."""
    mask = np.zeros((32, 32), np.uint8)
    mask[6:26, 6:26] = 255
    mask.flags.writeable = False
    return mask
