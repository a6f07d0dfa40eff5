"""Every bomb is refused or read; with --soak in under 100 ms and 50 MB, in its own process."""

import json
import subprocess
import sys
import warnings

import pytest
from hostile import BOMBS, BURDENED, LARGEST
from PIL import Image, ImageFile, PngImagePlugin

from captcha_ocr.data.images import to_array
from captcha_ocr.errors import ImageError
from captcha_ocr.input_size import InputSize

LIMITS = {"bomb": (100, 50), "largest": (250, 65)}  # milliseconds and MB
SIZE = InputSize(60, 160, 1)
COST = """
import io, json, sys, time
from PIL import Image
from captcha_ocr.input_size import InputSize
from captcha_ocr.errors import ImageError
from captcha_ocr.data.images import to_array
size = InputSize(60, 160, 1)
for image_format in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"):  # to load all of Pillow
    stream = io.BytesIO()
    Image.new("RGB", (160, 60)).save(stream, image_format)
    to_array(stream.getvalue(), size)
def peak():  # not getrusage, which counts the parent's memory, too
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM"))
data = open(sys.argv[1], "rb").read()
before, started = peak(), time.process_time()
try:
    to_array(data, size)
except ImageError:
    pass
ms = 1e3 * (time.process_time() - started)
print(json.dumps([ms, peak() - before]))
"""


def _get_pillow_state():
    """Return what Pillow keeps for the whole process and a program may notice."""
    limits = PngImagePlugin.MAX_TEXT_CHUNK, PngImagePlugin.MAX_TEXT_MEMORY, Image.MAX_IMAGE_PIXELS
    return *limits, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)


@pytest.mark.parametrize("name", BOMBS | BURDENED | LARGEST)
def test_a_bomb_is_refused_in_one_line_and_a_burdened_image_is_read(name):
    with warnings.catch_warnings(record=True) as escaped:
        warnings.simplefilter("always")
        before = _get_pillow_state()
        try:
            assert to_array((BURDENED | LARGEST | BOMBS)[name], SIZE).shape == (1, 60, 160)
            refusal = ""
        except ImageError as error:
            refusal = str(error)
        assert _get_pillow_state() == before
    assert not escaped
    assert bool(refusal) == (name in BOMBS), refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("kind", LIMITS)
def test_a_bomb_costs_little_and_the_largest_image_what_its_pixels_cost(
    kind, soak, figure, tmp_path
):
    if not soak:
        pytest.skip("a matter of time and memory: make soak")
    costs = {}
    for name, data in (LARGEST if kind == "largest" else BOMBS | BURDENED).items():
        (tmp_path / "image").write_bytes(data)
        command = [sys.executable, "-c", COST, str(tmp_path / "image")]
        costs[name] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    slowest, largest = (max(costs, key=lambda name: costs[name][which]) for which in (0, 1))
    figure(
        f"{len(costs)} images: {costs[slowest][0]:.1f} ms at most ({slowest}), "
        f"{costs[largest][1]:.1f} MB at most ({largest})"
    )
    assert costs[slowest][0] < LIMITS[kind][0]
    assert costs[largest][1] < LIMITS[kind][1]
