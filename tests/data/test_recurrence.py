import random
import string

import pytest

from captcha_ocr.data.recurrence import are_versions, find_no_texts, find_odd_characters

DIGITS, LETTERS, CHARACTERS = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHJK23456789"


def draw(count, characters=CHARACTERS, length=4):
    """Different random texts, always the same."""
    chance, texts = random.Random(1), dict[str, None]()
    while len(texts) < count:
        texts["".join(chance.choices(characters, k=length))] = None
    return [*texts]


@pytest.mark.parametrize(
    "word",
    [
        *(
            "null",
            "NULL",
            "none",
            "NaN",
            "N/A",
            "n.a.",
            "#N/A",
            "unknown",
            "<unknown>",
            "undefined",
        ),
        *("error", "Unreadable", "not readable", "empty", "[skip]", "TODO", "desconocido", "未知"),
        *("????", "?", "-", "---", "...", "*****", "#", "____"),
        *("xxxx", "0000", "?A? nobody knows", "see the next one"),
        *("nope", "abcd", "test", "asdf", "1234", "无法识别", "Не видно", "A23B"),
    ],
)
def test_a_word_that_recurs_and_is_no_text_is_found(word):
    texts = draw(220)
    assert find_no_texts([*texts, *[word] * 20]) == {word: 20}
    assert find_no_texts([*texts, word]) == {}  # a text that occurs once
    assert find_no_texts([*texts, *["nil"] * 9, *[word] * 20])[word] == 20  # beside another


@pytest.mark.parametrize(
    "texts",
    [
        [*draw(200, LETTERS), "null", "none", "fail"],
        ["null", "word", "time", "none"] * 20,  # a list of words
        ["0000", "1234", "5678"] * 2 + draw(50, DIGITS),
        ["1234"] * 9 + draw(50, DIGITS),  # so often by accident
        [*DIGITS] * 20 + ["7"] * 70,
        ["null"] * 30,  # nothing else: said elsewhere
        ["+", "-", "*"] * 10 + ["-"] * 20,
        draw(100, "-+*", 5) + ["-----"] * 2,
        [text for text in draw(90) for _ in range(4)] + ["A23B"] * 19,
        [text for text in draw(50) for _ in range(8)] + ["none"] * 9,
    ],
)
def test_texts_stay_even_if_they_recur_or_are_words(texts):
    assert find_no_texts(texts) == {}


def copies(form, count=8, texts=None):
    """Files and texts of versions of images."""
    return {
        form.format(text, number, place): text
        for place, text in enumerate(texts or draw(50))
        for number in range(count)
    }


@pytest.mark.parametrize(
    "texts",
    [
        copies("{0}_{1}.png"),
        copies("{1}_{0}.png", 2),
        copies("a/{0} ({1}).jpg"),
        copies("{0}-rotated{1}.png", 4),
        copies("img_{2:04}_{1}.png"),
        copies("{2:03}/{0}_blur{1}.png", 3),
        {"x.png": "A", **copies("{0}_{1}.png")},
        {file.lower(): text for file, text in copies("{0}_{1}.png").items()},
    ],
)
def test_versions_of_images_are_known_by_their_texts_and_names(texts):
    assert are_versions(texts)


@pytest.mark.parametrize(
    "texts",
    [
        {},
        copies("{0}.png", 1, draw(300)),
        {**copies("{0}.png", 1, draw(300)), **copies("{0}_2.png", 1, draw(20))},
        copies("{0}_{1}.png", 40, ["AB", "BA", "AA"]),
        copies("{0}_{1}.png", 8, draw(60, DIGITS, 2)),  # such texts recur by chance
        copies("{0}_{1}.png", 9, [chr(0x4E00 + number) * 4 for number in range(50)]),
    ],
)
def test_other_images_are_no_versions(texts):
    assert not are_versions(texts)


def odd_in(texts):
    return find_odd_characters({str(number): text for number, text in enumerate(texts)})


@pytest.mark.parametrize(
    ("notes", "characters"),
    [
        *((["A3?D"], ["'?'"]), (["AB/CD"], ["'/'"]), (["A_3D"], ["'_'"]), (["AB12 "], ["' '"])),
        *((["(blurry)"], ["'('"]), (["A23B ??"], ["' '"]), (["A3?D", "3B?", "?"], ["'?'"] * 3)),
        *((["A[B]", "AB!2", "AB\u2026"], ["'['", "'!'", "'\u2026'"]), (["O234"], ["'O'"])),
        *(
            (["a234"], ["'a'"]),
            (["\u0410B23"], ["U+0410 CYRILLIC"]),
            (["A\u039f"], ["U+039F GREEK"]),
        ),
        *((["\u6f222"], ["U+6F22 CJK"]), (["\u00c423"], ["'\u00c4'"]), (["AB23", "AB23"], [])),
        (["A?B2", *string.ascii_lowercase], ["'?'", *string.ascii_lowercase]),
        ([f"\u0410B{n}" for n in range(60)], ["U+0410 CYRILLIC"] * 60),  # words that mix scripts
        *(
            ([f"\u0410{n}" for n in range(60)], []),
            (["\u041d\u0435 \u0432\u0438\u0434\u043d\u043e"] * 20, []),
        ),
    ],
)
def test_a_character_that_hardly_any_other_text_has_is_named(notes, characters):
    found = odd_in([*notes, *draw(300)])
    assert len(found) == len(characters)
    assert all(map(str.__contains__, found.values(), characters))


@pytest.mark.parametrize(
    "texts",
    [
        *([], ["AB?"], draw(300, string.printable[:94], 5), draw(100, DIGITS + LETTERS + "@", 4)),
        [f"{one}{sign}{other}=?" for one in DIGITS for sign in "+-*" for other in DIGITS],
        draw(300, [chr(0x4E00 + number) for number in range(3000)]),  # most of them occur once
        draw(50),  # too few to know
        [text + " " + text[::-1] for text in draw(60, LETTERS)],
    ],
)
def test_an_alphabet_with_signs_has_no_odd_character(texts):
    assert odd_in(texts) == {}
