"""Select the labels that a network can learn, with their alphabet and lengths."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from captcha_ocr.charset import UNREADABLE, Charset, can_be_read, find_charset, split_characters
from captcha_ocr.data.labels import Label, Problems
from captcha_ocr.errors import UsageError, check
from captcha_ocr.options.model import MAX_LENGTH, Lengths
from captcha_ocr.options.preparation import RARE, PrepareConfig
from captcha_ocr.system.console import counted


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
    lengths = config.lengths or find_usual_lengths(
        len(split_characters(label.text)) for label in labels
    )
    problems = {
        label.file: reason
        for label in labels
        if (reason := _explain_unfit(label.text, lengths, config))
    }
    fit = [label for label in labels if label.file not in problems]
    if not fit:
        raise UsageError(f"no label can be learnt; {labels[0].file}: {problems[labels[0].file]}")
    charset = find_charset((label.text for label in fit), config.charset, config.case_sensitive)
    selected = []
    for label in fit:
        unknown = charset.unknown_characters(label.text)
        if unknown:
            problems[label.file] = (
                f"its text {label.text!r} has {unknown!r}, which the alphabet lacks"
            )
        else:
            selected.append(label)
    if not selected:
        first = fit[0].file
        raise UsageError(f"no label fits the alphabet {charset}; {first}: {problems[first]}")
    if len(selected) > 1 and len({charset.normalize(label.text) for label in selected}) == 1:
        raise UsageError(
            f"all {len(selected):,} images are labelled {selected[0].text!r}, so there is nothing "
            "to learn; name the texts with `label_pattern` or labels.csv"
        )
    found = {len(split_characters(label.text)) for label in selected}
    return Selection(selected, charset, config.lengths or Lengths(min(found), max(found)), problems)


def _explain_unfit(text: str, lengths: Lengths, config: PrepareConfig) -> str | None:
    """Return the reason why a text cannot be learnt with any alphabet; None if it can."""
    characters = split_characters(text)
    unreadable = "".join(
        dict.fromkeys(character for character in characters if not can_be_read(character))
    )
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


def find_usual_lengths(lengths: Iterable[int]) -> Lengths:
    """Return the range of the lengths that at least 1 in `RARE` texts have.

    Others may be typing errors.
    """
    counts = Counter(lengths)
    usual = [
        length
        for length, count in counts.items()
        if count * RARE >= counts.total() and length <= MAX_LENGTH
    ]
    check(bool(usual), f"no label has {MAX_LENGTH} characters or less")
    return Lengths(min(usual), max(usual))
