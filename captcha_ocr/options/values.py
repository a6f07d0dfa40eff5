"""Limits that several options share, and values that have a notation of their own."""

import re
from collections.abc import Callable

from captcha_ocr.charset import Charset, resolve_alphabet
from captcha_ocr.errors import UsageError
from captcha_ocr.options.model import Lengths

MAX_AREA = 4_000_000  # pixels of an image, generated or read
MAX_BYTES = 2_000_000  # of an image file that is read, unless --max-bytes says otherwise
MAX_THREADS = 1024
MAX_WORKERS = 256  # processes
MAX_SEED = 2**32 - 1  # that every random generator we use accepts


def parse_size(text: str) -> tuple[int, int]:
    """Parse WIDTHxHEIGHT as (width, height); UsageError for any other text."""
    sides = re.fullmatch(r"0*([1-9][0-9]{0,8})x0*([1-9][0-9]{0,8})", text)
    if sides is None:
        raise UsageError(f"{text[:40]!r} is not WIDTHxHEIGHT, such as 160x60")
    return int(sides[1]), int(sides[2])


def parse_numbers(separator: str) -> Callable[[str], tuple[int, ...]]:
    """Return a function that parses whole numbers; UsageError for other texts."""

    def parse(text: str) -> tuple[int, ...]:
        parts = text.split(separator) if text else []
        if not all(re.fullmatch(r" *[0-9]{1,9} *", part) for part in parts):
            numbers = f"whole numbers separated by {separator!r}"
            raise UsageError(f"{text[:40]!r} is not {numbers}")
        return tuple(int(part) for part in parts)

    return parse


def check_alphabet(name_or_characters: str) -> str:
    """Return the argument; UsageError unless it is an alphabet, or the name of one."""
    Charset(resolve_alphabet(name_or_characters))
    return name_or_characters


def check_length(text: str) -> str:
    """Return the number of characters, or the range, as `Lengths` writes it; else UsageError."""
    return str(Lengths.parse(text))
