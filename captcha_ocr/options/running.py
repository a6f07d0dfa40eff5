"""Options that several commands share: how they work, report and read."""

from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import EngineName, Lengths
from captcha_ocr.options.values import MAX_BYTES, MAX_THREADS, MAX_WORKERS, check_alphabet


@dataclass(frozen=True)
class WorkOptions(Options):
    """How many processes work, and whether they may replace what is there.

    workers: None takes one for each processor.
    """

    workers: int | None = option(
        None, "Processes.", shown="one per processor", at_least=1, at_most=MAX_WORKERS
    )
    force: bool = option(False, "Replace what an earlier run with other options wrote.")


@dataclass(frozen=True)
class ReportOptions(Options):
    """What a command prints."""

    quiet: bool = option(False, "Print no progress and no next command.")
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
    charset: str | None = option(
        None,
        "Read only these characters, or those of this named alphabet.",
        parse=check_alphabet,
    )
    lengths: Lengths | None = option(
        None, "Read only texts with this many characters.", flag="--length", metavar="N|N-M"
    )
    fold_case: bool = option(False, "Read both cases of a letter as one.")
    min_confidence: float = option(
        0.0, "Print no text below this confidence.", at_least=0, at_most=1
    )
    engine: EngineName = option("auto", "auto: onnx if model.onnx exists.")
    max_bytes: int = option(MAX_BYTES, "Refuse larger image files.", at_least=1, at_most=10**9)
    device: str = option("auto", "Where to compute.", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]")
    threads: int | None = option(
        None,
        "Threads to compute with.",
        shown="one per processor",
        at_least=1,
        at_most=MAX_THREADS,
    )
