import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ONE_WORKER, decode
from PIL import Image

import captcha_ocr.data.prepare
from captcha_ocr.data.shards import read_manifest, read_shard
from captcha_ocr.options.preparation import SPLITS, PrepareConfig

SMALL = PrepareConfig(size=(16, 8))


def tiny(**options):
    """The configuration that made the shards of conftest.py.

    Its preset exists only while tests run.
    """
    return PrepareConfig(preset="tiny", **options)


def prepare(images, out, config=None, **options):
    """Prepare a folder in this process, by default as the shards of conftest.py."""
    options = replace(ONE_WORKER, **options)
    return captcha_ocr.data.prepare.prepare(images, out, config or tiny(), options)


def counts(folder):
    """The number of samples in each split."""
    manifest = read_manifest(folder)
    return [manifest.count(split) for split in SPLITS]


def samples(folder, *splits):
    """What the shards of some splits hold, by default of all: [(pixels as bytes, text)]."""
    manifest, pairs = read_manifest(folder), []
    for shard in manifest.shards:
        if shard.split in (splits or SPLITS):
            images, labels = read_shard(folder, manifest, shard)
            pixels = (image.tobytes() for image in images)
            pairs += zip(pixels, decode(manifest.charset, labels), strict=True)
    return pairs


def draw(folder, name, grey):
    """A flat image; equal greys give equal bytes."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (16, 8), grey).save(folder / name)


def labelled(folder, rows):
    """A folder of flat images 0.png, 1.png, … and its labels.csv.

    A row is (grey, text) or (grey, text, split).
    """
    for number, (grey, *_) in enumerate(rows):
        draw(folder, f"{number}.png", grey)
    with open(folder / "labels.csv", "w", encoding="utf-8", newline="") as stream:
        table = [(f"{number}.png", *rest) for number, (_, *rest) in enumerate(rows)]
        csv.writer(stream).writerows([("filename", "text", "split"), *table])
    return folder


def numbered(count, split=lambda number: ""):
    """Rows of different images with two texts in turn, and the split of each."""
    return [(number, ("ab", "ba")[number % 2], split(number)) for number in range(count)]


def prepare_rows(rows, config=SMALL, **options):
    """Prepare flat images, from rows as `labelled` takes them, into the folder `out`."""
    return prepare(labelled(Path("images"), rows), Path("out"), config, **options)


@pytest.fixture
def done(shards, tmp_path):
    """A copy of the finished shards, to change."""
    return shutil.copytree(shards, tmp_path / "done")
