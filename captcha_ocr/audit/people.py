"""How well people read the same images: the answers of `label --blind`."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import check
from captcha_ocr.scores import wilson_interval
from captcha_ocr.web.label_session import ANSWERS_FILE, ANSWERS_JOURNAL


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
    journal = folder / ANSWERS_JOURNAL
    lines = journal.read_text("utf-8").splitlines() if journal.exists() else []
    seconds = [row["seconds"] for row in map(json.loads, lines) if row.get("seconds") is not None]
    return {
        "images": len(judged),
        "right": sum(judged),
        "interval": wilson_interval(sum(judged), len(judged)),
        "seconds": median(seconds) if seconds else None,
    }
