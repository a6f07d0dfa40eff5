"""Attacks that read no image.

Images that repeat, texts in a file's metadata or name, texts that are easily guessed.
"""

import io
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from captcha_ocr.data.images import hash_pixels, open_image
from captcha_ocr.data.labels import Label
from captcha_ocr.data.sanitize import FORMATS
from captcha_ocr.errors import ImageError, UsageError
from captcha_ocr.scores import wilson_interval

_LEAST_TEXT = 3  # characters that are looked for in a file: shorter ones stand there by chance
_LEAST_SHARE = 0.01  # of the images, from which a shortcut counts
_SIMULATIONS = 500  # of texts that are drawn evenly
_SIGNIFICANT = 0.001  # share of them that is as uneven
_MOST_CONTRADICTORY = 1 / 3  # of the images may have the pixels of one with another text
_LEAST_TEXTS = 200  # to tell whether characters are drawn evenly


@dataclass(frozen=True)
class Shortcuts:
    """What can be found without reading an image, in so many images; the fields of its JSON.

    repeated: images whose pixels another one has, too. in_files: files that hold their text.
    in_names: files whose name holds it. copies: files whose pixels an earlier one has. unreadable:
    why files are no images. most_frequent: a text, and how often it comes. skewed: characters too
    frequent at a position, (position, character, share). even_guess, by_characters: the shares that
    a guess solves if all characters are equally likely, and if each position has its most frequent
    one. texts_are_given: whether the audit chose the texts.
    """

    images: int
    repeated: int
    in_files: int
    in_names: int
    copies: tuple[str, ...]
    unreadable: dict[str, str]
    most_frequent: tuple[str, int]
    skewed: tuple[tuple[int, str, float], ...]
    even_guess: float
    by_characters: float
    texts_are_given: bool

    @property
    def findings(self) -> list[str]:
        """What makes reading unnecessary, a sentence each."""
        text, times = self.most_frequent
        images = f"{self.images:,} images"
        found = {
            f"{self.repeated:,} of {images} have the pixels of another one:"
            " the generator repeats itself, or these are copies.": (
                self.repeated > _LEAST_SHARE * self.images
            ),
            f"The text stands in the metadata of {self.in_files:,} of {self.images:,} files.": (
                self.in_files > _LEAST_SHARE * self.images
            ),
            f"One text, {text!r}, comes {times:,} times in {images}.": self._has_frequent_text,
        }
        return [sentence for sentence, applies in found.items() if applies]

    @property
    def _has_frequent_text(self) -> bool:
        times = self.most_frequent[1]
        return wilson_interval(times, self.images)[0] > _LEAST_SHARE

    @property
    def best_guess(self) -> float:
        """The share that a guess by what is too frequent solves; of even texts if nothing is."""
        guesses = [self.even_guess]
        if self.skewed:
            guesses.append(self.by_characters)
        if self._has_frequent_text:
            guesses.append(self.most_frequent[1] / self.images)
        return max(guesses)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON types."""
        return asdict(self) | {"best_guess": self.best_guess, "findings": self.findings}


def find_shortcuts(
    folder: Path, labels: Sequence[Label], alphabet: str, texts_are_given: bool
) -> Shortcuts:
    """Look for what makes reading unnecessary.

    texts_are_given: whether the audit chose the texts itself. UsageError if the images do not show
    their texts: too many have the pixels of one with another text.
    """
    groups, in_files, unreadable = _search_files(folder, labels)
    contradictory = [group for group in groups if len(set(map(attrgetter("text"), group))) > 1]
    count = sum(map(len, contradictory))
    if count > _MOST_CONTRADICTORY * len(labels):
        pair = " and ".join(label.file for label in contradictory[0][:2])
        share = f"{count:,} of {len(labels):,} images"
        raise UsageError(f"{share} have the pixels of one with another text, such as {pair}")
    texts = [label.text for label in labels]
    in_names, skewed = 0, list[tuple[int, str, float]]()
    if not texts_are_given:
        in_names = sum(label.text in Path(label.file).stem for label in labels)
        skewed = _find_skewed_positions(texts, alphabet)
    length, times = Counter(map(len, texts)).most_common(1)[0]
    share_of_length = times / len(texts)
    columns = zip(*(text for text in texts if len(text) == length), strict=True)
    most = [Counter(column).most_common(1)[0][1] / times for column in columns]
    copies = tuple(label.file for group in groups for label in group[1:])
    return Shortcuts(
        images=len(labels),
        repeated=sum(map(len, groups)),
        in_files=in_files,
        in_names=in_names,
        copies=copies,
        unreadable=unreadable,
        most_frequent=Counter(texts).most_common(1)[0],
        skewed=tuple(skewed),
        even_guess=share_of_length / len(alphabet) ** length,
        by_characters=share_of_length * math.prod(most),
        texts_are_given=texts_are_given,
    )


def _search_files(
    folder: Path, labels: Sequence[Label]
) -> tuple[list[list[Label]], int, dict[str, str]]:
    """Return groups of images with the same pixels, the number of files that hold their text, and
    why files are no images.
    """
    same_pixels: defaultdict[str, list[Label]] = defaultdict(list)
    in_files, unreadable = 0, dict[str, str]()
    for label in labels:
        path = folder / label.file
        try:
            content = hash_pixels(open_image(path))
        except ImageError as error:
            unreadable[label.file] = str(error)
        else:
            same_pixels[content].append(label)
            in_files += holds_text(path.read_bytes(), label.text)
    return [group for group in same_pixels.values() if len(group) > 1], in_files, unreadable


def holds_text(data: bytes, text: str) -> bool:
    """Tell whether the file of an image holds a text beside its pixels."""
    if len(text) < _LEAST_TEXT:
        return False
    if text.encode() in data:
        for start, (keep_pixels, _) in FORMATS.items():
            if data.startswith(start) and text.encode() not in b"".join(keep_pixels(data)[0]):
                return True
    with (
        suppress(OSError, ValueError, SyntaxError),  # of damaged metadata
        Image.open(io.BytesIO(data)) as image,
    ):
        return text in repr(image.info)
    return False


def _find_skewed_positions(texts: Sequence[str], alphabet: str) -> list[tuple[int, str, float]]:
    """Return the characters too frequent at a position, if even texts are almost never as uneven.

    A simulated test of the sum of squares at each position (Pearson's), corrected for the number of
    positions.
    """
    rng, skewed = np.random.default_rng(0), []
    longest = max(map(len, texts))
    even = [1 / len(alphabet)] * len(alphabet)
    # Chernoff's bound of a normal tail, in standard deviations
    limit = math.sqrt(2 * math.log(longest / _SIGNIFICANT))
    for position in range(longest):
        counts = Counter(text[position] for text in texts if len(text) > position)
        total = counts.total()
        if total < _LEAST_TEXTS:
            continue
        observed = sum(count**2 for count in counts.values())
        fair = rng.multinomial(total, even, size=_SIMULATIONS)  # (_SIMULATIONS, alphabet)
        squares = (fair.astype(np.float64) ** 2).sum(axis=1)
        if observed > squares.mean() + limit * squares.std():
            character, times = counts.most_common(1)[0]
            skewed.append((position + 1, character, times / total))
    return skewed
