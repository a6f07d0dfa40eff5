"""How well people read the same images: the answers of `label --blind`."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from captcha_ocr.data.answers import ANSWERS_FILE, ANSWERS_JOURNAL, read_journal
from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import check
from captcha_ocr.scores import wilson_interval


def people_in(folder: Path | None, labels: Sequence[Label]) -> dict[str, Any] | None:
    """Return how many answers in a folder of `label --blind` are the labels, and the median seconds; None without one.

    An image that was skipped because nobody can read it is wrong. UsageError if there are no answers to these images.
    """
    if folder is None:
        return None
    path = folder / ANSWERS_FILE
    check(path.exists(), f"{folder} has no {ANSWERS_FILE}, which label --blind writes")
    truths = {label.file: label.text for label in labels}
    answers = {row.filename: row.text for row in read_table(path)}
    judged = [
        answers[file].casefold() == text.casefold()
        for file, text in truths.items()
        if file in answers
    ]
    check(bool(judged), f"{path} has no answers to the images of this audit")
    lines = read_journal(folder / ANSWERS_JOURNAL)
    seconds = [line["seconds"] for line in lines if line.get("seconds") is not None]
    return {
        "images": len(judged),
        "right": sum(judged),
        "interval": wilson_interval(sum(judged), len(judged)),
        "seconds": median(seconds) if seconds else None,
    }
