"""Which image goes into which split."""

import numpy as np

from captcha_ocr.charset import Charset
from captcha_ocr.config import SPLITS, PrepareConfig, Split
from captcha_ocr.data.labels import Label, Problems
from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.system.console import counted


def drop_copies(
    labels: list[Label], hashes: list[str | None], charset: Charset, problems: Problems
) -> tuple[list[int], int]:
    """The rows to keep, one of each set of byte-identical images, and the number of copies dropped.

    Copies in two splits would let a network be tested on what it was trained on, so the one in the
    test set is kept before that in the validation set before that in the training set. Copies with
    different texts are all left out: nobody knows which is right.
    """
    rows_of: dict[str, list[int]] = {}
    for row, file_sha256 in enumerate(hashes):
        if file_sha256 is not None and labels[row].file not in problems:
            rows_of.setdefault(file_sha256, []).append(row)
    kept, copies = [], 0
    for rows in rows_of.values():
        texts = {charset.normalize(labels[row].text) for row in rows}
        if len(texts) > 1:
            names = " and ".join(labels[row].file for row in rows)
            problems |= {labels[row].file: f"{names} are byte-identical, but labelled differently" for row in rows}
            continue
        kept.append(max(rows, key=lambda row: SPLITS.index(labels[row].split or "train")))
        copies += len(rows) - 1
    return sorted(kept), copies


def split_rows(
    kept: list[int], labels: list[Label], config: PrepareConfig, problems: Problems
) -> dict[Split, list[int]]:
    """The rows of each split in a seeded random order: as the labels say, or drawn."""
    order = [kept[place] for place in np.random.default_rng(config.seed).permutation(len(kept))]
    _, val_percent, test_percent = config.split
    rows: dict[Split, list[int]] = {split: [] for split in SPLITS}
    if config.fold is not None:
        fold, folds = config.fold
        check(folds <= len(order), f"{counted(len(order), 'usable image')} cannot make {folds} folds")
        first, last = (len(order) * number // folds for number in (fold - 1, fold))
        rows["train"], rows["test"] = order[:first] + order[last:], order[first:last]
    elif any(label.split for label in labels):
        for row in order:
            rows[labels[row].split or "train"].append(row)
    else:
        rows["train"] = order
        rows["test"] = take(order, len(kept) * test_percent / 100)
        rows["val"] = take(order, len(kept) * val_percent / 100)
    if not rows["val"]:
        rows["val"] = take(rows["train"], len(rows["train"]) / 10)
    if not rows["train"]:
        why = "; ".join(f"{file}: {reason}" for file, reason in list(problems.items())[:3])
        raise CaptchaOcrError(
            f"{counted(len(kept), 'usable image')}, of which none is left to train on beside validation and test sets"
            + (f" ({why})" if why else "")
        )
    return rows


def take(rows: list[int], share: float) -> list[int]:
    """Remove and return the last `share` rows, rounded, at least one."""
    count = max(1, round(share))
    taken = rows[-count:]
    del rows[-count:]
    return taken
