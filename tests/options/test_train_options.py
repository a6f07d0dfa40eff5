import json
from dataclasses import asdict

import pytest
from conftest import naming

from captcha_ocr.errors import UsageError
from captcha_ocr.options.declaration import words
from captcha_ocr.options.training import DrawOptions

ALL = DrawOptions(("captcha",), "2-3", "digits", True, ("a.ttf", "b.ttf"), (48, 16), 3, 40, 2, 1)


def test_options_survive_json_and_are_given_as_they_were():
    assert DrawOptions.from_dict(json.loads(json.dumps(asdict(ALL)))) == ALL
    assert words(DrawOptions().given()) == ["--draw", "captcha"]
    assert " ".join(words(ALL.given())) == (
        "--draw captcha --length 2-3 --charset digits --case-sensitive --fonts a.ttf "
        "--fonts b.ttf --size 48x16 --channels 3 --images 40 --repeat 2 --workers 1"
    )


@pytest.mark.parametrize(
    ("options", "name"), [({"images": 1}, "images"), ({"repeat": 0}, "repeat")]
)
def test_what_cannot_be_drawn_is_refused_by_the_name_of_the_option(options, name):
    with pytest.raises(UsageError, match=naming(f"`{name}`")):
        DrawOptions(**options)


@pytest.mark.parametrize(("epochs", "images"), [(1, 40), (2, 40), (3, 80)])
def test_every_few_epochs_show_other_images(epochs, images):
    assert ALL.different(epochs) == images
