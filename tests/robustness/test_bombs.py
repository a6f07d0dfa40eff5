"""Every bomb is refused; with --soak, in under 10 ms and 20 MB, in a process of its own."""

import json
import subprocess
import sys

import pytest
from hostile import BOMBS, BURDENED, FORMATS, encoded

from captcha_ocr.config import InputSize
from captcha_ocr.data.images import to_array
from captcha_ocr.errors import ImageError

MOST_MS, MOST_MB = 10, 20
SIZE = InputSize(60, 160, 1)
COST = """
import io, json, sys, time
from PIL import Image
from captcha_ocr.config import InputSize
from captcha_ocr.errors import ImageError
from captcha_ocr.data.images import to_array
size = InputSize(60, 160, 1)
for image_format in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):  # so that all of Pillow is there
    stream = io.BytesIO()
    Image.new("RGB", (160, 60)).save(stream, image_format)
    to_array(stream.getvalue(), size)
def peak():  # not what getrusage says, which is its parent's if that is larger
    return next(int(line.split()[1]) / 1e3 for line in open("/proc/self/status") if line.startswith("VmHWM"))
data = open(sys.argv[1], "rb").read()
before, started = peak(), time.perf_counter()
try:
    to_array(data, size)
except ImageError:
    pass
ms = 1e3 * (time.perf_counter() - started)
print(json.dumps([ms, peak() - before]))
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_in_a_sentence(bomb):
    with pytest.raises(ImageError) as refusal:
        to_array(BOMBS[bomb], SIZE)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("burdened", BURDENED)
def test_what_is_only_burdened_is_read_without_its_burden(burdened):
    assert to_array(BURDENED[burdened], SIZE).shape == (1, 60, 160)


@pytest.mark.parametrize("image_format", FORMATS)
def test_a_file_of_each_format_is_read_so_that_it_is_not_for_its_format_that_a_bomb_is_refused(image_format):
    assert to_array(encoded(image_format, "RGB"), SIZE).shape == (1, 60, 160)


def test_every_bomb_costs_less_than_10_ms_and_20_mb(soak, figure, tmp_path):
    if not soak:
        pytest.skip("a matter of time and memory: make soak")
    costs = {}
    for number, (name, data) in enumerate((BOMBS | BURDENED).items()):
        (tmp_path / str(number)).write_bytes(data)
        command = [sys.executable, "-c", COST, str(tmp_path / str(number))]
        costs[name] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    slowest, largest = (max(costs, key=lambda name: costs[name][which]) for which in (0, 1))
    figure(
        f"{len(BOMBS)} bombs, all refused, and {len(BURDENED)} burdened images, all read: "
        f"{costs[slowest][0]:.1f} ms at most ({slowest}), {costs[largest][1]:.1f} MB at most ({largest})"
    )
    assert costs[slowest][0] < MOST_MS
    assert costs[largest][1] < MOST_MB
