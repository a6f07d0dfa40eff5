import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from conftest import ONE_WORKER, TINY, decode, naming

from captcha_ocr.data.images import to_array
from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import read_shard
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.training import PRESETS, DrawOptions, TrainConfig
from captcha_ocr.training.samples.dataset import DrawnData

DEJAVU = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")

DIGITS = DrawOptions(length="2", charset="digits", images=24)


def drawn(options: DrawOptions = DIGITS, **training) -> DrawnData:
    return DrawnData.of(options, replace(TrainConfig(), **training))


@pytest.mark.parametrize(
    "options", [DIGITS, DrawOptions(length="3-5", size=(64, 32), channels=3, images=24)]
)
def test_the_pixels_and_texts_are_those_of_generate_and_prepare(options, tmp_path):
    data = drawn(options, seed=7)
    generate(plan_drawing(replace(data.plans[0].options, count=24)), tmp_path / "images", 1)
    config = PrepareConfig(
        "default", size=options.size, channels=options.channels, charset=options.charset
    )
    manifest = prepare(tmp_path / "images", tmp_path / "shards", config, ONE_WORKER).manifest
    assert (manifest.size, manifest.lengths) == (data.size, data.lengths)
    of_shards = [read_shard(tmp_path / "shards", manifest, shard) for shard in manifest.shards]
    (job,) = data.jobs("train", range(24))

    def samples(parts, charset):
        """The bytes of the pixels, and the texts; prepare shuffles them."""
        return sorted(
            (pixels.tobytes(), text)
            for images, labels in parts
            for pixels, text in zip(images, decode(charset, labels), strict=True)
        )

    images, labels = data.draw(job)
    assert images[0].dtype == np.uint8
    assert samples([(images, labels)], data.charset) == samples(of_shards, manifest.charset)


def test_no_image_is_drawn_twice():
    data = drawn(replace(DIGITS, images=250))
    of_training = [job for block in range(3) for job in data.jobs("train", range(250), block)]
    held_out = [
        job for split in ("val", "test") for job in data.jobs(split, range(data.count(split)))
    ]
    numbers = [*chain(*of_training, *held_out)]
    assert len(set(numbers)) == len(numbers) == 3 * 250 + 2 * 2000
    assert sorted(numbers)[: 3 * 250] == list(range(3 * 250))
    assert max(numbers[: 3 * 250]) < 10**6 * 10**6 <= min(numbers[3 * 250 :])


def test_the_hash_tells_apart_whatever_changes_the_images(tmp_path):
    options = replace(DIGITS, size=(48, 16), channels=1, fonts=(DEJAVU,))
    data = drawn(options)
    copy = shutil.copy(DEJAVU, tmp_path)
    assert drawn(replace(options, fonts=(copy,), workers=3)).sha256 == data.sha256
    others = [
        {"fonts": ()},
        {"images": 25},
        {"repeat": 2},
        {"size": (64, 16)},
        {"length": "3"},
        {"charset": "01"},
    ]
    hashes = {drawn(replace(data.options, **other)).sha256 for other in others}
    hashes |= {
        data.sha256,
        drawn(data.options, seed=1).sha256,
        drawn(replace(options, size=None), preset="seed").sha256,
    }
    assert len(hashes) == len(others) + 3


def test_both_cases_are_read_as_one_unless_they_are_told_apart():
    mixed = replace(DIGITS, size=(48, 16), channels=1, charset="aAbB")
    assert str(drawn(mixed).charset) == "ab (lower case)"
    assert str(drawn(replace(mixed, case_sensitive=True)).charset) == "ABab"
    assert drawn(mixed).draw(range(24))[1].max() == 1


def test_a_preset_with_a_size_of_its_own_determines_that_of_the_input(tiny_preset):
    assert drawn(preset="tiny").size == TINY.size
    assert str(drawn(replace(DIGITS, channels=3), preset="tiny").size) == "48x16, colour"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"charset": "1"}, ["`charset`", "1"]),
        ({"charset": "字1"}, ["字"]),
        ({"fonts": ("nowhere.ttf",)}, ["nowhere.ttf"]),
        ({"length": "99"}, ["99"]),
        ({"size": (2, 16)}, ["`size`", 2]),
    ],
)
def test_what_cannot_be_drawn_or_learnt_is_refused(options, named):
    with pytest.raises(UsageError, match=naming(*named)):
        drawn(replace(DIGITS, **options))


def test_several_designs_take_turns_and_fonts_go_to_the_random_ones():
    options = DrawOptions(
        ("random:easy", "captcha-classic", "captcha"), fonts=(DEJAVU,), size=(96, 32), channels=1
    )
    data = drawn(replace(options, images=6))
    assert [bool(plan.options.fonts) for plan in data.plans] == [True, False, False]
    assert (data.lengths, len(data.charset)) == (Lengths(1, 12), 10 + 26 + 13)
    images, labels = data.draw(range(6))
    alone = [drawer_of(data.plans[number % 3]).draw(number) for number in range(6)]
    assert decode(data.charset, labels) == [data.charset.normalize(each.text) for each in alone]
    assert np.array_equal(np.stack(images), [to_array(each.image, data.size) for each in alone])
    assert data.name == "`draw` random:easy, captcha-classic, captcha"
    assert drawn(replace(options, designs=options.designs[:2])).sha256 != data.sha256


def test_a_size_in_the_options_is_the_largest_where_the_preset_keeps_the_aspect():
    general = drawn(preset="general").size
    assert general == PRESETS["general"].size
    larger = drawn(replace(DIGITS, size=(384, 64), channels=1), preset="general").size
    assert larger == InputSize(64, 384, 1, step=64 * general.step // general.height)
    with pytest.raises(UsageError, match="100"):
        drawn(replace(DIGITS, size=(100, 64)), preset="general")
