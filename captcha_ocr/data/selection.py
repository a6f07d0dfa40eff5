"""Select the labels that a network can learn, with alphabet and lengths, and split the images."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from captcha_ocr.charset import UNREADABLE, Charset, can_be_read, find_charset, split_characters
from captcha_ocr.data.labels import Label, Problems
from captcha_ocr.data.recurrence import are_versions, find_no_texts
from captcha_ocr.errors import check
from captcha_ocr.options.model import MAX_LENGTH, Lengths
from captcha_ocr.options.preparation import RARE, SPLITS, PrepareConfig, Split
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import sha256

_MAX_NAMED = 3  # files of a group of copies, in messages
_ENOUGH, _ENOUGH_IN_SPLIT = 100, 10  # images; of fewer, luck would make a split too small


class Selection(NamedTuple):
    """The labels to use, their alphabet and lengths, and why other files are left out."""

    labels: list[Label]
    charset: Charset
    lengths: Lengths
    problems: Problems


def select_labels(labels: list[Label], config: PrepareConfig) -> Selection:
    """Select the labels whose length and characters fit.

    UsageError if there is nothing to learn.
    """
    no_texts = find_no_texts([label.text for label in labels])
    lengths = config.lengths or _find_usual_lengths(
        Counter(len(split_characters(label.text)) for label in labels if label.text not in no_texts)
    )
    reasons = {label.file: _explain_unfit(label.text, lengths, config) for label in labels}
    reasons |= {
        label.file: f"{label.text!r} is the text of {counted(no_texts[label.text], 'image')}: "
        "it seems to mean that nobody could read them"
        for label in labels
        if label.text in no_texts
    }
    problems = {file: reason for file, reason in reasons.items() if reason is not None}
    fit = [label for label in labels if label.file not in problems]
    check(bool(fit), f"no label can be learnt; {labels[0].file}: {reasons[labels[0].file]}")
    charset = find_charset((label.text for label in fit), config.charset, config.case_sensitive)
    unknown = {label: charset.unknown_characters(label.text) for label in fit}
    problems |= {
        label.file: f"its text {label.text!r} has {characters!r}, which the alphabet lacks"
        for label, characters in unknown.items()
        if characters
    }
    selected = [label for label in fit if label.file not in problems]
    check(
        bool(selected),
        f"no label fits the alphabet {charset}; {fit[0].file}: {problems.get(fit[0].file)}",
    )
    check(
        len(selected) == 1 or len({charset.normalize(label.text) for label in selected}) > 1,
        f"all {len(selected):,} images are labelled {selected[0].text!r}, so there is nothing "
        "to learn; name the texts with `label_pattern` or labels.csv",
    )
    used = {len(split_characters(label.text)) for label in selected}
    lengths = config.lengths or Lengths(min(used), max(used))
    return Selection(selected, charset, lengths, problems)


def _find_usual_lengths(counts: Counter[int]) -> Lengths:
    """Return the range of the lengths that at least 1 in `RARE` texts have.

    Others may be typing errors.
    """
    usual = [
        length
        for length, count in counts.items()
        if count * RARE >= counts.total() and length <= MAX_LENGTH
    ]
    check(bool(usual), f"no label has {MAX_LENGTH} characters or less")
    return Lengths(min(usual), max(usual))


def _explain_unfit(text: str, lengths: Lengths, config: PrepareConfig) -> str | None:
    characters = split_characters(text)
    unreadable = "".join(dict.fromkeys(c for c in characters if not can_be_read(c)))
    if unreadable:
        return f"its text {text!r} has {unreadable!r}: {UNREADABLE}"
    if len(characters) in lengths:
        return None
    why = f"which fewer than 1 in {RARE} texts have; `lengths` keeps them"
    if config.lengths is not None:
        why = f"and `lengths` is {lengths}"
    elif len(characters) > MAX_LENGTH:
        why = f"and the maximum is {MAX_LENGTH}"
    return f"its text {text!r} has {counted(len(characters), 'character')}, {why}"


def drop_copies(
    labels: list[Label], contents: Sequence[str], unreadable: Problems, charset: Charset
) -> tuple[list[int], int, Problems]:
    """Keep one of each group of images with the same pixels, and none of the unreadable.

    Return the rows to keep, the number of copies, and the reason for each file that is left out.

    Copies in two splits would test a network on its training images, so a copy in the test set is
    preferred to one in the validation set, and that to one in the training set. Copies with
    different texts are all left out, since the correct text is unknown.
    """
    rows_of: dict[str, list[int]] = {}
    readable = [row for row, label in enumerate(labels) if label.file not in unreadable]
    for row in readable:
        rows_of.setdefault(contents[row], []).append(row)
    kept: list[int] = []
    problems: Problems = {}
    for rows in rows_of.values():
        files = [labels[row].file for row in rows]
        if len({charset.normalize(labels[row].text) for row in rows}) > 1:
            names = " and ".join(files[:_MAX_NAMED])
            names += " and others" if len(files) > _MAX_NAMED else ""
            problems |= dict.fromkeys(files, f"{names} show the same, but are labelled differently")
        else:
            kept.append(max(rows, key=lambda row: SPLITS.index(labels[row].split or "train")))
    return sorted(kept), len(readable) - len(problems) - len(kept), problems


def split_rows(
    rows: list[int],
    labels: list[Label],
    contents: Sequence[str],
    charset: Charset,
    config: PrepareConfig,
) -> dict[Split, list[int]]:
    """Return the rows of each split, in a random order that depends on the seed: by the labels,
    else by what the images show.

    contents: a hash of each image's pixels. An image stays in its split as a folder grows. The
    images of a text stay together where most images are versions of a few.
    """
    groups = contents
    if are_versions({label.file: label.text for label in labels}):
        groups = [charset.normalize(label.text) for label in labels]
    order = sorted(rows, key=lambda row: _draw(contents[row], f"order {config.seed}"))
    split_of: dict[int, Split] = dict.fromkeys(order, "train")
    val_share = 0.1
    if config.fold is not None:
        number, folds = config.fold
        count = len({groups[row] for row in rows})
        check(folds <= count, f"{counted(count, 'usable image')} cannot make {folds} folds")
        test = _take(order, groups, f"fold {config.seed}", (number - 1) / folds, number / folds)
        split_of |= dict.fromkeys(test, "test")
    elif any(label.split for label in labels):
        split_of = {row: labels[row].split or "train" for row in order}
    else:
        _, val_percent, test_percent = config.split
        test = _take(order, groups, f"test {config.seed}", 0, test_percent / 100)
        split_of |= dict.fromkeys(test, "test")
        val_share = val_percent / (100 - test_percent)
    if "val" not in split_of.values():
        train = [row for row in order if split_of[row] == "train"]
        val = _take(train, groups, f"val {config.seed}", 0, val_share)
        split_of |= dict.fromkeys(val, "val")
    return {name: [row for row in order if split_of[row] == name] for name in SPLITS}


def _draw(key: str, salt: str) -> float:
    """Return a number from 0 to 1 that looks random, and is always the same for a key."""
    return int(sha256(f"{salt} {key}".encode())[:13], 16) / 16**13


def _take(
    rows: list[int], groups: Sequence[str], salt: str, first: float, last: float
) -> list[int]:
    """Return the rows, in whole groups, that draw a number from `first` to `last`, 0 to 1.

    The other rows make no difference, so nothing that was learnt from comes into a later test.
    Where these would be too few, each number is replaced by its rank: then it is the nearest number
    of rows, and at least one.
    """
    drawn = {row: _draw(groups[row], salt) for row in rows}
    if len(set(drawn.values())) >= max(_ENOUGH, _ENOUGH_IN_SPLIT / (last - first)):
        return [row for row in rows if first <= drawn[row] < last]
    begin, end = first * len(rows), max(1, last * len(rows))
    rank_of: dict[str, int] = {}
    for rank, row in enumerate(sorted(rows, key=drawn.__getitem__)):
        rank_of.setdefault(groups[row], rank)
    return [row for row in rows if begin <= rank_of[groups[row]] + 0.5 < end]
