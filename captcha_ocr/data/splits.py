"""Assign images to the training, validation and test sets."""

from dataclasses import dataclass

import numpy as np

from captcha_ocr.charset import Charset
from captcha_ocr.data.labels import Label, Problems
from captcha_ocr.errors import check
from captcha_ocr.options.preparation import SPLITS, PrepareConfig, Split
from captcha_ocr.system.console import counted

_MAX_NAMED = 3  # files of a group of copies, in messages


@dataclass(frozen=True)
class Deduplicated:
    """The rows to keep, the number of copies that were dropped, and the reason for each file that
    is left out.
    """

    rows: list[int]
    copies: int
    problems: Problems


def drop_copies(labels: list[Label], hashes: list[str | None], charset: Charset) -> Deduplicated:
    """Keep one of each group of byte-identical images; a row without a hash cannot be read.

    Copies in two splits would test a network on its training images, so a copy in the test set is
    preferred to one in the validation set, and that to one in the training set. Copies with
    different texts are all left out, since the correct text is unknown.
    """
    rows_of: dict[str, list[int]] = {}
    for row, file_sha256 in enumerate(hashes):
        if file_sha256 is not None:
            rows_of.setdefault(file_sha256, []).append(row)
    kept: list[int] = []
    copies, problems = 0, dict[str, str]()
    for rows in rows_of.values():
        texts = {charset.normalize(labels[row].text) for row in rows}
        if len(texts) > 1:
            names = " and ".join(labels[row].file for row in rows[:_MAX_NAMED])
            if len(rows) > _MAX_NAMED:
                names += " and others"
            problems |= {
                labels[row].file: f"{names} are byte-identical, but labelled differently"
                for row in rows
            }
            continue
        kept.append(max(rows, key=lambda row: SPLITS.index(labels[row].split or "train")))
        copies += len(rows) - 1
    return Deduplicated(sorted(kept), copies, problems)


def split_rows(
    rows: list[int], labels: list[Label], config: PrepareConfig
) -> dict[Split, list[int]]:
    """Return the rows of each split, in a random order that depends on the seed: by the labels,
    else at random.
    """
    order = [
        rows[position] for position in np.random.default_rng(config.seed).permutation(len(rows))
    ]
    _, val_percent, test_percent = config.split
    split: dict[Split, list[int]] = {name: [] for name in SPLITS}
    if config.fold is not None:
        fold, folds = config.fold
        check(
            folds <= len(order), f"{counted(len(order), 'usable image')} cannot make {folds} folds"
        )
        first, last = (len(order) * number // folds for number in (fold - 1, fold))
        split["train"], split["test"] = order[:first] + order[last:], order[first:last]
    elif any(label.split for label in labels):
        for row in order:
            split[labels[row].split or "train"].append(row)
    else:
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
