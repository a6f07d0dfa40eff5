"""Let a model read labelled images, and tell where it reads their labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.data.labels import Label
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer


@dataclass(frozen=True)
class Judgement:
    """What a model reads in a labelled image; reading: None if the image cannot be read.

    is_exact: whether it reads the label, in the form of its alphabet.
    """

    label: Label
    reading: Reading | None
    is_exact: bool

    @property
    def answer(self) -> tuple[float, bool]:
        """The confidence, and whether the text is right but for its case.

        An image that cannot be read is wrong, with confidence 0.
        """
        if self.reading is None:
            return 0.0, False
        return self.reading.confidence, self.reading.text.casefold() == self.label.text.casefold()


def judge(recognizer: Recognizer, folder: Path, labels: Sequence[Label]) -> Iterator[Judgement]:
    """Yield for each labelled image of a folder, in order, what a model reads in it."""
    normalize = recognizer.config.charset.normalize
    results = recognizer.read_all(folder / label.file for label in labels)
    for label, result in zip(labels, results, strict=True):
        if isinstance(result, Reading):
            yield Judgement(label, result, result.text == normalize(label.text))
        else:
            yield Judgement(label, None, False)
