"""What a network is built from: its alphabet, lengths, input size and layers."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from captcha_ocr.charset import Charset
from captcha_ocr.errors import UsageError, check, is_int
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.declaration import Options, option

Stem = Literal["3x3", "strided"]
Pool = Literal["global", "columns", "slim", "narrow"]
EngineName = Literal["auto", "torch", "onnx"]
MAX_FEATURES = 2**26  # numbers in a feature map of one image: 256 MB in float32
MAX_LENGTH = 64  # characters of a text
MAX_EXACT = 256  # classes: CTC of more sums over likely ones, and their features are normalised


@dataclass(frozen=True)
class Lengths:
    """The numbers of characters that a text may have: from `shortest` to `longest`."""

    shortest: int
    longest: int

    def __post_init__(self) -> None:
        check(
            is_int(self.shortest, 1, MAX_LENGTH)
            and is_int(self.longest, self.shortest, MAX_LENGTH),
            f"a text has 1 to {MAX_LENGTH} characters, such as 4 or 4-6, not {self}",
        )

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """Invert `str`: parse `4` or `4-6`."""
        ends = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text)
        if ends is None:
            raise UsageError(f"{text[:40]!r} is not a length such as 4 or 4-6")
        return cls(int(ends[1]), int(ends[2] or ends[1]))

    @classmethod
    def spanning(cls, parts: Sequence["Lengths"]) -> "Lengths":
        """Return the lengths from the shortest to the longest of some."""
        return cls(min(part.shortest for part in parts), max(part.longest for part in parts))

    def __contains__(self, length: int) -> bool:
        return self.shortest <= length <= self.longest

    def __str__(self) -> str:
        return f"{self.shortest}-{self.longest}" if self.vary else str(self.longest)

    @property
    def vary(self) -> bool:
        """Whether texts may have different lengths."""
        return self.shortest != self.longest


@dataclass(frozen=True, eq=False, repr=False)
class NetworkConfig(Options):
    """The options of the ResNet-18.

    stem: `3x3` is one convolution with stride 1; `strided` is a 5x5 and a 3x3 convolution, both
    with stride 2. pool: `global` averages the feature map and has a linear layer for every position
    of the text; `columns` keeps one column for every 8 pixels, with one linear layer for all, and
    CTC turns columns into positions; `slim` does the same with fewer channels and rows; `narrow`
    has a column for every 4 pixels. normalise: whether each channel of each image gets mean 0 and
    standard deviation 1 first. context: how many transformer blocks mix the columns before the
    linear layer; none with pool global. feature_norm: whether what the columns have in common is
    taken off their features, as it is always with thousands of characters.
    """

    width: int = option(32, at_least=1, at_most=512)
    stem: Stem = option("strided")
    pool: Pool = option("columns")
    normalise: bool = option(True)
    context: int = option(0, at_least=0, at_most=8, is_newer=True)
    feature_norm: bool = option(False, is_newer=True)


@dataclass(frozen=True)
class ModelConfig:
    """Everything that is needed to build a network and to preprocess its images."""

    charset: Charset
    lengths: Lengths
    size: InputSize
    network: NetworkConfig

    def __post_init__(self) -> None:
        check(
            self.size.step is None or self.network.pool != "global",
            "pool global takes images of one width, but the size has a step",
        )
        check(
            self.features <= MAX_FEATURES,
            f"the network is too large: {self.features:,} numbers for one image",
        )

    @property
    def features(self) -> int:
        """The number of values in the largest feature map, or in the logits of positions or
        columns, of one image.
        """
        shrunk = 1 if self.network.stem == "3x3" else 4
        first = self.network.width * self.size.height * self.size.width // shrunk**2
        columns = 0 if self.network.pool == "global" else self.size.width // shrunk
        return max(first, columns * self.classes, self.lengths.longest * self.classes)

    @property
    def classes(self) -> int:
        """The number of classes of a position; the last is "no character" if lengths vary or
        columns are read.
        """
        return len(self.charset) + (self.lengths.vary or self.network.pool != "global")

    @property
    def normalises_features(self) -> bool:
        """Whether features of columns are normalised before the head."""
        many = self.classes > MAX_EXACT and self.network.pool != "global"
        return many or self.network.feature_norm

    @property
    def reads_columns(self) -> bool:
        """Whether the network gives logits of columns for images of any width, which decoding turns
        into positions.

        Other networks do that themselves, so that other programs can use them.
        """
        return self.size.step is not None

    @property
    def class_names(self) -> list[str]:
        """The character of every class; `""` for "no character"."""
        return [*self.charset.symbols, ""][: self.classes]

    def to_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_dict() for name in ("charset", "size", "network")}
        return {**asdict(self), **parts}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "ModelConfig":
        """Invert `to_dict`; UsageError for any other document."""
        try:
            return cls(
                charset=Charset.from_dict(document["charset"]),
                lengths=Lengths(**document["lengths"]),
                size=InputSize(**document["size"]),
                network=NetworkConfig(**document["network"]),
            )
        except (KeyError, TypeError) as error:
            raise UsageError(f"the configuration of the model is malformed ({error})") from None
