"""Options that several commands share: how they work, report and read.

A function declares what several classes have, so that it is the same option in all of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import EngineName, Lengths
from captcha_ocr.options.values import (
    MAX_BYTES,
    MAX_SEED,
    MAX_THREADS,
    MAX_WORKERS,
    check_alphabet,
)

_CHARACTERS = f"Characters, or one of {', '.join(NAMED_ALPHABETS)}."  # the help of most alphabets


def charset_option(help_text: str = _CHARACTERS, **declared: Any) -> Any:
    """Declare an alphabet: its characters, or its name."""
    return option(None, help_text, parse=check_alphabet, **declared)


def lengths_option(help_text: str, **declared: Any) -> Any:
    """Declare the number of characters of a text, or its limits."""
    return option(None, help_text, flag="--length", metavar="N|N-M", **declared)


def fonts_option() -> Any:
    """Declare where fonts are."""
    return option((), "A font file, or a folder of fonts; may be repeated.", path="file or folder")


def seed_option(at_most: int = MAX_SEED) -> Any:
    """Declare the seed of all random numbers."""
    return option(0, "Random seed.", at_least=0, at_most=at_most)


def max_bytes_option(**declared: Any) -> Any:
    """Declare the limit on image files, in bytes."""
    return option(MAX_BYTES, "Refuse larger image files.", at_least=1, at_most=10**9, **declared)


def device_option() -> Any:
    """Declare where torch computes."""
    return option("auto", "Where to compute.", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]")


def engine_option() -> Any:
    """Declare which library computes."""
    return option("auto", "auto: onnx if model.onnx exists.")


def threads_option() -> Any:
    """Declare with how many threads a command computes."""
    limits = {"at_least": 1, "at_most": MAX_THREADS}
    return option(None, "Threads to compute with.", shown="one per processor", **limits)


def workers_option(help_text: str = "Processes.") -> Any:
    """Declare in how many processes a command works."""
    limits = {"at_least": 1, "at_most": MAX_WORKERS}
    return option(None, help_text, shown="one per processor", **limits)


def force_option() -> Any:
    """Declare whether to replace earlier work."""
    return option(False, "Replace what an earlier run with other options wrote.")


def quiet_option() -> Any:
    """Declare whether a command prints its result alone."""
    return option(False, "Print no progress and no next command.")


@dataclass(frozen=True)
class WorkOptions(Options):
    """How many processes work, and whether they may replace what is there.

    workers: None takes one for each processor.
    """

    workers: int | None = workers_option()
    force: bool = force_option()


@dataclass(frozen=True)
class ReportOptions(Options):
    """What a command prints."""

    quiet: bool = quiet_option()
    as_json: bool = option(False, "Print the result as JSON.", flag="--json")


@dataclass(frozen=True)
class ReadingOptions(Options):
    """Which model reads, what it may read, and where it computes.

    model_folder: None takes that of CAPTCHA_OCR_MODEL, else of runs/default, else the package's
    own. charset, lengths: None admits all that the model knows. threads: None takes one for each
    processor.
    """

    model_folder: Path | None = option(
        None,
        "A model or run folder, or pretrained.",
        flag="--model",
        shown="CAPTCHA_OCR_MODEL, else runs/default, else pretrained",
        path="model",
    )
    charset: str | None = charset_option(
        "Read only these characters, or those of this named alphabet."
    )
    lengths: Lengths | None = lengths_option("Read only texts with this many characters.")
    fold_case: bool = option(False, "Read both cases of a letter as one.")
    min_confidence: float = option(
        0.0, "Print no text below this confidence.", at_least=0, at_most=1
    )
    engine: EngineName = engine_option()
    max_bytes: int = max_bytes_option()
    device: str = device_option()
    threads: int | None = threads_option()
