"""What the model reads in the images of a folder, found in the background while a person labels them."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.errors import ImageError
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer

AT_ONCE = 256  # images between two looks at whether to stop


@dataclass(frozen=True)
class Guess:
    """A reading of an image: its text, and the confidence in it and in each character, 0 to 1.

    problem: why the image cannot be read.
    """

    text: str
    confidence: float
    characters: tuple[tuple[str, float], ...] = ()
    problem: str | None = None

    @classmethod
    def of(cls, result: Reading | ImageError) -> "Guess":
        """Return what is kept of a reading."""
        if isinstance(result, ImageError):
            return cls("", 0.0, (), str(result))
        characters = tuple(
            (each.character, round(each.confidence, 4)) for each in result.characters
        )
        return cls(result.text, result.confidence, characters)


class Guesses:
    """The guesses of one model at a time, by the number of the image; a better model's replace them one by one."""

    def __init__(self, paths: list[Path], recognizer: Recognizer) -> None:
        self.paths, self.recognizer = paths, recognizer
        self.found: dict[int, Guess] = {}
        self.worker: threading.Thread | None = None
        self.stopped = threading.Event()

    def of(self, number: int) -> Guess:
        """Return the guess for an image, which is read now if it was not yet."""
        if number not in self.found:
            self.found[number] = self.read([number])[0]
        return self.found[number]

    def read(self, numbers: Iterable[int]) -> list[Guess]:
        """Read images with the present model."""
        return list(
            map(Guess.of, self.recognizer.read_all([self.paths[number] for number in numbers]))
        )

    def start(self, numbers: list[int]) -> None:
        """Read these images in the background."""
        self.stop()
        self.stopped = threading.Event()
        self.worker = threading.Thread(
            target=self.read_until, args=(numbers, self.stopped), daemon=True
        )
        self.worker.start()

    def read_until(self, numbers: list[int], stopped: threading.Event) -> None:
        """Read images until the end, or until `stopped` is set."""
        for first in range(0, len(numbers), AT_ONCE):
            part = numbers[first : first + AT_ONCE]
            guesses = self.read(part)
            if stopped.is_set():
                return
            self.found |= zip(part, guesses, strict=True)

    def replace_model(self, recognizer: Recognizer, numbers: list[int]) -> None:
        """Go on with a better model: read these images again."""
        self.stop()
        self.recognizer = recognizer
        self.start(numbers)

    def stop(self) -> None:
        """End what runs in the background."""
        self.stopped.set()
        if self.worker is not None:
            self.worker.join()
