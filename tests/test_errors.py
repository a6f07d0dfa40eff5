import re

import pytest

from captcha_ocr import errors
from captcha_ocr.errors import CaptchaOcrError

CLASSES = [item for item in vars(errors).values() if isinstance(item, type)]


@pytest.mark.parametrize(
    ("name", "exit_code"),
    [("CaptchaOcrError", 1), ("UsageError", 2), ("ImageError", 1), ("LabelError", 1), ("DamagedError", 3)],
)
def test_every_error_has_the_exit_code_that_the_command_line_promises(name, exit_code):
    assert getattr(errors, name).exit_code == exit_code


def test_one_base_class_catches_every_error():
    assert all(issubclass(item, CaptchaOcrError) for item in CLASSES)


def test_no_error_catches_another_kind():
    assert all(item.__base__ in (CaptchaOcrError, Exception) for item in CLASSES)


def test_the_tree_at_the_top_of_the_file_is_true():
    drawn = re.findall(r"(\w+Error) +(\d)  ", errors.__doc__)
    assert {name: int(exit_code) for name, exit_code in drawn} == {item.__name__: item.exit_code for item in CLASSES}


def test_an_error_prints_as_its_sentence():
    assert str(errors.ImageError("not a readable image")) == "not a readable image"


def test_a_sentence_has_an_end():
    assert len(str(CaptchaOcrError("a" * 1_000_000))) < 20_000
