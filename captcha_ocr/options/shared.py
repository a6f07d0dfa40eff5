"""What several classes of options have: limits, values with a notation, and the same options."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from captcha_ocr.charset import NAMED_ALPHABETS, Charset, resolve_alphabet
from captcha_ocr.errors import UsageError, check
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import EngineName, Lengths

MAX_AREA = 4_000_000  # pixels of an image, generated or read
MAX_BYTES = 2_000_000  # of an image file that is read, unless --max-bytes says otherwise
OLDEST_OPSET, NEWEST_OPSET = 18, 20  # of ONNX: onnxruntime 1.14, and 1.17
MAX_THREADS = 1024
_MAX_WORKERS = 256  # processes
MAX_SEED = 2**32 - 1  # that every random generator we use accepts
IMAGES, SHARDS, RUN = Path("data/images"), Path("data/shards"), Path("runs/default")  # by default
ADAPTED, LABELLED = Path("runs/adapted"), Path("runs/labelled")  # of adapt and label


def parse_size(text: str) -> tuple[int, int]:
    """Parse WIDTHxHEIGHT as (width, height); UsageError for any other text."""
    sides = re.fullmatch(r"0*([1-9][0-9]{0,8})x0*([1-9][0-9]{0,8})", text)
    if sides is None:
        raise UsageError(f"{text[:40]!r} is not WIDTHxHEIGHT, such as 160x60")
    return int(sides[1]), int(sides[2])


def parse_numbers(separator: str) -> Callable[[str], tuple[int, ...]]:
    """Return a function that parses whole numbers; UsageError for other texts."""

    def parse(text: str) -> tuple[int, ...]:
        parts = text.split(separator) if text else []
        are_numbers = all(re.fullmatch(r" *[0-9]{1,9} *", part) for part in parts)
        check(are_numbers, f"{text[:40]!r} is not whole numbers separated by {separator!r}")
        return tuple(map(int, parts))

    return parse


def _check_alphabet(name_or_characters: str) -> str:
    Charset(resolve_alphabet(name_or_characters))
    return name_or_characters


charset_option = partial(
    option,
    default=None,
    help_text=f"Characters, also ranges such as A-Z0-9, or one of {', '.join(NAMED_ALPHABETS)}.",
    parse=_check_alphabet,
)
lengths_option = partial(option, None, flag="--length", metavar="N|N-M")
fonts_option = partial(
    option, (), "A font file, or a folder of fonts; may be repeated.", path="file or folder"
)
seed_option = partial(option, 0, "Random seed.", at_least=0, at_most=MAX_SEED)
ink_option = partial(
    option,
    default=None,
    help_text="Only characters of this colour count: a name, such as red, or #RRGGBB.",
    metavar="COLOUR",
    is_newer=True,
)
max_bytes_option = partial(
    option, MAX_BYTES, "Refuse larger image files.", at_least=1, at_most=10**9
)
device_option = partial(
    option, "auto", "Where to compute.", metavar="auto|cpu|cuda[:n]|mps|xpu[:n]"
)
engine_option = partial(option, "auto", "auto: onnx if model.onnx exists.")
threads_option = partial(
    option,
    None,
    "Threads to compute with.",
    shown="one per processor",
    at_least=1,
    at_most=MAX_THREADS,
)
workers_option = partial(
    option,
    default=None,
    help_text="Processes.",
    shown="one per processor",
    at_least=1,
    at_most=_MAX_WORKERS,
)
force_option = partial(option, False, "Replace what an earlier run with other options wrote.")
quiet_option = partial(option, False, "Print no progress and no next command.")


@dataclass(frozen=True, eq=False, repr=False)
class WorkOptions(Options):
    """How many processes work, and whether they may replace what is there.

    workers: None takes one for each processor.
    """

    workers: int | None = workers_option()
    force: bool = force_option()


@dataclass(frozen=True, eq=False, repr=False)
class ReportOptions(Options):
    """What a command prints."""

    quiet: bool = quiet_option()
    as_json: bool = option(False, "Print the result as JSON.", flag="--json")


@dataclass(frozen=True, eq=False, repr=False)
class ReadingOptions(Options):
    """Which model reads, what it may read, and where it computes.

    model_folder: None takes that of CAPTCHA_OCR_MODEL, else the newest of runs/default,
    runs/adapted and runs/labelled, else the package's own. charset, lengths: None admits all that
    the model knows. threads: None takes one for each processor.
    """

    model_folder: Path | None = option(
        None,
        "A model or run folder, or pretrained or chinese.",
        flag="--model",
        shown="CAPTCHA_OCR_MODEL, else the newest of runs/default, runs/adapted and "
        "runs/labelled, else pretrained",
        path="model",
    )
    charset: str | None = charset_option(
        help_text="Read only these characters, such as A-Z0-9, or those of this named alphabet."
    )
    lengths: Lengths | None = lengths_option("Read only texts with this many characters.")
    ink: str | None = ink_option()
    fold_case: bool = option(False, "Read both cases of a letter as one.")
    min_confidence: float = option(
        0.0, "Print no text below this confidence.", at_least=0, at_most=1
    )
    solve_sums: bool = option(False, "Print the result of a sum, too: 11 of 3+8=?.")
    engine: EngineName = engine_option()
    max_bytes: int = max_bytes_option()
    device: str = device_option()
    threads: int | None = threads_option()
