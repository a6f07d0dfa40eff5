import numpy as np
import pytest

from captcha_ocr.charset import NAMED, Charset, characters_of, find_charset, how_they_differ, merge_lookalikes
from captcha_ocr.errors import LabelError, UsageError

COMPOSED, DECOMPOSED = "é", "e\u0301"
ABC = Charset("abc")


@pytest.mark.parametrize("name", [*NAMED, "中文字", "aé𝟘", "%/\\.,"])
def test_every_text_comes_back_from_its_class_ids(name):
    characters = characters_of(name)
    charset = Charset(characters)
    assert len(charset) == len(characters)
    assert charset.decode(charset.encode([characters])) == [characters]


def test_a_class_id_is_a_position_in_the_alphabet_or_its_length_after_the_end():
    assert Charset("XYZ").encode(["ZX"]).dtype == np.int16
    assert Charset("XYZ").encode(["ZX", "XYZ"], 4).tolist() == [[2, 0, 3, 3], [0, 1, 2, 3]]
    assert ABC.decode(np.array([[0, 1, 3, 3], [0, 3, 2, 3], [3, 0, 0, 0]])) == ["ab", "a", ""]


def test_unknown_characters_come_once_each_and_in_order():
    assert ABC.unknown_characters("zaxzB?") == "zxB?"


@pytest.mark.parametrize(("text", "longest", "named"), [("aqb", None, ["'aqb'", "'q'"]), ("abc", 2, ["'abc'"])])
def test_a_text_that_does_not_fit_is_named(text, longest, named):
    with pytest.raises(LabelError) as refusal:
        ABC.encode(["ab", text], longest)
    assert all(name in str(refusal.value) for name in named)


UNUSABLE = ["", "aba", "a b", "a\tb", "a\nb", "a\0b", "a\u0301", "a\u00a0", "a\u200b", "a\ud800", "x" * (2**15 + 1)]


@pytest.mark.parametrize("characters", UNUSABLE, ids=lambda characters: ascii(characters[:9]))
def test_an_ambiguous_alphabet_is_refused(characters):
    with pytest.raises(UsageError):
        Charset(characters)


def test_folding_does_not_hide_a_repeated_character():
    with pytest.raises(UsageError, match="'a'"):
        find_charset(["aB"], "aab")


def test_decomposed_and_composed_characters_are_the_same():
    assert Charset("a" + COMPOSED).encode(["a" + DECOMPOSED]).tolist() == [[0, 1]]
    assert characters_of("a" + DECOMPOSED) == find_charset(["a" + DECOMPOSED]).characters == "a" + COMPOSED


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
def test_the_case_rule_follows_the_labels_and_the_given_alphabet(texts, given, case_sensitive, characters, fold):
    assert find_charset(texts, given, case_sensitive) == Charset(characters, fold)


def test_a_folding_alphabet_reads_both_cases():
    charset = find_charset(["aB", "Ab"])
    assert charset.encode(["AB"]).tolist() == charset.encode(["ab"]).tolist()
    assert all(word in str(charset) for word in ("ab", "lower"))
    assert str(Charset("ab")) == "ab"


@pytest.mark.parametrize(("fold", "character"), [("upper", "ß"), ("lower", "İ")])
def test_folding_never_changes_the_length_of_a_text(fold, character):
    assert Charset("x" + character, fold).normalize(character) == character


@pytest.mark.parametrize(("text", "merged"), [("O0o", "000"), ("1lI|", "1111"), ("cC", "CC"), ("A8B", "A8B")])
def test_look_alikes_become_the_first_of_their_group(text, merged):
    assert merge_lookalikes(text) == merged


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ("\u00e9.png", "e\u0301.png", ["character 1", "U+00E9", "U+0065"]),  # composed and decomposed
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


@pytest.mark.parametrize(("one", "other"), [("a.png", "a.png"), ("a.png", "b.png"), ("a.png", "aa.png"), ("", "ab")])
def test_texts_that_look_different_need_no_words(one, other):
    assert how_they_differ(one, other) == ""
