import numpy as np
import pytest

from captcha_ocr.charset import NAMED, Charset, characters_of, find_charset, merge_lookalikes
from captcha_ocr.errors import LabelError, UsageError

COMPOSED, DECOMPOSED = "é", "e\u0301"


def test_a_class_id_is_the_place_in_the_alphabet():
    assert Charset("XYZ").encode(["ZX", "YY"]).tolist() == [[2, 0], [1, 1]]


@pytest.mark.parametrize("characters", [*NAMED.values(), "中文字", "aé𝟘", "%/\\.,"])
def test_every_text_comes_back_from_its_ids(characters):
    charset = Charset(characters)
    assert charset.decode(charset.encode([characters])) == [characters]


def test_ids_are_int16_of_one_row_a_text():
    ids = Charset("01").encode(["010", "111"])
    assert (ids.dtype, ids.shape) == (np.int16, (2, 3))


def test_an_alphabet_is_as_long_as_its_characters():
    assert len(Charset("abc")) == 3


def test_unknown_characters_are_named_once_each_in_their_order():
    assert Charset("abc").unknown_characters("zaxz?") == "zx?"


def test_encoding_an_unknown_character_names_it_and_its_text():
    with pytest.raises(LabelError, match="'q'") as refusal:
        Charset("abc").encode(["aqb"])
    assert "'aqb'" in str(refusal.value)


def test_the_places_behind_a_text_hold_the_number_of_characters():
    assert Charset("abc").encode(["ab", "abc"], 4).tolist() == [[0, 1, 3, 3], [0, 1, 2, 3]]


def test_a_text_ends_at_the_first_place_that_holds_none():
    assert Charset("abc").decode(np.array([[0, 1, 3, 3], [0, 3, 2, 3], [3, 0, 0, 0]])) == ["ab", "a", ""]


def test_a_text_that_has_no_room_is_refused():
    with pytest.raises(LabelError, match="'abc'"):
        Charset("abc").encode(["ab", "abc"], 2)


@pytest.mark.parametrize(
    "characters",
    ["", "aba", "a b", "a\tb", "a\nb", "a\0b", "a\u0301", "a\u00a0", "a\u200b", "a\ud800", "x" * (2**15 + 1)],
    ids=[
        "empty",
        "twice",
        "space",
        "tab",
        "newline",
        "NUL",
        "combining",
        "no-break",
        "zero width",
        "surrogate",
        "long",
    ],
)
def test_an_alphabet_that_could_not_be_told_apart_is_refused(characters):
    with pytest.raises(UsageError):
        Charset(characters)


def test_a_decomposed_text_is_the_same_as_the_composed_one():
    assert Charset("a" + COMPOSED).encode(["a" + DECOMPOSED]).tolist() == [[0, 1]]


def test_a_decomposed_alphabet_is_composed():
    assert characters_of("a" + DECOMPOSED) == "a" + COMPOSED


def test_decomposed_labels_give_a_composed_alphabet():
    assert find_charset(["a" + DECOMPOSED]).characters == "a" + COMPOSED


@pytest.mark.parametrize("name", list(NAMED))
def test_every_named_alphabet_is_a_good_one(name):
    assert len(Charset(characters_of(name))) >= 10


def test_an_alphabet_that_is_no_name_stands_for_itself():
    assert characters_of("xyz") == "xyz"


def test_the_alphabet_without_lookalikes_has_none():
    assert not set(NAMED["no-lookalikes"]) & set("0O1IL")


@pytest.mark.parametrize(
    ("texts", "given", "case_sensitive", "characters", "fold"),
    [
        (["ZA", "0A"], None, False, "0AZ", None),
        (["za", "0a"], None, False, "0az", None),
        (["31", "20"], None, False, "0123", None),
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


def test_a_named_alphabet_may_be_given():
    assert find_charset(["42"], "digits").characters == "0123456789"


def test_labels_with_both_cases_are_read_in_the_one_case_that_is_kept():
    charset = find_charset(["aB", "Ab"])
    assert charset.encode(["AB"]).tolist() == charset.encode(["ab"]).tolist()


@pytest.mark.parametrize(("fold", "character"), [("upper", "ß"), ("lower", "İ")])
def test_folding_never_changes_the_length_of_a_text(fold, character):
    assert Charset("x" + character, fold).normalize(character) == character


def test_an_alphabet_that_keeps_case_knows_only_its_own():
    assert Charset("abc").unknown_characters("aB") == "B"


def test_a_bad_given_alphabet_is_refused_even_where_folding_would_mend_it():
    with pytest.raises(UsageError, match="'a'"):
        find_charset(["aB"], "aab")


def test_an_alphabet_is_written_with_its_case_rule():
    assert str(Charset("0a")) == "0a"
    assert all(word in str(Charset("0a", "lower")) for word in ("0a", "lower"))


@pytest.mark.parametrize(("text", "merged"), [("O0o", "000"), ("1lI|", "1111"), ("cC", "CC"), ("A8B", "A8B")])
def test_look_alikes_are_merged_to_the_first_of_their_group(text, merged):
    assert merge_lookalikes(text) == merged
