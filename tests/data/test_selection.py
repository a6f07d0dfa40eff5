import re
from itertools import chain, product
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.charset import Charset
from captcha_ocr.data.labels import Label
from captcha_ocr.data.selection import select_labels, split_rows
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import SPLITS, PrepareConfig

from .conftest import counts, numbered, prepare, prepare_rows, samples, tiny


def labels(*texts):
    return [Label(f"{number}.png", text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("ABC", {"lengths": Lengths(2, 2)}, ("'ABC'", "3", "`lengths` is 2")),
        ("A" * 65, {}, ("65", "64")),
        ("A\u200b", {}, ("'A\\u200b'",)),
        ("A\tB", {}, (r"'\t'",)),
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
    both = select_labels(labels("Ab", "aB", "bb"), PrepareConfig(case_sensitive=True)).charset
    assert (selected.charset.case, both.characters, both.case) == ("lower", "ABab", None)
    rare = select_labels(
        labels(*["abcd", "1bcd"] * 250, *["abcde"] * 300, "a" * 9), PrepareConfig()
    )
    assert (rare.lengths, len(rare.problems)) == (Lengths(4, 5), 1)


def greys(folder, split):
    """The grey values of flat images in one split, sorted."""
    return sorted(pixels[0] for pixels, _ in samples(folder, split))


@pytest.mark.parametrize(
    ("split", "expected"), [((50, 30, 20), [30, 18, 12]), ((98, 1, 1), [58, 1, 1])]
)
def test_other_percentages_are_kept_and_no_split_is_empty(images, tmp_path, split, expected):
    prepare(images, tmp_path, tiny(split=split))
    assert counts(tmp_path) == expected


def test_given_splits_are_kept_and_validation_images_are_drawn_where_there_are_none():
    out = Path("out")
    prepare_rows(numbered(12, lambda number: SPLITS[number % 3]))
    assert [greys(out, split) for split in SPLITS] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    prepare_rows(numbered(50, lambda number: "train" if number < 40 else "test"), force=True)
    train, val, test = (greys(out, split) for split in SPLITS)
    assert (len(val), sorted(train + val), test) == (4, list(range(40)), list(range(40, 50)))
    prepare_rows(numbered(10, lambda number: "val" if number == 9 else "train"), force=True)
    assert counts(out) == [9, 1, 0]  # no test set is drawn


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (numbered(2), ["2 usable images", "training"]),
        (numbered(4, lambda _: "test"), ["column split", "train"]),
    ],
)
def test_three_images_are_enough_unless_a_table_trains_on_none(rows, words):
    with pytest.raises(CaptchaOcrError, match=naming(*words)):
        prepare_rows(rows)
    prepare_rows(numbered(3))
    assert counts(Path("out")) == [1, 1, 1]


@pytest.mark.parametrize(
    ("first", "second", "split", "seed"),
    [(300, 310, (80, 10, 10), 0), (200, 290, (70, 20, 10), 1), (210, 300, (90, 5, 5), 2)],
)
def test_a_test_image_was_never_learnt_from_before_the_folder_grew(first, second, split, seed):
    words = list(map("".join, product("ABCD", repeat=5)))[:second]
    pixels = [f"{number:x}" for number in range(second)]
    charset, config = Charset("ABCD"), PrepareConfig(split=split, seed=seed)
    before, after = (
        split_rows(list(range(count)), labels(*words[:count]), pixels, charset, config)
        for count in (first, second)
    )
    learnt_from = {*before["train"], *before["val"]}
    assert learnt_from.isdisjoint(after["test"])
    assert set(before["train"]).isdisjoint(after["val"])
    for rows, percent in zip(after.values(), split, strict=True):
        expected = second * percent / 100
        assert abs(len(rows) - expected) < 3 * expected**0.5
    assert sorted(chain.from_iterable(after.values())) == list(range(second))


@pytest.mark.parametrize("fold", [None, (1, 4), (4, 4)])
@pytest.mark.parametrize("count", [20, 150])
def test_the_versions_of_an_image_are_in_one_split(fold, count):
    words = list(map("".join, product("ABCD", repeat=6)))[:: 4**6 // count][:count]
    versions = [Label(f"{word}_{number}.png", word) for word in words for number in range(3)]
    pixels = list(map(str, range(len(versions))))
    config = PrepareConfig(fold=fold)
    split = split_rows([*range(len(versions))], versions, pixels, Charset("ABCD"), config)
    texts = [{versions[row].text for row in rows} for rows in split.values()]
    assert all(map(set.isdisjoint, texts, texts[1:] + texts[:1]))
    assert sum(map(len, texts)) == count
    assert all(texts)


def test_every_image_is_tested_in_one_fold():
    words, pixels = list(map("".join, product("ABCD", repeat=4))), list(map(str, range(256)))
    folds = [
        split_rows(
            [*range(256)], labels(*words), pixels, Charset("ABCD"), PrepareConfig(fold=(n, 5))
        )
        for n in range(1, 6)
    ]
    assert sorted(chain.from_iterable(fold["test"] for fold in folds)) == list(range(256))
    assert [len(fold["val"]) > 0 for fold in folds] == [True] * 5
    assert all(30 < len(fold["test"]) < 75 for fold in folds)
    fewer = split_rows(
        [*range(250)], labels(*words), pixels, Charset("ABCD"), PrepareConfig(fold=(1, 5))
    )
    assert set(fewer["test"]) == {*folds[0]["test"]} - {*range(250, 256)}


def test_a_word_for_no_text_is_left_out_by_name():
    words = list(map("".join, product("abc", repeat=4)))
    selected = select_labels(labels(*words, *["null"] * 9), PrepareConfig())
    assert [label.text for label in selected.labels] == words
    assert list(selected.problems) == [f"{number}.png" for number in range(81, 90)]
    assert re.search(naming("'null'", "9"), selected.problems["81.png"])


def test_copies_are_dropped_and_counted_unless_their_texts_differ():
    rows = [(0, "ab"), (0, "ab"), (0, "AB"), (1, "ab"), (1, "ba")]
    prepared = prepare_rows([*rows, (2, "ab"), (3, "ba"), (4, "ab"), (5, "ba")])
    assert (prepared.manifest.copies, sum(counts(Path("out")))) == (2, 5)
    assert list(prepared.problems) == ["3.png", "4.png"]
    assert all(re.search(naming("3.png", "4.png"), reason) for reason in prepared.problems.values())


@pytest.mark.parametrize(
    "splits", [SPLITS, SPLITS[::-1], ("val", "test", "train"), ("train", "val")]
)
def test_of_copies_in_several_splits_the_last_split_keeps_one(splits):
    prepare_rows(
        [*((200, "ab", split) for split in splits), *numbered(9, lambda number: SPLITS[number % 3])]
    )
    last = max(splits, key=SPLITS.index)
    assert [split for split in SPLITS if 200 in greys(Path("out"), split)] == [last]
