"""What a model reads in labelled images."""

from collections.abc import Sequence
from pathlib import Path

from captcha_ocr.data.labels import Label
from captcha_ocr.errors import ImageError
from captcha_ocr.recognizer import Recognizer


def readings(reader: Recognizer, folder: Path, labels: Sequence[Label]) -> list[tuple[float, bool]]:
    """Return the confidence of a model in each image, and whether it is right; one that cannot be read is wrong."""
    results = reader.read_all([folder / label.file for label in labels])
    found = []
    for label, result in zip(labels, results, strict=True):
        if isinstance(result, ImageError):
            found.append((0.0, False))
        else:
            found.append((result.confidence, result.text.casefold() == label.text.casefold()))
    return found
