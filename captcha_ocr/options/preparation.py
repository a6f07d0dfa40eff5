"""The options of prepare."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from captcha_ocr.errors import check, is_int
from captcha_ocr.input_size import GENERATED, ImageKind, InputSize
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import (
    WorkOptions,
    charset_option,
    ink_option,
    lengths_option,
    max_bytes_option,
    parse_numbers,
    seed_option,
)
from captcha_ocr.options.training import FEWEST, preset_named

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
MAX_FOLDS = 100
RARE = 100  # a length that fewer than 1 in 100 labels have may be a typing error


@dataclass(frozen=True, eq=False, repr=False)
class PrepareOptions(WorkOptions):
    """Where labels are, if not in the folder of the images, and how a preparation works."""

    labels: Path | None = option(
        None, "CSV with filename,text[,split].", shown="labels.csv in the folder", path="file"
    )
    corrections: Path | None = option(
        None, "CSV with filename,text whose rows replace other labels.", path="file"
    )


@dataclass(frozen=True, eq=False, repr=False)
class PrepareConfig(Options):
    """The options of prepare.

    size: width and height of the network's input in pixels; None takes the preset's or the images'
    own, as `channels`. split: training, validation and test images in percent; splits in a labels
    file have priority. fold: (fold, folds), counted from 1, makes the test set one of `folds` parts
    and ignores other splits.
    """

    preset: str | None = option(
        None,
        "Its input size is used.",
        shown=f"finetune below {FEWEST:,} labels, else default",
    )
    lengths: Lengths | None = lengths_option(
        "Characters per text.", shown=f"the lengths of 1 in {RARE} labels or more"
    )
    size: tuple[int, int] | None = option(None, "Size of the images in pixels.")
    channels: Literal[1, 3] | None = option(None, "Grey or colour.", shown="colour if it is needed")
    ink: str | None = ink_option()
    charset: str | None = charset_option(shown="those in the labels")
    case_sensitive: bool = option(
        False, "Distinguish upper and lower case if the labels have both."
    )
    label_pattern: str | None = option(
        None, "Regular expression that finds the text in a file name.", metavar="REGEX"
    )
    split: tuple[int, ...] = option(
        (80, 10, 10),
        "Percentages for training/validation/test.",
        metavar="N/N/N",
        shown="80/10/10",
        parse=parse_numbers("/"),
    )
    fold: tuple[int, int] | None = option(None)
    readings: bool = option(
        False,
        "Take a model's readings, in a table with a column confidence, for labels.",
        is_newer=True,
    )
    max_bytes: int = max_bytes_option(is_newer=True)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        is_split = len(self.split) == 3 and sum(self.split) == 100 and min(self.split) > 0
        example = "three percentages above 0 with the sum 100, such as 80/10/10"
        check(is_split, f"`split` must be {example}")
        if self.fold is not None:
            fold, folds = self.fold
            check(is_int(folds, 2, MAX_FOLDS), f"`folds` must be 2 to {MAX_FOLDS}, not {folds}")
            check(is_int(fold, 1, folds), f"there is no fold {fold} of {folds}")
            check(self.split == PrepareConfig.split, "`folds` and `split` exclude each other")
        self.input_size(GENERATED)

    def input_size(self, derived: ImageKind) -> InputSize:
        """Return the size of the network's input: the options first, then the preset's size, then
        `derived`.
        """
        size = preset_named(self.preset or "default").size or derived
        if isinstance(size, InputSize):
            size = size.fixed(derived.width, derived.height)
        width, height = self.size or (size.width, size.height)
        return InputSize(height, width, self.channels or size.channels, ink=self.ink)
