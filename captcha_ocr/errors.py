"""Everything captcha-ocr raises on purpose, each with the exit code of the command line.
import math
import re
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple, get_args
from captcha_ocr.charset import NAMED, Charset, Fold, characters_of

CaptchaOcrError            1   something failed; the message is one sentence for the user
├── UsageError             2   an option, an argument or a combination of them that cannot be
├── ImageError             1   a file that is no readable image
├── LabelError             1   a label that is missing or does not fit the alphabet or length
└── DamagedError           3   a shard, manifest, checkpoint or model of ours that is not whole
"""

LONGEST = 10_000  # characters of a sentence, which may name a path or two of 4,096


def in_one_line(text: str) -> str:
    """`text` without anything that could break a line or a terminal: such characters as \\xNN."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


class CaptchaOcrError(Exception):
    """Base of the project's own errors: `str(error)` is one sentence that a user can act on."""

    exit_code = 1

    def __str__(self) -> str:
        text = super().__str__()  # whatever a file is called, or holds
        return in_one_line(text if len(text) <= LONGEST else text[:LONGEST] + "…")


class UsageError(CaptchaOcrError):
    """An option, an argument or a combination of them that cannot be."""

    exit_code = 2


class ImageError(CaptchaOcrError):
    """A file, or bytes, that is no readable image or lies outside the limits."""


class LabelError(CaptchaOcrError):
    """A label that is missing, or that the alphabet or the length does not admit."""


class DamagedError(CaptchaOcrError):
    """A file that captcha-ocr wrote is missing, cut short or changed."""

    exit_code = 3


def check(condition: bool, sentence: str) -> None:
    """Raise UsageError with `sentence` unless `condition` holds."""
    if not condition:
        raise UsageError(sentence)


def is_int(value: object, low: int, high: int) -> bool:
    """Whether `value` is an int, and no bool, within [low, high]."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
