"""What a model reads in the images of a folder, while a person labels them."""

import threading
from pathlib import Path

from captcha_ocr.errors import ImageError
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer

_AT_ONCE = 256  # images between two looks at whether to stop
_NOTHING = Reading("", 0.0)


class Guesser:
    """Reads images, by their number, in the background, and those that are asked for at once.

    A better model's guesses replace those of an older one bit by bit. problems: why an image cannot
    be read; its guess is an empty text.
    """

    def __init__(self, paths: list[Path], recognizer: Recognizer) -> None:
        self.paths, self.recognizer = paths, recognizer
        self.guesses: dict[int, Reading] = {}
        self.problems: dict[int, str] = {}
        self.worker: threading.Thread | None = None
        self.is_stopped = False

    def guess(self, number: int) -> Reading:
        """Return the guess for an image, which is read now if it was not yet."""
        if number not in self.guesses:
            self._read([number])
        return self.guesses[number]

    def start(self, numbers: list[int], recognizer: Recognizer | None = None) -> None:
        """Read these images in the background, with another model if there is one."""
        self.stop()
        self.recognizer, self.is_stopped = recognizer or self.recognizer, False
        self.worker = threading.Thread(target=self._read_all, args=(numbers,), daemon=True)
        self.worker.start()

    def stop(self) -> None:
        """End what runs in the background."""
        self.is_stopped = True
        if self.worker is not None:
            self.worker.join()

    def _read_all(self, numbers: list[int]) -> None:
        for first in range(0, len(numbers), _AT_ONCE):
            if self.is_stopped:
                return
            self._read(numbers[first : first + _AT_ONCE])

    def _read(self, numbers: list[int]) -> None:
        results = self.recognizer.read_all([self.paths[number] for number in numbers])
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, ImageError):
                self.problems[number] = str(result)
            self.guesses[number] = result if isinstance(result, Reading) else _NOTHING
