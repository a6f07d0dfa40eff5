"""The options of adapt."""

from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.shared import ADAPTED, force_option, quiet_option

FEWEST_IMAGES = 50


@dataclass(frozen=True, eq=False, repr=False)
class AdaptOptions(Options):
    """The options of adapt, beside those of reading.

    second: None takes rapidocr if it is installed, else none (two_readers.py).
    """

    labels: Path | None = option(None, "CSV with filename,text of some images.", path="file")
    second: str | None = option(
        None,
        "Another reader to learn from: rapidocr, none, or a CSV with filename,text,confidence.",
        metavar="READER",
        shown="rapidocr if it is installed",
    )
    init: Path | None = option(
        None, "Start from this trained model.", shown="the one in the package", path="model"
    )
    out: Path = option(ADAPTED, "The folder to write.", path="folder")
    budget: int = option(10, "Minutes it may take in all.", metavar="MINUTES", at_least=1)
    force: bool = force_option()
    quiet: bool = quiet_option()
