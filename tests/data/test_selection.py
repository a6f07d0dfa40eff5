import pytest
from conftest import naming

from captcha_ocr.data.labels import Label
from captcha_ocr.data.selection import find_usual_lengths, select_labels
from captcha_ocr.errors import UsageError
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import PrepareConfig


def labels(*texts):
    return [Label(f"{number}.png", text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("ABC", {"lengths": Lengths(2, 2)}, ("'ABC'", "3", "`lengths` is 2")),
        ("A" * 65, {}, ("65", "64")),
        ("A\u200b", {}, ("'A\\u200b'",)),
        ("AX", {"charset": "AB"}, ("'AX'", "'X'")),
        ("ABCDE", {}, ("'ABCDE'", "5", "`lengths`")),  # a length that 1 in 1,000 texts have
    ],
)
def test_a_label_that_cannot_be_learnt_is_named_with_its_reason(text, options, words):
    usual = labels(*["AB", "BA"] * 500)
    selected = select_labels([*usual, Label("odd.png", text)], PrepareConfig(**options))
    assert (selected.labels, list(selected.problems)) == (usual, ["odd.png"])
    assert all(word in selected.problems["odd.png"] for word in words)


@pytest.mark.parametrize(
    ("texts", "options", "words"),
    [
        (["AB", "BA"], {"charset": "12"}, ("0.png", "'AB'")),
        (["AB", "BA"], {"lengths": Lengths(3, 4)}, ("0.png", "`lengths`")),
        (["AB", "AB"], {}, ("'AB'", "`label_pattern`")),
        (["AB", "ab"], {}, ("'AB'", "`label_pattern`")),
        (["A" * 65], {}, ("64",)),
    ],
)
def test_labels_of_which_nothing_can_be_learnt_are_refused(texts, options, words):
    with pytest.raises(UsageError, match=naming(*words)):
        select_labels(labels(*texts), PrepareConfig(**options))


def test_the_alphabet_and_the_lengths_are_those_of_the_labels():
    selected = select_labels(labels("b1", "A22", "b2"), PrepareConfig())
    assert (selected.charset.characters, selected.lengths, selected.problems) == (
        "12ab",
        Lengths(2, 3),
        {},
    )


def test_rare_lengths_are_not_usual():
    assert find_usual_lengths([4] * 500 + [5] * 300 + [9]) == Lengths(4, 5)
