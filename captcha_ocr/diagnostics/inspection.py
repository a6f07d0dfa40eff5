"""Inspect a folder of captchas: what it holds before training, and what a model gets wrong afterwards."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captcha_ocr.charset import LOOKALIKES
from captcha_ocr.config import ImageKind, PrepareConfig
from captcha_ocr.data.images import open_image, read_bytes
from captcha_ocr.data.labels import Label, Problems, find_labels, select_labels
from captcha_ocr.data.prepare import IMAGES_PER_JOB, PrepareOptions, derived_size, kind_of
from captcha_ocr.errors import CaptchaOcrError, ImageError, in_one_line
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import sha256
from captcha_ocr.system.parallel import map_jobs

MIN_TEXTS = 20  # with a character; with fewer it is hardly learnt
MAX_STRETCH = 1.1  # ratio of the widest to the narrowest aspect ratio of one design
FEW_IMAGES = 300
SHEET_FILE, WRONG_FILE = "contact-sheet.png", "read-wrong.png"
MAX_LISTED = 8  # items in a line; the others are counted


@dataclass(frozen=True)
class File:
    """An image file: its hash, (width, height) and Pillow's mode, or the reason why it cannot be read."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    reason: str | None = None


@dataclass(frozen=True)
class Inspection:
    """What a folder holds. copies: groups of byte-identical images. conflicts: such groups with different labels.

    problems: why files are left out, by name. input_size: the size that `prepare` chooses, for people.
    """

    folder: Path
    labels: list[Label]
    problems: Problems
    sizes: Counter[tuple[int, int]]
    modes: Counter[str]
    copies: list[list[Label]]
    conflicts: list[list[Label]]
    input_size: str

    @property
    def lengths(self) -> Counter[int]:
        """The number of texts of each length."""
        return Counter(len(label.text) for label in self.labels)

    @property
    def characters(self) -> Counter[str]:
        """The number of texts with each character, in the order of the alphabet."""
        counts = Counter(character for label in self.labels for character in set(label.text))
        return Counter(dict(sorted(counts.items())))

    def summary(self) -> dict[str, Any]:
        """Return the facts as JSON types."""
        return {
            "images": len(self.labels),
            "problems": self.problems,
            "sizes": {f"{width}x{height}": count for (width, height), count in self.sizes.most_common()},
            "modes": dict(self.modes.most_common()),
            "lengths": {str(length): count for length, count in sorted(self.lengths.items())},
            "characters": dict(self.characters),
            "copies": [[label.file for label in group] for group in self.copies],
            "conflicts": [[label.file for label in group] for group in self.conflicts],
            "input": self.input_size,
            "advice": advice_on_images(self),
        }

    def __str__(self) -> str:
        characters = " ".join(f"{character}:{count:,}" for character, count in self.characters.items())
        groups = ("".join(character for character in self.characters if character in group) for group in LOOKALIKES)
        look_alikes = [group for group in groups if len(group) > 1]
        conflicts = [" = ".join(f"{label.file} ({label.text})" for label in group) for group in self.conflicts]
        rows = [
            ("images", f"{len(self.labels):,} readable with a label; {len(self.problems):,} left out"),
            ("sizes", join_first([f"{w}x{h} {count:,}" for (w, h), count in self.sizes.most_common()])),
            ("modes", join_first([f"{mode} {count:,}" for mode, count in self.modes.most_common()])),
            ("for training", self.input_size),
            ("lengths", join_first([f"{length} {count:,}" for length, count in sorted(self.lengths.items())])),
            ("alphabet", f"{len(self.characters)} characters, with the number of texts: {characters}"),
            ("look-alikes", join_first(look_alikes)),
            ("copies", join_first([" = ".join(label.file for label in group) for group in self.copies])),
            ("conflicts", join_first(conflicts)),
            ("left out", join_first([f"{file}: {reason}" for file, reason in sorted(self.problems.items())])),
        ]
        return "\n".join(f"{name:14}{in_one_line(words)}" for name, words in rows)


def inspect(folder: Path, config: PrepareConfig, options: PrepareOptions = PrepareOptions()) -> Inspection:
    """Read every image below `folder`; errors as for `prepare`, but copies are kept and counted."""
    labels, problems = find_labels(folder, options.labels_file, config.label_pattern, options.corrections)
    selected = select_labels(labels, config)
    labels, lengths = selected.labels, selected.lengths
    blocks = [labels[first : first + IMAGES_PER_JOB] for first in range(0, len(labels), IMAGES_PER_JOB)]
    jobs = [(folder, [label.file for label in block], config.max_bytes) for block in blocks]
    files: list[File] = []
    for results in map_jobs(read_files, jobs, options.workers):
        files += results
        options.progress(len(files), len(labels))
    unreadable = {label.file: file.reason for label, file in zip(labels, files, strict=True) if file.reason is not None}
    problems = problems | selected.problems | unreadable
    pairs = [(label, file) for label, file in zip(labels, files, strict=True) if file.reason is None]
    if not pairs:
        name, reason = next(iter(problems.items()))
        raise CaptchaOcrError(f"no labelled image below {folder} can be read; {name}: {reason}")
    by_hash: dict[str, list[Label]] = {}
    for label, file in pairs:
        by_hash.setdefault(file.sha256, []).append(label)
    groups = [group for group in by_hash.values() if len(group) > 1]
    readable = [label for label, _ in pairs]
    return Inspection(
        folder=folder,
        labels=readable,
        problems=problems,
        sizes=Counter(file.size for _, file in pairs),
        modes=Counter(file.mode for _, file in pairs),
        copies=[group for group in groups if len({label.text for label in group}) == 1],
        conflicts=[group for group in groups if len({label.text for label in group}) > 1],
        input_size=describe_size(kind_of(folder, readable, config.max_bytes), config, lengths.longest),
    )


def read_files(job: tuple[Path, list[str], int]) -> list[File]:
    """Read some files of a folder."""
    folder, names, max_bytes = job
    files = []
    for name in names:
        try:
            data = read_bytes(folder / name, max_bytes)
            image = open_image(data, max_bytes)
            files.append(File(sha256(data), image.size, image.mode))
        except ImageError as error:
            files.append(File(reason=str(error)))
    return files


def describe_size(seen: ImageKind, config: PrepareConfig, longest: int) -> str:
    """Describe the network's input for images like `seen`, and why it is grey or in colour."""
    size = config.input_size(derived_size(seen, longest))
    why = "colour has contrast that grey lacks" if seen.channels == 3 else "grey keeps the contrast"
    is_same = (seen.width, seen.height) == (size.width, size.height)
    change = f"not resized, {size.colours}" if is_same else f"resized to {size}"
    return f"{seen.width}x{seen.height} {change} ({why})"


def join_first(words: Sequence[str]) -> str:
    """Join the first words, and count the others; `none` without any."""
    more = [f"{len(words) - MAX_LISTED:,} more"] if len(words) > MAX_LISTED else []
    return "; ".join([*words[:MAX_LISTED], *more]) or "none"


def advice_on_images(found: Inspection) -> list[str]:
    """Return what to consider before training, one sentence each."""
    advice = []
    rare = [character for character, count in found.characters.items() if count < MIN_TEXTS]
    if rare:
        advice.append(
            f"fewer than {MIN_TEXTS} texts contain each of {''.join(rare)}: add more, or they will be misread"
        )
    both = [c for c in found.characters if c.lower() != c and c.lower() in found.characters]
    if both:
        advice.append(
            f"{''.join(both)} occur in both cases: prepare reads them as one case; --case-sensitive keeps both"
        )
    if found.conflicts:
        times = counted(len(found.conflicts), "time")
        advice.append(f"the same image has different labels, {times}: correct them; prepare leaves the image out")
    proportions = [width / height for width, height in found.sizes]
    if max(proportions) > MAX_STRETCH * min(proportions):
        advice.append("the images have different proportions: all are stretched to one size")
    if len(found.labels) < FEW_IMAGES:
        images = counted(len(found.labels), "image")
        advice.append(f"only {images}: add a few hundred, or use train --init with a model trained on generated images")
    return advice or ["the images are fit for training"]


def sample(labels: Sequence[Label]) -> list[Label]:
    """Return the labels in a random order, which is always the same."""
    return random.Random(0).sample(list(labels), len(labels))


@dataclass(frozen=True)
class WrongReading:
    """An image whose prediction is not its label."""

    file: str
    label: str
    reading: Reading


def read_wrong(
    recognizer: Recognizer, found: Inspection, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[WrongReading]:
    """Return the images whose prediction is not their label, most confident first: the first are often wrong labels."""
    normalize = recognizer.config.charset.normalize
    wrong = []
    results = recognizer.read_all(found.folder / label.file for label in found.labels)
    for number, (label, result) in enumerate(zip(found.labels, results, strict=True), 1):
        if isinstance(result, Reading) and result.text != normalize(label.text):
            wrong.append(WrongReading(label.file, label.text, result))
        progress(number, len(found.labels))
    return sorted(wrong, key=lambda each: (-each.reading.confidence, each.file))
