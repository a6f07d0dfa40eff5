import json
from dataclasses import replace

import pytest
from conftest import naming

from captcha_ocr.charset import Charset
from captcha_ocr.errors import UsageError
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig

MODEL = ModelConfig(Charset("ab"), Lengths(4, 6), InputSize(24, 56, 3), NetworkConfig(width=8))


def test_a_size_with_a_step_keeps_the_aspect_of_images_as_far_as_it_goes():
    size = InputSize(height=64, width=320, channels=3, step=32)
    widths = [
        size.width_of(*sides) for sides in ((160, 64), (100, 40), (170, 64), (64, 640), (6400, 64))
    ]
    assert widths == [160, 160, 160, 64, 320]
    assert size.fixed(100, 40) == InputSize(64, 160, 3) == InputSize(64, 160, 3).fixed(7, 7)
    assert str(size) == "up to 320x64, colour"
    assert replace(MODEL, size=size).reads_columns
    assert not MODEL.reads_columns


def test_a_size_without_a_step_is_written_as_before_there_were_steps():
    assert "step" not in MODEL.to_dict()["size"]
    model = replace(MODEL, size=InputSize(64, 320, 3, 32))
    assert ModelConfig.from_dict(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.parametrize("ink", ["", "redd", "#12", "#12345g", "12", "rgb(1)"])
def test_an_ink_is_a_colour(ink):
    size = InputSize(8, 16, 1, ink="red")
    assert InputSize(**json.loads(json.dumps(size.to_dict()))) == size
    with pytest.raises(UsageError, match=naming("`ink`", repr(ink))):
        replace(size, ink=ink)


def test_a_step_that_does_not_fit_is_refused():
    for step in (0, 65, 48, 1.5):
        with pytest.raises(UsageError, match="step"):
            InputSize(64, 320, 3, step)
    with pytest.raises(UsageError, match="global"):
        replace(MODEL, size=InputSize(64, 320, 3, 32), network=NetworkConfig(pool="global"))
