"""A second reader beside a recognizer: two that learnt from other images seldom err alike."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from captcha_ocr.charset import resolve_alphabet, split_characters
from captcha_ocr.data.images import ImageSource, name_source
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import ImageError, UsageError, check
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.inference.rapidocr_engine import RapidOcrEngine, find_network
from captcha_ocr.inference.traits import Tally
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.recognizer import Recognizer

RAPIDOCR, NO_SECOND = "rapidocr", "none"  # as options call it
_NOTHING = Reading("", 0.0)
# An exponent that makes RapidOCR's confidences honest: docs/decisions.md, Reading and confidence
_DOUBT = 2
# Of so many images or more that both read, the part that both must read alike
_FEWEST_READ, _LEAST_SAME = 20, 0.01


class SecondReader(Protocol):
    """Any reader of images: a `Recognizer`, or what another program has read."""

    def read_all(self, sources: Iterable[ImageSource]) -> Iterator[Reading | ImageError]:
        """Yield for each image file, in order, its reading or the ImageError."""

    def limited_to(
        self, charset: str | None, lengths: Lengths | None, fold_case: bool
    ) -> "SecondReader":
        """Return a reader that reads only such texts, if it can."""


class PastReadings:
    """What another program has read, by the absolute paths of the images; of others, nothing."""

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self.readings = readings

    @classmethod
    def from_table(cls, table: Path, folder: Path) -> "PastReadings":
        """Read a table filename,text,confidence of the images in a folder.

        UsageError if no row names one of them.
        """
        labels = find_labels(folder, table).check().labels
        return cls(
            {
                os.path.abspath(folder / label.file): Reading(label.text, label.confidence or 0.0)
                for label in labels
            }
        )

    def read_all(self, sources: Iterable[ImageSource]) -> Iterator[Reading]:
        """Yield for each image file, in order, what was read."""
        paths = (os.path.abspath(name_source(source)) for source in sources)
        return (self.readings.get(path, _NOTHING) for path in paths)

    def limited_to(
        self, charset: str | None, lengths: Lengths | None, fold_case: bool
    ) -> "PastReadings":
        """Return those that are such texts, but for their case."""
        known = None if charset is None else set(resolve_alphabet(charset).casefold())
        readings = {}
        for path, reading in self.readings.items():
            is_known = known is None or known.issuperset(reading.text.casefold())
            if is_known and (lengths is None or len(split_characters(reading.text)) in lengths):
                readings[path] = reading
        return PastReadings(readings)


def open_second_reader(name: str, folder: Path, options: ReadingOptions) -> SecondReader:
    """Open the second reader that an option names: `rapidocr`, `none`, or the table of a program.

    folder: that of the images. options: what it may read. UsageError if there is no such reader.
    """
    if name == NO_SECOND:
        return PastReadings({})
    if name != RAPIDOCR:
        is_table = Path(name).is_file()
        check(is_table, f"`second` {name} is neither {RAPIDOCR} nor {NO_SECOND} nor a file")
        readings = PastReadings.from_table(Path(name), folder)
        return readings.limited_to(options.charset, options.lengths, options.fold_case)
    network = find_network()
    if network is None:
        raise UsageError("`second` rapidocr needs another package: pip install 'rapidocr>=3.10,<4'")
    return Recognizer.with_options(RapidOcrEngine(network, options.threads), options)


class TwoReaders:
    """A recognizer and a second reader of image files."""

    def __init__(self, recognizer: Recognizer, second: SecondReader) -> None:
        self.recognizer, self.second = recognizer, second
        self.config, self.decoder = recognizer.config, recognizer.decoder
        self.max_bytes = recognizer.max_bytes

    @property
    def has_second(self) -> bool:
        """Whether there is a second reader at all."""
        return not isinstance(self.second, PastReadings) or bool(self.second.readings)

    def read_all(self, sources: Iterable[ImageSource]) -> Iterator[Reading | ImageError]:
        """Yield for each image file, in order, what is read in it, or the ImageError."""
        for first, second in self.read_both(sources):
            yield judge_both(first, second) if isinstance(first, Reading) else first

    def read_both(
        self, sources: Iterable[ImageSource]
    ) -> Iterator[tuple[Reading | ImageError, Reading]]:
        """Yield for each image file what both read."""
        sources = list(sources)
        results = zip(self.recognizer.read_all(sources), self.second.read_all(sources), strict=True)
        for first, second in results:
            found = second if isinstance(second, Reading) else _NOTHING
            yield first, replace(found, confidence=found.confidence**_DOUBT)

    def fitted_to(self, sources: Iterable[ImageSource]) -> "TwoReaders":
        """Return readers of only such texts as the images have of which both read the same.

        Where these are too few, only the recognizer is fitted, to what it reads itself. Where both
        hardly ever read the same, the second one is left out: it reads something else.
        """
        known = self.recognizer.decoder.characters
        agreed, alone, sources = Tally(known), Tally(known), list(sources)
        same = both = 0
        for source, (first, second) in zip(sources, self.read_both(sources), strict=True):
            if isinstance(first, Reading):
                alone.add(first, source)
                both += bool(second.text)
                if agree(first, second):
                    agreed.add(first, source)
                    same += 1
        if both >= _FEWEST_READ and same < _LEAST_SAME * both:
            return TwoReaders(self.recognizer.fitted_by(alone), PastReadings({}))
        # Where both miss a character, they agree on a text that is too short, and surely
        agreed.examples = alone.examples
        fitted = self.recognizer.fitted_by(agreed)
        if fitted is not self.recognizer:
            return TwoReaders(fitted, self.second.limited_to(*fitted.limits))
        return TwoReaders(fitted.fitted_by(alone), self.second)


def agree(one: Reading, other: Reading) -> bool:
    """Tell whether two readings are of the same text, but for its case."""
    return bool(one.text) and one.text.casefold() == other.text.casefold()


def judge_both(first: Reading, second: Reading) -> Reading:
    """Return the surer of two readings of an image, with the probability that it is right.

    The readers err independently of one another. If they read different texts, at most one is
    right.
    """
    one, other = first.confidence, second.confidence
    if agree(first, second):
        return replace(first, confidence=1 - (1 - one) * (1 - other))
    possible = 1 - one * other
    if other > one:
        return replace(second, confidence=other * (1 - one) / possible)
    return replace(first, confidence=one * (1 - other) / possible if possible else one)
