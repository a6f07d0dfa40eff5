import pytest

from captcha_ocr.inference.decoding import Reading
from captcha_ocr.inference.sums import evaluate


@pytest.mark.parametrize(
    ("text", "result"),
    [
        *(("3+8=?", 11), ("12+9=", 21), ("31-6?", 25), ("9*4", 36), ("3x8=?", 24), ("3X8", 24)),
        *(("12/4=?", 3), ("9÷3=?", 3), ("8:2", 4), ("7×6=?", 42), ("1-2", -1), ("-3+8=?", 5)),
        *(("2+3*4=?", 14), ("10-2-3", 5), ("12/3*2", 8), ("3 + 8 = ?", 11), ("03+08", 11)),
        *(("3+?=8", 5), ("?+3=8", 5), ("?-3=5", 8), ("9-?=4", 5), ("5*?=20", 4), ("?/4=3", 12)),
        *(("8/?=2", 4), ("3+_=8", 5), ("３＋８＝？", 11), ("5−2", 3), ("٣+٨", 11)),
        *(
            ("三加五等于?", 8),
            ("十五减二十一", -6),
            ("贰乘叁等于多少", 6),
            ("8除以2", 4),
            ("壹拾贰加一十", 22),
            ("贰拾减两", 18),
            ("一百", None),
        ),
        *(("seven plus eight is", 15), ("sixteen divided by four", 4), ("6 times 6 equals?", 36)),
        *(("twenty one plus 2", 23), ("ninety-nine - twenty", 79), ("twenty - one", 19)),
        *(("7/2", None), ("8/0=?", None), ("5*?=21", None), ("8/?=0", None), ("3+8=11", None)),
        *(("", None), ("12", None), ("-5", None), ("AB12", None), ("a+b", None), ("x", None)),
        *(("3++8", None), ("3+", None), ("3+8=??", None), ("?+?=8", None), ("1234567890+1", None)),
        *(("__import__", None), ("2**9", None), ("3+8;1", None)),
    ],
)
def test_a_sum_has_its_result_and_another_text_none(text, result):
    assert evaluate(text) == result
    assert Reading(text, 0.5).result == result
