"""Select the labels that a network can learn, with alphabet and lengths, and split the images."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from captcha_ocr.charset import UNREADABLE, Charset, can_be_read, find_charset, split_characters
from captcha_ocr.data.labels import Label, Problems
from captcha_ocr.errors import check
from captcha_ocr.options.model import MAX_LENGTH, Lengths
from captcha_ocr.options.preparation import RARE, SPLITS, PrepareConfig, Split
from captcha_ocr.system.console import counted

_MAX_NAMED = 3  # files of a group of copies, in messages


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
    lengths = config.lengths or _find_usual_lengths(
        Counter(len(split_characters(label.text)) for label in labels)
    )
    reasons = {label.file: _explain_unfit(label.text, lengths, config) for label in labels}
    problems = {file: reason for file, reason in reasons.items() if reason is not None}
    fit = [label for label in labels if label.file not in problems]
    first = labels[0].file
    check(bool(fit), f"no label can be learnt; {first}: {problems.get(first)}")
    charset = find_charset((label.text for label in fit), config.charset, config.case_sensitive)
    unknown = {label: charset.unknown_characters(label.text) for label in fit}
    problems |= {
        label.file: f"its text {label.text!r} has {characters!r}, which the alphabet lacks"
        for label, characters in unknown.items()
        if characters
    }
    selected = [label for label in fit if label.file not in problems]
    first = fit[0].file
    check(bool(selected), f"no label fits the alphabet {charset}; {first}: {problems.get(first)}")
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
    labels: list[Label], hashes: list[str | None], unreadable: Problems, charset: Charset
) -> tuple[list[int], int, Problems]:
    """Keep one of each group of byte-identical images, and none of the unreadable.

    Return the rows to keep, the number of copies, and the reason for each file that is left out.

    Copies in two splits would test a network on its training images, so a copy in the test set is
    preferred to one in the validation set, and that to one in the training set. Copies with
    different texts are all left out, since the correct text is unknown.
    """
    rows_of: dict[str | None, list[int]] = {}
    readable = [row for row, label in enumerate(labels) if label.file not in unreadable]
    for row in readable:
        rows_of.setdefault(hashes[row], []).append(row)
    kept: list[int] = []
    problems: Problems = {}
    for rows in rows_of.values():
        files = [labels[row].file for row in rows]
        if len({charset.normalize(labels[row].text) for row in rows}) > 1:
            names = " and ".join(files[:_MAX_NAMED])
            names += " and others" if len(files) > _MAX_NAMED else ""
            problems |= dict.fromkeys(
                files, f"{names} are byte-identical, but labelled differently"
            )
        else:
            kept.append(max(rows, key=lambda row: SPLITS.index(labels[row].split or "train")))
    return sorted(kept), len(readable) - len(problems) - len(kept), problems


def split_rows(
    rows: list[int], labels: list[Label], config: PrepareConfig
) -> dict[Split, list[int]]:
    """Return the rows of each split, in a random order that depends on the seed: by the labels,
    else at random.
    """
    order = np.random.default_rng(config.seed).permutation(np.array(rows, np.int64)).tolist()
    split: dict[Split, list[int]] = {name: [] for name in SPLITS}
    if config.fold is not None:
        fold, folds = config.fold
        check(
            folds <= len(order), f"{counted(len(order), 'usable image')} cannot make {folds} folds"
        )
        first, last = len(order) * (fold - 1) // folds, len(order) * fold // folds
        split["train"], split["test"] = order[:first] + order[last:], order[first:last]
    elif any(label.split for label in labels):
        for row in order:
            split[labels[row].split or "train"].append(row)
    else:
        _, val_percent, test_percent = config.split
        split["train"] = order
        split["test"] = _take_last(order, len(rows) * test_percent / 100)
        split["val"] = _take_last(order, len(rows) * val_percent / 100)
    if not split["val"]:
        split["val"] = _take_last(split["train"], len(split["train"]) / 10)
    return split


def _take_last(rows: list[int], number: float) -> list[int]:
    """Remove and return the last `number` rows, rounded, at least one."""
    count = max(1, round(number))
    taken = rows[-count:]
    del rows[-count:]
    return taken
