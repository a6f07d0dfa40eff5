"""The result of a sum that a captcha shows: 11 of `3+8=?`."""

import math
import re
import unicodedata
from contextlib import suppress
from fractions import Fraction
from itertools import product

_SPELLINGS = {
    "+": ("plus", "加上", "加"),
    "-": ("minus", "减去", "減去", "减", "減", "\u2212", "\u2013"),
    "*": ("multiplied by", "times", "乘以", "乘", "x", "\u0445", "×", "·", "⋅", "\u2219"),
    "/": ("divided by", "除以", "除", "÷", ":"),
    "=": ("equals", "equal", "is", "等于", "等於"),
    "?": ("what", "多少", "几", "幾", "_", "□"),
}
_DIGITS, _CAPITALS = "一二三四五六七八九", "壹贰叁肆伍陆柒捌玖"


def _count(digits: str, ten: str) -> str:
    """Return the Chinese numbers from 0 to 99, the first of them empty."""
    tens = ("", ten, *(f"{digit}{ten}" for digit in digits[1:]))
    return " ".join(map("".join, product(tens, ("", *digits))))


_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ONES = "one two three four five six seven eight nine"
_NUMBERS = (  # each from 0 on
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen",
    "零" + _count(_DIGITS, "十"),
    "〇" + _count(_CAPITALS, "拾"),
)
_PLAIN = {word: sign for sign, words in _SPELLINGS.items() for word in words}
_PLAIN |= {word: str(number) for words in _NUMBERS for number, word in enumerate(words.split(" "))}
_PLAIN |= {"两": "2", "兩": "2"}
for one, ten in ("一十", "壹拾"):  # both 一十二 and 十二 are 12
    _PLAIN |= {one + word: number for word, number in _PLAIN.items() if word[0] == ten}
_COUNTED_ONES = ["", *_ONES.split()]
for (tens, ten), (ones, one) in product(enumerate(_TENS.split(), 2), enumerate(_COUNTED_ONES)):
    _PLAIN |= {f"{ten}{gap}{one}".rstrip(" -"): str(10 * tens + ones) for gap in ("", " ", "-")}
_WORD = re.compile("|".join(sorted(_PLAIN, key=len, reverse=True)))  # "seven" is in "seventeen"
_SUM = re.compile(r"(-?\d{1,9}(?:[-+*/]\d{1,9})+)=?\??")
_GAP = re.compile(r"(?=\?.\d|\d+.\?=)(\d{0,9})(\?[-+*/]|[-+*/]\?)(\d{0,9})=(\d{1,9})")
# What `?` is, of the other number and the result
_GAPS = {
    **{"?+": "{1}-{0}", "?-": "{1}+{0}", "?*": "{1}/{0}", "?/": "{1}*{0}"},
    **{"+?": "{1}-{0}", "-?": "{0}-{1}", "*?": "{1}/{0}", "/?": "{0}/{1}"},
}


def evaluate(text: str) -> int | None:
    """Return the result of a sum, or the number that `?` stands for; None if the text is no sum.

    A sum has whole numbers and the signs + - * x × ÷ / or their words, and ends with `=`, `?`, both
    or neither. Its result is a whole number, too: 7/2 has none.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = "".join(_WORD.sub(lambda word: _PLAIN[word[0]], plain).split())
    if whole := _SUM.fullmatch(plain):
        return _compute(whole[1])
    if gap := _GAP.fullmatch(plain):
        first, kind, second, result = gap.groups()
        return _compute(_GAPS[kind].format(first + second, result))
    return None


def _compute(terms: str) -> int | None:
    """Return the value of a sum of products; None if it is no whole number."""
    total = Fraction()
    with suppress(ZeroDivisionError):
        for term in re.findall(r"[-+]?[^-+]+", terms):
            factors = re.findall(r"([*/]?)([-+]?\d+)", term)
            powers = (Fraction(number) ** (-1 if sign == "/" else 1) for sign, number in factors)
            total += math.prod(powers)
        return int(total) if total.denominator == 1 else None
    return None
