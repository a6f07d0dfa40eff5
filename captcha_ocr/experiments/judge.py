"""Let a model read labelled images, and tell where it reads their labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.data.labels import Label
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer

_UNREADABLE = Reading("", 0.0)  # of an image file that is damaged or too large


@dataclass(frozen=True)
class Judgement:
    """What a model reads in a labelled image: nothing, with confidence 0, if it cannot be opened.

    is_exact: whether it reads the label, in the form of its alphabet.
    """

    label: Label
    reading: Reading
    is_exact: bool

    @property
    def answer(self) -> tuple[float, bool]:
        """The confidence, and whether the text is right but for its case."""
        return self.reading.confidence, self.reading.text.casefold() == self.label.text.casefold()


def judge(recognizer: Recognizer, folder: Path, labels: Sequence[Label]) -> Iterator[Judgement]:
    """Yield for each labelled image of a folder, in order, what a model reads in it."""
    normalize = recognizer.config.charset.normalize
    results = recognizer.read_all(folder / label.file for label in labels)
    for label, result in zip(labels, results, strict=True):
        reading = result if isinstance(result, Reading) else _UNREADABLE
        yield Judgement(label, reading, reading.text == normalize(label.text))
