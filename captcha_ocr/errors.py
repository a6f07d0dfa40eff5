"""Every error that captcha-ocr raises on purpose, each with the exit code of the command line.

A message names an option by its field, in backticks: "choose another `out`". `cli/` prints the flag
instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_MESSAGE_LENGTH = 10_000  # characters; a message may name two paths, each of up to 4,096


def in_one_line(text: str) -> str:
    """Escape every character that could break a line or a terminal, such as \\x1b."""
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


@dataclass(frozen=True)
class Command:
    """A command of this program, which `cli/` words: its name, its arguments, its options by field.

    An option that is None or False is left out, True is the flag alone, a sequence repeats the
    flag.
    """

    name: str
    arguments: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Advice:
    """A command that helps, and what for: "make images with"."""

    purpose: str
    command: Command


class CaptchaOcrError(Exception):
    """Base class of our errors: `str(error)` is one sentence that tells a user what to do.

    advice: a command that helps, which the command line prints after the sentence.
    """

    exit_code = 1

    def __init__(self, message: str = "", advice: Advice | None = None) -> None:
        super().__init__(message)
        self.advice = advice

    def __str__(self) -> str:
        text = super().__str__()  # may hold anything that is in a file or its name
        if len(text) > MAX_MESSAGE_LENGTH:
            text = text[:MAX_MESSAGE_LENGTH] + "…"
        return in_one_line(text)


class UsageError(CaptchaOcrError):
    """An option, an argument or a combination of them is wrong."""

    exit_code = 2


class ImageError(CaptchaOcrError):
    """A file, or bytes, cannot be read as an image or exceeds the limits."""


class LabelError(CaptchaOcrError):
    """A label is missing, or does not fit the alphabet or the lengths."""


class DamagedError(CaptchaOcrError):
    """A file that captcha-ocr wrote is missing, cut short or changed."""

    exit_code = 3


def check(condition: bool, message: str, error: type[CaptchaOcrError] = UsageError) -> None:
    """Raise an error with `message` unless `condition` is true."""
    if not condition:
        raise error(message)


def is_int(value: object, low: int, high: int) -> bool:
    """Tell whether `value` is an int, not a bool, from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
