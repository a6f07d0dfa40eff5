"""What a model reads in the images of a folder, while a person labels them."""

import threading
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.errors import ImageError
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer

_AT_ONCE = 256  # images between two looks at whether to stop


@dataclass(frozen=True)
class Guess:
    """A reading of an image: its text, and the confidence in it and in each character, 0 to 1.

    problem: why the image cannot be read.
    """

    text: str
    confidence: float
    characters: tuple[tuple[str, float], ...] = ()
    problem: str | None = None


class Guesser:
    """Reads images, by their number, in the background, and those that are asked for at once.

    A better model's guesses replace those of an older one bit by bit.
    """

    def __init__(self, paths: list[Path], recognizer: Recognizer) -> None:
        self.paths, self.recognizer = paths, recognizer
        self.guesses: dict[int, Guess] = {}
        self.worker: threading.Thread | None = None
        self.stopped = threading.Event()

    def guess(self, number: int) -> Guess:
        """Return the guess for an image, which is read now if it was not yet."""
        if number not in self.guesses:
            self._read([number], threading.Event())
        return self.guesses[number]

    def start(self, numbers: list[int], recognizer: Recognizer | None = None) -> None:
        """Read these images in the background, with another model if there is one."""
        self.stop()
        self.recognizer = recognizer or self.recognizer
        self.stopped = threading.Event()
        work = (numbers, self.stopped)
        self.worker = threading.Thread(target=self._read, args=work, daemon=True)
        self.worker.start()

    def stop(self) -> None:
        """End what runs in the background."""
        self.stopped.set()
        if self.worker is not None:
            self.worker.join()

    def _read(self, numbers: list[int], stopped: threading.Event) -> None:
        for first in range(0, len(numbers), _AT_ONCE):
            part = numbers[first : first + _AT_ONCE]
            results = self.recognizer.read_all([self.paths[number] for number in part])
            guesses = list(map(_make_guess, results))
            if stopped.is_set():
                return
            self.guesses |= zip(part, guesses, strict=True)


def _make_guess(result: Reading | ImageError) -> Guess:
    if isinstance(result, ImageError):
        return Guess("", 0.0, (), str(result))
    characters = [(part.character, round(part.confidence, 4)) for part in result.characters]
    return Guess(result.text, result.confidence, tuple(characters))
