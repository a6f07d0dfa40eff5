import random

import numpy as np
import pytest

from captcha_ocr.generation.operators.registry import Area

from ..conftest import DEJAVU


@pytest.fixture
def rng():
    return random.Random(1)


@pytest.fixture
def area():
    """A canvas of 80 by 32 pixels, for 4 characters."""
    return Area(32, 80, 4, DEJAVU, [(10, 16), (30, 14), (50, 18), (70, 16)])


@pytest.fixture
def pixels():
    """A colourful image of 80 by 32 pixels that cannot be written to."""
    image = np.random.default_rng(1).integers(0, 256, (32, 80, 3), np.uint8)
    image.flags.writeable = False
    return image


@pytest.fixture
def square():
    """A mask of 32 by 32 pixels, with a square of 20 in its middle, that cannot be written to."""
    mask = np.zeros((32, 32), np.uint8)
    mask[6:26, 6:26] = 255
    mask.flags.writeable = False
    return mask
