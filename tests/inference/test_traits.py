import re
import string
from random import Random

import pytest

from captcha_ocr.inference.decoding import Character, Reading
from captcha_ocr.inference.traits import Tally, Traits
from captcha_ocr.options.model import Lengths


def read(text: str, confidence: float = 0.9) -> Reading:
    return Reading(text, confidence, tuple(Character(c, confidence, "", 0.0) for c in text))


def count(readings, known=string.printable):
    tally = Tally(set(known))
    for number, reading in enumerate(readings):
        tally.add(reading, f"{number}.png")
    return tally


def find_traits(readings):
    return count(readings).find_traits()


def draw(alphabet: str, length: int, count: int = 200) -> list[Reading]:
    random = Random(0)
    return [read("".join(random.choices(alphabet, k=length))) for _ in range(count)]


@pytest.mark.parametrize(
    ("readings", "charset", "lengths", "fold_case"),
    [
        (draw("0123456789", 4), "0123456789", "4", False),
        (draw("3579ACEF", 5) + draw("3579ACEF", 6), "3579ACEF", "5-6", False),
        # A few misreadings: a character that is none, one too many
        (draw("0123456789", 4) + [read("12a4")] * 5, "0123456789", "4", False),
        (draw("0123456789", 4) + [read("12345")] * 20, "0123456789", "4", False),
        # The case of most letters is that of all
        (draw("abdefghmn", 5) + draw("aBdefGhmn", 5, 40), "abdefghmn", "5", True),
        (draw("ABDEFGHMN", 5) + draw("AbDEFgHMN", 5, 40), "ABDEFGHMN", "5", True),
        (draw("abdeABDE", 5), "ABDEabde", "5", False),
        (draw("ABDE", 5) + [read("vwxoo")] * 50, "ABDEOVWX", "5", True),
        # 0 and o are taken for one another; in hexadecimal digits there is no o
        ([*draw("23456789abcdefghjko", 5), read("0bcd5")], "023456789abcdefghjko", "5", False),
        ([*draw("0123456789abcdef", 5), read("ob1d5")], "0123456789abcdef", "5", False),
        (draw("12+=?", 5), "+12=?", "5", False),
    ],
)
def test_what_is_read_often_enough_is_what_the_texts_have(readings, charset, lengths, fold_case):
    traits = find_traits(readings)
    assert (traits.charset, traits.lengths) == (charset, Lengths.parse(lengths))
    assert traits.fold_case == fold_case


def test_unsure_readings_count_less():
    unsure = [read("12345", 0.05)] * 100
    assert find_traits(draw("123456789", 4) + unsure).lengths == Lengths(4, 4)
    assert find_traits(draw("123456789", 4) + [read("12345")] * 100).lengths == Lengths(4, 5)


def test_the_part_of_what_was_read_that_has_the_traits_is_known():
    tally = count(draw("123456789", 4, 90) + [read("123456", 0.9)] * 10)
    assert tally.measure_fit(tally.find_traits()) == pytest.approx(360 / 420)
    assert tally.measure_fit(Traits("123", Lengths(6, 6), False)) == pytest.approx(30 / 420)


def test_some_images_of_each_length_are_kept():
    tally = count(draw("12", 4, 400) + draw("12", 5, 3))
    assert len(tally.examples[4]) < 400
    assert tally.examples[5] == ["400.png", "401.png", "402.png"]
    tally.add(read("12345"), b"bytes, which would need memory")
    assert len(tally.examples[5]) == 3


def test_few_or_unsure_readings_tell_nothing():
    assert find_traits(draw("123", 4, 11)) is None
    assert find_traits(draw("123", 4, 12)) is not None
    assert find_traits([read("1234", 0.05)] * 199) is None


def test_of_few_characters_none_is_left_out_whose_kind_was_read():
    assert find_traits(draw("0123456789", 4, 12)).charset == "0123456789"
    assert find_traits([read("1234")] * 5 + [read("12=?")] * 10).charset == "1234=?"
    assert find_traits([read("bcde")] * 2 + [read("1a5?")] * 10).charset == "".join(
        sorted({*string.digits, *string.ascii_lowercase, "?"})
    )


def test_a_few_texts_in_thousands_of_characters_leave_all_of_them():
    readings = draw("".join(map(chr, range(0x4E00, 0x4F00))), 4, 50)
    known = "".join(map(chr, range(0x4E00, 0x5E00))) + "12+"
    assert count(readings, known).find_traits().charset == "".join(sorted(known))


def test_characters_that_the_model_does_not_know_are_not_read():
    traits = count(draw("ABDe", 5), "ABDefv").find_traits()
    assert (traits.charset, traits.fold_case) == ("ABDe", False)


def test_sums_have_the_form_that_most_of_them_have():
    sums = [read("12+7=?")] * 20 + [read("12+7=")] * 3 + [read("1237=?")] * 3
    form = re.compile(count(sums).find_form())
    assert [bool(form.fullmatch(text)) for text in ("3x19=?", "12+7=", "1237=?")] == [
        *(True, False, False)
    ]
    assert re.fullmatch(count([*draw("123", 4), read("1+2=")]).find_form(), "1232")
