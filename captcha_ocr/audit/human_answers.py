"""How well people read the same images: the answers that `label` keeps with its option blind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.labels import ANSWERS_FILE, ANSWERS_JOURNAL, Label, read_journal
from captcha_ocr.errors import check
from captcha_ocr.scores import wilson_interval


@dataclass(frozen=True)
class HumanAnswers:
    """How many answers are right. seconds: the median of an answer; None if no time was kept."""

    images: int
    right: int
    interval: tuple[float, float]
    seconds: float | None

    @property
    def share(self) -> float:
        """The share that is right, 0 to 1."""
        return self.right / self.images


def judge_answers(folder: Path, labels: Sequence[Label]) -> HumanAnswers:
    """Compare the answers in a folder of `label`, which its option blind kept, with the labels.

    An image that was skipped because nobody can read it is wrong. UsageError if there are no
    answers to these images.
    """
    path = folder / ANSWERS_FILE
    check(path.exists(), f"{folder} has no {ANSWERS_FILE}, which label `blind` writes")
    answers = {row.filename: row.text.casefold() for row in read_table(path)}
    judged = [
        answers[label.file] == label.text.casefold() for label in labels if label.file in answers
    ]
    check(bool(judged), f"{path} has no answers to the images of this audit")
    right = sum(judged)
    rows = read_journal(folder / ANSWERS_JOURNAL)
    seconds = [row["seconds"] for row in rows if row.get("seconds") is not None]
    interval = wilson_interval(right, len(judged))
    return HumanAnswers(len(judged), right, interval, median(seconds) if seconds else None)
