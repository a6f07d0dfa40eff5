import random
from itertools import product
from string import ascii_lowercase, digits

import pytest
from conftest import naming

from captcha_ocr.data.label_sources.names import NameReader, are_counted
from captcha_ocr.errors import LabelError

CHOOSE = random.Random(0)


def words(alphabet="ABCDEFGH0123", length=4, count=60):
    return ["".join(CHOOSE.choices(alphabet, k=length)) for _ in range(count)]


TEXTS = words()
HEX = "0123456789abcdef"


def read(stems, fits=None):
    """Return the text in each name, None if there is none."""
    reader, found = NameReader(stems, fits), []
    for stem in stems:
        try:
            found.append(reader.find_text(stem))
        except LabelError:
            found.append(None)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *(
            "{text}",
            "{text}_{number}",
            "{number:04}_{text}",
            "{number:05}-{text}",
            "{number}-{text}",
            "{text}-{number}",
        ),
        *(
            "captcha_{text}",
            "captcha-{text}",
            "{text}_captcha",
            "img_{number}_{text}",
            "{text}_{number}_{number}",
        ),
        *(
            "{text}_{hash}",
            "{hash}_{text}",
            "{time}_{text}",
            "{text}_{copy}",
            "{text}-{copy}",
            "{text}.{copy}",
            "{number}.{text}",
            "{text} 10.03.2024",
            "20240301_{text}",
            "[{text}] {copy}",
            "{step}_{text}",
            "{text}_{short}",
            "{number} ({text})",
            "{number:03}#{text}",
            "{hash} ({text})",
            "2024-03-10_{text}",
            "{number} {text}",
            "{text}_2024-03-10_12-33-{copy}",
        ),
    ],
)
def test_the_text_is_found_where_the_names_differ_and_do_not_count(name):
    stems = [
        name.format(
            text=text,
            number=number,
            step=5 * number,
            hash=hash_,
            short=hash_[:8],
            time=1_700_000_000 + 61 * number,
            copy=number % 3,
        )
        for number, (text, hash_) in enumerate(zip(TEXTS, words(HEX, 32), strict=True))
    ]
    assert read(stems) == TEXTS


@pytest.mark.parametrize(
    "stems",
    [
        [f"captcha{number}" for number in range(40)],
        [f"img_{number:04}" for number in range(40)],
        [f"IMG-{number:04}" for number in range(40)],
        [f"image ({number})" for number in range(40)],
        [f"{number:04}" for number in range(40)],
        [str(number) for number in range(20, 60)],
        [str(1_700_000_000 + 97 * number**2) for number in range(40)],
        [str(1_700_000_000_123 + 97_000 * number**2) for number in range(40)],
        words(HEX, 32, 40),
        words(HEX, 40, 40),
        [
            f"{a}-{b}-{c}-{d}-{e}"
            for a, b, c, d, e in zip(*(words(HEX, n, 20) for n in (8, 4, 4, 4, 12)), strict=True)
        ],
        ["Screenshot 2024-01-01 at 10.22.33", "Screenshot 2024-02-01 at 11.22.34"],
        ["Bildschirmfoto 2024-01-01 um 10.22.33"],
        ["WhatsApp Image 2024-01-01 at 10.22.33"],
        ["2024-01-01", "2024-01-02"],
        ["20240101123456", "20240101123457"],
        ["GOPR0012", "GOPR0013"],
        ["01ARZ3NDEKTSV4RRFFQ69G5FAV"],
        ["Screenshot (12)", "Screenshot (13)"],
        ["IMG-20240101-WA0003", "IMG-20240101-WA0004"],
        ["20240101_123456", "20240102_123456"],
        ["2024-01-01 12:34:56"],
        ["DSC_0001", "DSC_0002"],
        ["captcha", "captcha(1)"],
        [f"im{number}" for number in range(12)],
        [f"c{number**2}" for number in range(12)],
        [f"captcha_{text}" for text in words("0123456789")],
        [f"label={text}" for text in TEXTS],
        [f"0.{number:03}" for number in range(0, 900, 20)],
        [f"id{number}_label{text}" for number, text in enumerate(words("0123456789"))],
        # A counter with gaps is not told from a text.
        [f"{number**2:04}_{number % 10}" for number in range(60)],
        [f"{number**2:04}_{text}" for number, text in enumerate(words("0123456789"))],
        [f"{side}{number:03}" for side in ("left", "right") for number in range(30)],
        [f"{word}{number}" for number in range(1, 21) for word in ("red", "blue", "green")],
        [f"{word}{25 * number:04}" for word in ("google", "yahoo") for number in range(10)],
        # In even steps it is; and random identifiers are no texts.
        *([f"{step * number:04}" for number in range(60)] for step in (5, 25, 100)),
        *(words(HEX[:size], length, 60) for size, length in ((16, 8), (16, 12), (12, 9))),
        words("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16),
        [f"Captcha.jpg?v=0.{number}" for number in words(digits, 16)],
        *(["_"], ["__"], ["_ ."], ["Copy of _"]),
    ],
    ids=lambda stems: stems[0],
)
def test_names_that_hold_no_text_are_no_labels(stems):
    assert read(stems) == [None] * len(stems)
    with pytest.raises(LabelError, match=naming("`label_pattern`", r"labels.csv")):
        NameReader(stems).find_text(stems[0])


@pytest.mark.parametrize(
    ("alphabet", "stem", "text"),
    [
        ("0123456789-", "7-3", "7-3"),
        ("0123456789", "7-3", None),
        ("0123456789+-*", "12+3-4", "12+3-4"),
        ("ABCDE12", "AB12-3", "AB12"),
        ("0123456789", "AB-123", "123"),
        ("ABCDE_", "A_B", "A_B"),
        ("ABC", "A_1", "A"),
        ("ABC", "x-ABC", "ABC"),
        ("AB (1)", "AB (1)", "AB (1)"),
    ],
)
def test_the_alphabet_decides_how_a_name_is_read(alphabet, stem, text):
    assert read([stem], set(alphabet).issuperset) == [text]


@pytest.mark.parametrize(
    ("stem", "text"),
    [
        # As generate writes names:
        *(("00000-482915", "482915"), ("00012-7-3", "7-3"), ("123456-a_b", "a_b")),
        # The number of a copy is no part of the text:
        *((stem, "AB12") for stem in ("AB12 (1)", "AB12(2)", "00001-AB12 (1)")),
        *((stem, "AB12") for stem in ("Copy of AB12", "AB12 - Copy", "AB12 copy 2")),
    ],
)
def test_the_text_is_found_in_a_single_name_of_a_known_form(stem, text):
    assert read([stem]) == [text]


def test_the_lengths_decide_too():
    stems = ["AB12-1", "CD3456_x-y", "000_0412_737", "2024-03-10_0412", "1 0412", "id0_label0412"]
    assert read(stems, lambda text: len(text) == 4) == ["AB12", None, "0412", "0412", "0412", None]


@pytest.mark.parametrize("name", ["{text}_{number:02}", "{number:02}-{text}", "{text}"])
def test_lengths_alone_join_no_parts(name):
    texts = [str(number**2 % 83) for number in range(60)]
    stems = [name.format(text=text, number=number) for number, text in enumerate(texts)]
    reader = NameReader(stems, lambda text: len(text) in range(1, 6), joins=False)
    assert list(map(reader.find_text, stems)) == texts
    assert NameReader(["7-3"], lambda text: len(text) == 3, joins=False).find_text("7-3") == "7-3"


def test_parts_side_by_side_are_a_text_where_the_alphabet_has_what_stands_between_them():
    sums = [f"{a}-{b}" for a, b in zip(words("0123456789", 1), words("0123456789", 1), strict=True)]
    stems = [f"{number:04}_{text}" for number, text in enumerate(sums)]
    assert read(stems, set("0123456789-").issuperset) == sums
    phrases = [f"{a} {b}" for a, b in zip(words("ABC", 2), words("ABC", 3), strict=True)]
    assert read(phrases, set("ABC ").issuperset) == phrases


@pytest.mark.parametrize(
    ("stem", "ways"),
    [
        *(
            ("7-3", "7 3"),
            ("AB12-1", "AB12 1"),
            ("12-34", "12 34"),
            ("a-b", "a b"),
            ("x_y-z", "x y z"),
        ),
        *(
            ("AB12_x", "AB12 x"),
            ("8802_0412", "8802 0412"),
            ("162b_0070", "162b 0070"),
            ("0037_7", "0037 7"),
        ),
        *(("12_a", "12 a"), ("1_a", "1 a"), ("118 (5601)", "118 5601"), ("000_+0654", "000 +0654")),
        *(("1.449", "1 449"), ("2zb72@acme", "2zb72 acme")),
        *(("anna_0070", "anna 0070"), ("000_0412_737", "000 0412 737"), ("red apple", "red apple")),
    ],
)
def test_a_name_that_can_be_read_in_two_ways_is_never_taken_silently(stem, ways):
    with pytest.raises(
        LabelError, match=naming(*map(repr, ways.split()), "`charset`", "`lengths`")
    ):
        NameReader([stem]).find_text(stem)


@pytest.mark.parametrize(
    "name", ["{small}-{digit}", "{user}_{text}", "{digit}_{text}", "{text}_{user}", "{user} {text}"]
)
def test_parts_with_a_few_values_are_not_told_from_texts(name):
    stems = [
        name.format(
            small=10 + 7 * number % 89,
            digit=number % 10,
            user=["anna", "bob"][number % 2],
            text=text,
        )
        for number, text in enumerate(words(count=400))
    ]
    assert read(stems) == [None] * 400


@pytest.mark.parametrize(
    "stem", ["R865", "1234", "captchaAB", "deadbeef", "20240101", "IMGX", "file9a", "été"]
)
def test_a_single_name_that_could_be_a_text_is_one(stem):
    assert read([stem, *TEXTS])[0] == stem


@pytest.mark.parametrize(
    "stems",
    [
        [f"{one}{other}{number}" for one in "abcd" for other in "efgh" for number in range(20)],
        [f"{letter}{number}" for letter in "abcd" for number in (*range(5), *range(7, 17))],
        words("ABCDEF", 8, 50) + words("GHJK", 8, 40),
        words("ABCDEF0123456789", 7, 50),
        words("0123456789", 8, 50),
    ],
)
def test_texts_that_look_a_little_like_counts_or_identifiers_are_texts(stems):
    assert read(stems) == stems


@pytest.mark.parametrize("form", ["{text}_200x50", "{text}_{copy}", "captcha_{text}_{copy}"])
@pytest.mark.parametrize("length", [4, 6])
def test_texts_of_digits_are_told_from_sizes_and_copies(form, length):
    texts = list(dict.fromkeys(words(digits, length)))
    stems = [form.format(text=text, copy=1 + place % 3) for place, text in enumerate(texts)]
    assert read(stems) == texts


@pytest.mark.parametrize(
    "numbers", [words("0123456789", 6), [f"{number**2}" for number in range(60)]]
)
def test_numbers_that_do_not_count_the_images_are_texts(numbers):
    assert read(numbers) == numbers


@pytest.mark.parametrize(
    "stems",
    [
        [f"{'abcdefgh'[number // 50]}{number % 50:02}" for number in range(400)],
        [f"{'ABCD'[number % 4]}{number // 4 + 1}" for number in range(120)],
        [f"a{number:02}b" for number in range(100)],
        [f"p{page}_{number:02}" for page in range(1, 21) for number in range(1, 21)],
        [f"s{page:02}-{number}" for page in range(1, 20) for number in range(12 + page % 7)],
        [f"{number}{'abc'[part]}" for number in range(1, 40) for part in range(3)],
        [f"{number + 160:03x}" for number in range(400)],
        [f"{number:X}" for number in range(300)],
        [f"img_{number:x}" for number in range(300) if number % 19],
        list(map("".join, product(ascii_lowercase, repeat=2)))[:100],
        list(map("".join, product(digits + ascii_lowercase, repeat=3)))[5:400],
    ],
)
def test_names_in_which_letters_count_are_known(stems):
    assert are_counted(stems)
    assert are_counted(CHOOSE.sample(stems, len(stems)))


@pytest.mark.parametrize(
    "stems",
    [
        words(count=2000),
        words(digits, 3, 500),
        CHOOSE.sample([f"{number:04}" for number in range(10_000)], 5000),
        CHOOSE.sample(list(map("".join, product(ascii_lowercase, repeat=2))), 400),
        [*digits, *ascii_lowercase],  # each is a text
        [f"{one}+{other}" for one in digits for other in digits],
        [f"{text}_{number}" for text in TEXTS for number in range(8)],
        [f"{number:04}_{text}" for number, text in enumerate(TEXTS)],
        [f"{number:05}-{text}" for number, text in enumerate(words(digits, 2))],
        [f"{chr(0x4E00 + 7 * number)}_{number}" for number in range(90)],
        ["AB12", *(f"a{number:02}" for number in range(90)), *TEXTS],
    ],
)
def test_texts_are_no_count(stems):
    assert not are_counted(list(dict.fromkeys(stems)))
