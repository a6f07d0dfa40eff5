import pytest

from captcha_ocr import errors
from captcha_ocr.errors import CaptchaOcrError

EXIT_CODES = {
    "CaptchaOcrError": 1,
    "UsageError": 2,
    "ImageError": 1,
    "LabelError": 1,
    "DamagedError": 3,
}


def test_every_error_has_its_exit_code_and_no_error_catches_another():
    kinds = [item for item in vars(errors).values() if isinstance(item, type)]
    classes = [kind for kind in kinds if issubclass(kind, Exception)]
    assert {item.__name__: item.exit_code for item in classes} == EXIT_CODES
    assert CaptchaOcrError.__base__ is Exception
    assert [item for item in classes if item.__base__ is not CaptchaOcrError] == [CaptchaOcrError]


@pytest.mark.parametrize(("text", "shown"), [("no image", "no image"), ("a\x1b\nb", r"a\x1b\nb")])
def test_an_error_is_printed_as_one_line(text, shown):
    assert str(errors.ImageError(text)) == shown
    assert len(str(CaptchaOcrError(text * 1_000_000))) < 60_000
