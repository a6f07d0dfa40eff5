"""A look at a folder of captchas: before training, what is in it; afterwards, what a model gets wrong in it."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captcha_ocr.charset import LOOKALIKES
from captcha_ocr.config import ImageKind, PrepareConfig
from captcha_ocr.data.images import open_image, read_bytes
from captcha_ocr.data.labels import Label, Problems, find_labels, select_labels
from captcha_ocr.data.prepare import IMAGES_PER_JOB, PrepareOptions, kind_of
from captcha_ocr.errors import CaptchaOcrError, ImageError
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.recognizer import Recognizer
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import sha256
from captcha_ocr.system.parallel import map_jobs

ENOUGH_OF_A_CHARACTER = 20  # labels, below which it is hardly learnt
STRETCHED = 1.1  # times as wide for their height, beyond which images are not of the same kind
SHEET_FILE, WRONG_FILE = "contact-sheet.png", "read-wrong.png"
NAMED = 8  # of the things that could be listed, before the rest is counted


@dataclass(frozen=True)
class File:
    """What one image file is: hash, (width, height) and Pillow's mode; or why it cannot be read."""

    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    reason: str | None = None


@dataclass(frozen=True)
class Inspection:
    """What is in a folder. copies: sets of byte-identical images; conflicts: those of them with different labels.

    problems: why files are left out, by name; input_size: what `prepare` would bring the images to, in words.
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
        """How many texts have how many characters."""
        return Counter(len(label.text) for label in self.labels)

    @property
    def characters(self) -> Counter[str]:
        """How many texts hold a character, in the order of the alphabet."""
        counts = Counter(character for label in self.labels for character in set(label.text))
        return Counter(dict(sorted(counts.items())))

    def summary(self) -> dict[str, Any]:
        """The facts as JSON types."""
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
        """The facts for people, a line each."""
        characters = " ".join(f"{character}:{count:,}" for character, count in self.characters.items())
        rows = [
            ("images", f"{len(self.labels):,} that can be read and have a label; {len(self.problems):,} left out"),
            ("sizes", listed([f"{w}x{h} {count:,}" for (w, h), count in self.sizes.most_common()])),
            ("modes", listed([f"{mode} {count:,}" for mode, count in self.modes.most_common()])),
            ("for training", self.input_size),
            ("lengths", listed([f"{length} {count:,}" for length, count in sorted(self.lengths.items())])),
            ("alphabet", f"{len(self.characters)} characters; how many texts hold each: {characters}"),
            ("look-alikes", listed(look_alikes(self.characters)) or "none"),
            ("copies", listed([" = ".join(label.file for label in group) for group in self.copies]) or "none"),
            ("conflicts", listed([in_conflict(group) for group in self.conflicts]) or "none"),
            ("left out", listed([f"{file}: {reason}" for file, reason in sorted(self.problems.items())]) or "none"),
        ]
        return "\n".join(f"{name:14}{words}" for name, words in rows)


def inspect(folder: Path, config: PrepareConfig, options: PrepareOptions = PrepareOptions()) -> Inspection:
    """Look at every image below `folder` as `prepare` does; errors as there, but copies are kept and counted."""
    labels, problems = find_labels(folder, options.labels_file, config.label_pattern, options.corrections)
    selected = select_labels(labels, config)
    labels, lengths = selected.labels, selected.lengths
    jobs = [
        (folder, [label.file for label in labels[at : at + IMAGES_PER_JOB]], config.max_bytes)
        for at in range(0, len(labels), IMAGES_PER_JOB)
    ]
    files: list[File] = []
    for looked_at in map_jobs(look_at, jobs, options.workers):
        files += looked_at
        options.progress(len(files), len(labels))
    unreadable = {label.file: file.reason for label, file in zip(labels, files, strict=True) if file.reason is not None}
    problems = problems | selected.problems | unreadable
    pairs = [(label, file) for label, file in zip(labels, files, strict=True) if file.reason is None]
    if not pairs:
        unread, reason = next(iter(problems.items()))
        raise CaptchaOcrError(f"no labelled image below {folder} can be read; {unread}: {reason}")
    alike: dict[str, list[Label]] = {}
    for label, file in pairs:
        alike.setdefault(file.sha256, []).append(label)
    groups = [group for group in alike.values() if len(group) > 1]
    readable = [label for label, _ in pairs]
    return Inspection(
        folder=folder,
        labels=readable,
        problems=problems,
        sizes=Counter(file.size for _, file in pairs),
        modes=Counter(file.mode for _, file in pairs),
        copies=[group for group in groups if len({label.text for label in group}) == 1],
        conflicts=[group for group in groups if len({label.text for label in group}) > 1],
        input_size=brought_to(kind_of(folder, readable, config.max_bytes), config, lengths.longest),
    )


def look_at(job: tuple[Path, list[str], int]) -> list[File]:
    """What some files of a folder are."""
    folder, names, max_bytes = job
    found = []
    for name in names:
        try:
            data = read_bytes(folder / name, max_bytes)
            image = open_image(data, max_bytes)
            found.append(File(sha256(data), image.size, image.mode))
        except ImageError as error:
            found.append(File(reason=str(error)))
    return found


def brought_to(seen: ImageKind, config: PrepareConfig, longest: int) -> str:
    """What the images will be for a network, in words."""
    size = config.input_size(longest, seen)
    why = "colour tells where grey would not" if seen.channels == 3 else "grey keeps the contrast"
    same = (seen.width, seen.height) == (size.width, size.height)
    return (
        f"{seen.width}x{seen.height} "
        + (f"as they are, {size.colours}" if same else f"brought to {size}")
        + f" ({why})"
    )


def look_alikes(characters: Iterable[str]) -> list[str]:
    """Those of the characters that a score counts as one when look-alikes do."""
    groups = ("".join(character for character in characters if character in group) for group in LOOKALIKES)
    return [group for group in groups if len(group) > 1]


def in_conflict(group: Sequence[Label]) -> str:
    """Byte-identical images with different labels, in words."""
    return " = ".join(f"{label.file} ({label.text})" for label in group)


def listed(words: Sequence[str]) -> str:
    """Some of the words, and how many more there are."""
    more = f"; {len(words) - NAMED:,} more" if len(words) > NAMED else ""
    return "; ".join(words[:NAMED]) + more


def advice_on_images(found: Inspection) -> list[str]:
    """What to mind before training, a sentence each."""
    advice = []
    rare = [character for character, count in found.characters.items() if count < ENOUGH_OF_A_CHARACTER]
    if rare:
        advice.append(
            f"fewer than {ENOUGH_OF_A_CHARACTER} texts hold each of {''.join(rare)}: "
            "these will be read badly unless there are more"
        )
    both = [c for c in found.characters if c.lower() != c and c.lower() in found.characters]
    if both:
        advice.append(
            f"{''.join(both)} stand in both cases: prepare folds them to one; --case-sensitive keeps both apart"
        )
    if found.conflicts:
        advice.append(
            f"the same image stands there with different labels, {counted(len(found.conflicts), 'time')}: "
            "prepare leaves it out"
        )
    proportions = [width / height for width, height in found.sizes]
    if max(proportions) > STRETCHED * min(proportions):
        advice.append("the images are of different proportions: all are brought to one size, and so stretched")
    if len(found.labels) < 300:
        advice.append(
            f"few images ({len(found.labels):,}): some hundred more, or train --init with a model of generated ones"
        )
    return advice or ["nothing speaks against training"]


def sample(labels: Sequence[Label]) -> list[Label]:
    """The labels in an order of chance, always the same, so that the first are a fair sample."""
    return random.Random(0).sample(list(labels), len(labels))


@dataclass(frozen=True)
class Wrong:
    """An image that a model reads otherwise than its label."""

    file: str
    label: str
    reading: Reading


def read_wrong(
    recognizer: Recognizer, found: Inspection, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Wrong]:
    """The images that are read otherwise than labelled, the surest first: these are most often wrong labels."""
    normalize = recognizer.config.charset.normalize
    wrong = []
    results = recognizer.read_all(found.folder / label.file for label in found.labels)
    for number, (label, result) in enumerate(zip(found.labels, results, strict=True), 1):
        if isinstance(result, Reading) and result.text != normalize(label.text):
            wrong.append(Wrong(label.file, label.text, result))
        progress(number, len(found.labels))
    return sorted(wrong, key=lambda each: (-each.reading.confidence, each.file))
