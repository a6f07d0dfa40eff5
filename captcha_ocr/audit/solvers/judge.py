"""Judge what a model reads in labelled images."""

from collections.abc import Sequence
from pathlib import Path

from captcha_ocr.data.labels import Label
from captcha_ocr.errors import ImageError
from captcha_ocr.recognizer import Recognizer


def judge(reader: Recognizer, folder: Path, labels: Sequence[Label]) -> list[tuple[float, bool]]:
    """Return for each image the confidence of a model, and whether its text is right.

    Case does not count. An image that cannot be read is wrong, with confidence 0.
    """
    judged = []
    results = reader.read_all([folder / label.file for label in labels])
    for label, result in zip(labels, results, strict=True):
        if isinstance(result, ImageError):
            judged.append((0.0, False))
        else:
            is_right = result.text.casefold() == label.text.casefold()
            judged.append((result.confidence, is_right))
    return judged
