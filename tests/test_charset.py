import random
from itertools import product

import numpy as np
import pytest
from conftest import decode, naming

from captcha_ocr.charset import (
    NAMED_ALPHABETS,
    Charset,
    find_charset,
    how_they_differ,
    in_visual_order,
    merge_lookalikes,
    resolve_alphabet,
    shorten,
    split_characters,
    standard_form,
    visual_order,
)
from captcha_ocr.errors import LabelError, UsageError

COMPOSED, DECOMPOSED = "é", "e\u0301"
ABC = Charset("abc")


@pytest.mark.parametrize(
    "name", [*NAMED_ALPHABETS, "中文字", "aé𝟘", "%/\\.,", "अबककिकू", "กก่กี้", "a b"]
)
def test_every_text_comes_back_from_its_class_ids(name):
    characters = resolve_alphabet(name)
    charset = Charset(characters)
    assert len(charset) == len(split_characters(characters))
    assert decode(charset, charset.encode([characters])) == [characters]


@pytest.mark.parametrize(
    ("given", "characters"),
    [
        *(("a-f", "abcdef"), ("0-9", "0123456789"), ("A-C0-2", "ABC012"), ("x-zX-Z", "xyzXYZ")),
        *(("а-г", "абвг"), ("α-γ", "αβγ"), ("一-丂", "一丁丂"), ("2-46-8", "234678"), ("a-a", "a")),
        *(("0-2+-", "012+-"), ("-0-2", "-012"), ("+-*/", "+-*/"), ("a-c-", "abc-"), ("_-b", "_-b")),
        *(("bemnrsu", "bemnrsu"), ("qwerty", "qwerty"), ("abcABC", "abcABC"), ("", "")),
    ],
)
def test_ranges_stand_for_their_characters_and_a_minus_elsewhere_for_itself(given, characters):
    assert resolve_alphabet(given) == characters


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((f"{given}.", [given]) for given in ("z-a", "9-0", "A-z", "a-Z", "0-z", "9-A", "à-ÿ")),
        *((given, ["mean digits?"]) for given in ("numbers", "digitz", "Digits", "numeric")),
        *((given, ["mean alnum?"]) for given in ("alphanumeric", "ALNUM")),
        *(("lowercase", ["mean lower?"]), ("uper", ["mean upper?"]), ("hex", ["mean 0-9a-f?"])),
        *(("upper_alnum", ["mean upper-alnum?"]), ("letters", ["mean A-Za-z?"])),
    ],
)
def test_what_is_no_range_and_nearly_a_name_is_refused(given, words):
    with pytest.raises(UsageError, match=naming(*words)):
        resolve_alphabet(given)


def test_a_class_id_is_a_position_in_the_alphabet_or_its_length_after_the_end():
    assert Charset("XYZ").encode(["ZX"]).dtype == np.int16
    assert Charset("XYZ").encode(["ZX", "XYZ"], 4).tolist() == [[2, 0, 3, 3], [0, 1, 2, 3]]


def test_unknown_characters_come_once_each_and_in_order():
    assert ABC.unknown_characters("zaxzB?") == "zxB?"


@pytest.mark.parametrize(
    ("text", "longest", "named"), [("aqb", None, ["'aqb'", "'q'"]), ("abc", 2, ["'abc'"])]
)
def test_a_text_that_does_not_fit_is_named(text, longest, named):
    with pytest.raises(LabelError, match=naming(*named)):
        ABC.encode(["ab", text], longest)


@pytest.mark.parametrize(
    "characters",
    [
        "",
        "aba",
        "a\tb",
        "a\nb",
        "a\0b",
        "\u0301a",
        "कककि",
        "a\u00a0",
        "a\u200b",
        "a\ud800",
        "x" * (2**15 + 1),
    ],
    ids=lambda characters: ascii(characters[:9]),
)
def test_an_ambiguous_alphabet_is_refused(characters):
    with pytest.raises(UsageError):
        Charset(characters)
    with pytest.raises(UsageError):  # the case of the texts hides no character
        find_charset(["aB"], characters)


def test_decomposed_and_composed_characters_are_the_same():
    assert Charset("a" + COMPOSED).encode(["a" + DECOMPOSED]).tolist() == [[0, 1]]
    assert (
        resolve_alphabet("a" + DECOMPOSED)
        == find_charset(["a" + DECOMPOSED]).characters
        == "a" + COMPOSED
    )


@pytest.mark.parametrize(
    ("texts", "given", "case_sensitive", "characters", "fold"),
    [
        (["ZA", "0A"], None, False, "0AZ", None),
        (["za", "0a"], None, False, "0az", None),
        (["31", "20"], None, False, "0123", None),
        (["42"], "digits", False, "0123456789", None),
        (["aB", "Ab"], None, False, "ab", "lower"),
        (["aB", "Ab"], None, True, "ABab", None),
        (["aB"], "AB", False, "AB", "upper"),
        (["aB"], "ab", False, "ab", "lower"),
        (["aB"], "abAB", False, "ab", "lower"),
        (["aB"], "abAB", True, "abAB", None),
        (["aB1"], "12", False, "12", "lower"),
        (["AB"], "abAB", False, "abAB", None),
        (["éÀ"], None, False, "àé", "lower"),
    ],
)
def test_the_case_rule_follows_the_labels_and_the_given_alphabet(
    texts, given, case_sensitive, characters, fold
):
    assert find_charset(texts, given, case_sensitive) == Charset(characters, fold)


def test_a_folding_alphabet_reads_both_cases():
    charset = find_charset(["aB", "Ab"])
    assert charset.encode(["AB"]).tolist() == charset.encode(["ab"]).tolist()
    assert all(word in str(charset) for word in ("ab", "lower"))
    assert str(Charset("ab")) == "ab"


@pytest.mark.parametrize(("fold", "character"), [("upper", "ß"), ("lower", "İ")])
def test_folding_never_changes_the_length_of_a_text(fold, character):
    assert Charset("x" + character, fold).normalize(character) == character


@pytest.mark.parametrize(
    (
        "text",
        "seen",
    ),  # letters: alef א, bet ב, gimel ג; Arabic alef ا, beh ب; from right to left in the source
    [
        ("abc", "abc"),
        ("12-34+", "12-34+"),
        ("\u05d0\u05d1\u05d2", "\u05d2\u05d1\u05d0"),
        ("\u0627\u0628", "\u0628\u0627"),
        ("\u05d012\u05d1", "\u05d112\u05d0"),
        ("12\u05d0", "\u05d012"),
        ("\u05d03.14", "3.14\u05d0"),
        ("\u05d050%", "50%\u05d0"),
        ("\u05d0%\u05d1", "\u05d1%\u05d0"),
        ("\u05d0 AB C", "AB C \u05d0"),
        ("\u0628\u0661\u0662", "\u0661\u0662\u0628"),  # Arabic digits run from left to right, too
        ("\u05d0!?", "?!\u05d0"),
        ("\u05e9\u05c1\u05d0", "\u05d0\u05e9\u05c1"),  # a point stays with its letter
    ],
)
def test_texts_from_right_to_left_have_class_ids_in_the_order_in_which_they_are_seen(text, seen):
    charset = find_charset([text])
    ids = charset.encode([text])
    assert (
        "".join(charset.symbols[number] for number in ids[0])
        == seen
        == "".join(in_visual_order(text))
    )
    assert decode(charset, ids) == [text]
    assert Charset.from_dict(charset.to_dict()) == charset


def test_every_order_of_characters_comes_back():
    chance = random.Random(0)
    longer = [chance.choices("\u05d0a1.%!", k=9) for _ in range(2000)]
    for number, characters in enumerate([*product("\u05d0a1.%!", repeat=4), *longer]):
        order = visual_order(characters)
        seen = [characters[place] for place in order]
        assert [seen[place] for place in visual_order(seen)] == list(characters), number


def test_a_file_names_the_order_of_an_alphabet_from_right_to_left_alone():
    with pytest.raises(UsageError, match="order"):
        Charset.from_dict({"characters": "\u05d0\u05d1", "fold": None})
    assert "order" not in Charset("abc").to_dict()


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("हिंदी", ["हिं", "दी"]),
        ("คำนี้", ["ค", "ำ", "นี้"]),
        ("क्षण", ["क्", "ष", "ण"]),
        ("x\u0302y", ["x\u0302", "y"]),
        ("a b", ["a", " ", "b"]),
        ("\u05e9\u05c1\u05dc", ["\u05e9\u05c1", "\u05dc"]),
    ],
)
def test_a_mark_belongs_to_the_character_before_it(text, characters):
    assert split_characters(text) == characters
    charset = find_charset([text])
    assert sorted(charset.symbols) == sorted(characters)
    assert len(charset.encode([text])[0]) == len(characters)


@pytest.mark.parametrize(("number", "shown"), [(3, 3), (100, 100), (101, 20), (3755, 20)])
def test_of_a_large_alphabet_only_the_beginning_and_the_number_is_shown(number, shown):
    characters = "".join(map(chr, range(0x4E00, 0x4E00 + number)))
    text = str(Charset(characters))
    assert text.startswith(characters[:shown])
    assert (f"{number:,} " in text) == (characters[shown : shown + 1] != "")
    assert len(text) < 130
    assert "\u2423" in shorten("a b")


@pytest.mark.parametrize(
    ("text", "merged"), [("O0o", "000"), ("1lI|", "1111"), ("cC", "CC"), ("A8B", "A8B")]
)
def test_look_alikes_become_the_first_of_their_group(text, merged):
    assert merge_lookalikes(text) == merged


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        (
            "\u00e9.png",
            "e\u0301.png",
            ["character 1", "U+00E9", "U+0065"],
        ),  # composed and decomposed
        ("A1.png", "\u04101.png", ["character 1", "U+0041 LATIN", "U+0410 CYRILLIC"]),
        ("a.png", "a.png ", ["character 6", "nothing", "U+0020 SPACE"]),
        ("a b.png", "a\u00a0b.png", ["character 2", "SPACE", "NO-BREAK SPACE"]),
        ("ab.png", "a\u200bb.png", ["character 2", "U+200B"]),
        ("a-b.png", "a\u2010b.png", ["HYPHEN-MINUS", "U+2010 HYPHEN"]),
        ("O1.png", "0l.png", ["character 1", "U+004F", "U+0030"]),
        ("A.PNG", "A.png", ["character 3", "CAPITAL LETTER P", "SMALL LETTER P"]),
        ("1\r", "1", ["character 2", "U+000D", "nothing"]),
    ],
)
def test_two_texts_that_look_the_same_are_told_apart(one, other, named):
    assert all(name in how_they_differ(one, other) for name in named)


@pytest.mark.parametrize(
    ("one", "other"), [("a.png", "a.png"), ("a.png", "b.png"), ("a.png", "aa.png"), ("", "ab")]
)
def test_texts_that_look_different_need_no_words(one, other):
    assert how_they_differ(one, other) == ""


@pytest.mark.parametrize(
    ("text", "standard"),
    [
        *(
            ("Ａ１", "A1"),
            ("＋３＝？", "+3=?"),
            ("ａｂ\u3000ｃ", "ab c"),
            ("漢字", "漢字"),
            ("ｱ", "ｱ"),
        ),
        *((text, "a b") for text in ("a\u3000b", " a b", "a  b ", "a\u00a0b", "\u2003a \u2009b")),
        (DECOMPOSED, COMPOSED),
    ],
)
def test_a_text_has_blanks_accents_and_widths_of_one_form(text, standard):
    assert standard_form(text) == standard == ABC.normalize(text)


def test_the_chinese_alphabet_is_the_first_level_of_gb_2312():
    characters = NAMED_ALPHABETS["chinese"]
    assert (len(characters), characters[0], characters[-1]) == (3755, "啊", "座")
    assert resolve_alphabet("chinese") == characters
    assert {*"零一二三四五六七八九十加减乘除等于几多少"} <= {*characters}
