"""Attacks that read no image: images that repeat, texts in a file's metadata or name, texts that are easily guessed."""

import hashlib
import io
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from captcha_ocr.data.images import flatten, open_image
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import ImageError, UsageError
from captcha_ocr.scores import wilson_interval

LEAST_TEXT = 3  # characters that are looked for in a file: shorter ones stand there by chance
LEAST_SHARE = 0.01  # of the images, from which a trick counts
SIMULATIONS, SIGNIFICANT = (
    500,
    0.001,
)  # of texts that are drawn evenly; the share of them that is as uneven
MOST_CONTRADICTORY = 1 / 3  # of the images may have the pixels of one with another text
LEAST_TEXTS = 200  # to tell whether characters are drawn evenly


@dataclass(frozen=True)
class Tricks:
    """What was found without reading an image.

    repeated: images whose pixels another one has, too. in_files: images whose file holds its text. in_names: images
    whose name holds it. most_frequent: the text that comes most often, and how often. skewed: characters that come too
    often at their place: (place, character, share). even_guess, by_characters: the share that a guess solves if all
    characters are as likely, and if each place has its most frequent one. copies: files whose pixels an earlier one
    has. unreadable: why files are no images.
    """

    images: int
    repeated: int
    in_files: int
    in_names: int
    most_frequent: tuple[str, int]
    skewed: tuple[tuple[int, str, float], ...]
    even_guess: float
    by_characters: float
    texts_are_given: bool
    copies: tuple[str, ...]
    unreadable: dict[str, str]

    @property
    def findings(self) -> list[str]:
        """What makes reading unnecessary, a sentence each."""
        found = []
        if self.repeated > LEAST_SHARE * self.images:
            of_all = f"{self.repeated:,} of {self.images:,} images"
            found.append(
                f"{of_all} have the pixels of another one: the generator repeats itself, or these are copies."
            )
        if self.in_files > LEAST_SHARE * self.images:
            found.append(
                f"The text stands in the metadata of {self.in_files:,} of {self.images:,} files."
            )
        text, times = self.most_frequent
        if self.is_frequent:
            found.append(f"One text, {text!r}, comes {times:,} times in {self.images:,} images.")
        return found

    @property
    def is_frequent(self) -> bool:
        """Whether one text comes too often."""
        return wilson_interval(self.most_frequent[1], self.images)[0] > LEAST_SHARE

    @property
    def best_guess(self) -> float:
        """The share that a guess solves by what is most frequent; that of even texts where nothing is too frequent."""
        guess = self.by_characters if self.skewed else self.even_guess
        return max(guess, self.most_frequent[1] / self.images) if self.is_frequent else guess

    def summary(self) -> dict[str, Any]:
        """Return the facts as JSON types."""
        skewed = [list(each) for each in self.skewed]
        return {
            **vars(self),
            "skewed": skewed,
            "best_guess": self.best_guess,
            "findings": self.findings,
        }


def find_tricks(
    folder: Path, labels: Sequence[Label], alphabet: str, texts_are_given: bool
) -> Tricks:
    """Look for what makes reading unnecessary. texts_are_given: whether the audit chose the texts itself.

    UsageError if the images do not show their texts: too many have the pixels of one with another text.
    """
    same_pixels: defaultdict[str, list[Label]] = defaultdict(list)
    in_files, unreadable = 0, dict[str, str]()
    for label in labels:
        path = folder / label.file
        try:
            image = open_image(path)
        except ImageError as error:
            unreadable[label.file] = str(error)
            continue
        same_pixels[pixel_hash(image)].append(label)
        in_files += holds(path.read_bytes(), label.text)
    contradictory = [
        group for group in same_pixels.values() if len({label.text for label in group}) > 1
    ]
    count = sum(map(len, contradictory))
    if count > MOST_CONTRADICTORY * len(labels):
        pair = " and ".join(label.file for label in contradictory[0][:2])
        raise UsageError(
            f"{count:,} of {len(labels):,} images have the pixels of one with another text, such as {pair}"
        )
    repeated = sum(len(group) for group in same_pixels.values() if len(group) > 1)
    texts = [label.text for label in labels]
    names = [Path(label.file).stem for label in labels]
    return Tricks(
        images=len(labels),
        repeated=repeated,
        in_files=in_files,
        in_names=0
        if texts_are_given
        else sum(text in name for text, name in zip(texts, names, strict=True)),
        most_frequent=Counter(texts).most_common(1)[0],
        skewed=() if texts_are_given else tuple(skewed_places(texts, alphabet)),
        even_guess=guess_rate(texts, alphabet),
        by_characters=best_guess(texts),
        texts_are_given=texts_are_given,
        copies=tuple(label.file for group in same_pixels.values() for label in group[1:]),
        unreadable=unreadable,
    )


def pixel_hash(image: Any) -> str:
    """Return a hash of the pixels of an image: files of equal pixels may differ."""
    flat = flatten(image, "RGB")
    return hashlib.sha256(repr(flat.size).encode() + flat.tobytes()).hexdigest()


def holds(data: bytes, text: str) -> bool:
    """Tell whether the file of an image holds a text as such, beside its pixels, or in what Pillow finds in it."""
    if len(text) < LEAST_TEXT:
        return False
    found = ""
    with (
        suppress(OSError, ValueError, SyntaxError),
        Image.open(io.BytesIO(data)) as image,
    ):  # of damaged metadata
        found = repr(image.info)
    return text in found or text.encode() in outside_pixels(data)


def outside_pixels(data: bytes) -> bytes:
    """Return the parts of a file that hold no pixels, roughly: all of a PNG but its IDAT, the start of another one."""
    if not data.startswith(b"\x89PNG"):
        return data[: data.find(b"\xff\xda")] if data.startswith(b"\xff\xd8") else b""
    kept, place = b"", 8
    while place + 12 <= len(data):
        length, kind = int.from_bytes(data[place : place + 4], "big"), data[place + 4 : place + 8]
        if kind not in (b"IDAT", b"IHDR", b"PLTE"):
            kept += data[place + 8 : place + 8 + length]
        place += 12 + length
    return kept + data[place:]


def skewed_places(texts: Sequence[str], alphabet: str) -> list[tuple[int, str, float]]:
    """Return the characters that come too often at a place of texts, if a fair drawing is almost never as uneven.

    A simulated test of the sum of squares at each place (Pearson's), corrected for the number of places.
    """
    rng, found = np.random.default_rng(0), []
    lengths = Counter(map(len, texts))
    for place in range(max(lengths)):
        counts = Counter(text[place] for text in texts if len(text) > place)
        total = counts.total()
        if total < LEAST_TEXTS:
            continue
        observed = sum(count**2 for count in counts.values())
        fair = rng.multinomial(
            total, [1 / len(alphabet)] * len(alphabet), size=SIMULATIONS
        )  # (SIMULATIONS, alphabet)
        squares = (fair.astype(np.float64) ** 2).sum(axis=1)
        limit = squares.mean() + normal_limit(max(lengths)) * squares.std()
        if observed > limit:
            character, times = counts.most_common(1)[0]
            found.append((place + 1, character, times / total))
    return found


def normal_limit(places: int) -> float:
    """Return so many standard deviations that chance passes them at any of the places with SIGNIFICANT, at most."""
    probability = SIGNIFICANT / places
    return math.sqrt(2 * math.log(1 / probability))  # Chernoff's bound of a normal tail


def guess_rate(texts: Sequence[str], alphabet: str) -> float:
    """Return the share that a blind guess solves if the characters are as likely: of the most frequent length."""
    length, times = Counter(map(len, texts)).most_common(1)[0]
    return float(times / len(texts) / len(alphabet) ** length)


def best_guess(texts: Sequence[str]) -> float:
    """Return the share that the most likely text solves if the places are independent."""
    length, times = Counter(map(len, texts)).most_common(1)[0]
    fitting = [text for text in texts if len(text) == length]
    most = [
        Counter(column).most_common(1)[0][1] / len(fitting) for column in zip(*fitting, strict=True)
    ]
    return float(times / len(texts) * math.prod(most))
