"""What drawing, preparing, a network and a training are made of, and the presets.

Every default of the project lives here, once; the command line shows these. All of them are frozen
and check themselves.
"""

import math
import re
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from captcha_ocr.charset import Charset
from captcha_ocr.errors import UsageError, check, is_int

Stem = Literal["3x3", "strided"]
Pool = Literal["global", "columns", "narrow"]
Optimizer = Literal["adam", "adamw"]
Schedule = Literal["onecycle", "cosine", "plateau", "constant"]
Loss = Literal["bce", "ce"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
EngineName = Literal["auto", "torch", "onnx"]
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


MIN_SIDE, MAX_SIDE = 8, 1024  # of a network's input; images themselves may be larger, see images.py
PIXELS_PER_CHARACTER = 40 * 60  # of a network's input, as generated images have them
CLOSE_ENOUGH = 0.85  # no image is resized for less
LEAST_WIDTH = 16  # pixels a character of a network's input, two columns of its last feature map
MAX_AREA = 4_000_000  # pixels of an image, drawn or read
MOST_FEATURES = 2**26  # numbers that a network makes of one image at a time: a quarter of a gigabyte
MAX_BYTES = 2_000_000  # of an image file that is read; more than one within that area needs
MAX_LENGTH = 64
MAX_FOLDS = 100
RARE = 100  # a length that fewer than one in so many labels have may be a slip
MAX_SEED = 2**32 - 1


def check_seed(seed: object) -> None:
    """Refuse a seed that not every generator of chance takes."""
    check(is_int(seed, 0, MAX_SEED), f"--seed must be 0 to {MAX_SEED}, not {seed}")


def check_max_bytes(max_bytes: object) -> None:
    """Refuse a bound on image files that is none."""
    check(is_int(max_bytes, 1, 10**9), f"--max-bytes must be 1 to 1,000,000,000, not {max_bytes}")


@dataclass(frozen=True)
class Lengths:
    """How many characters the texts have: from `shortest` to `longest`."""

    shortest: int
    longest: int

    def __post_init__(self) -> None:
        fine = is_int(self.shortest, 1, MAX_LENGTH) and is_int(self.longest, self.shortest, MAX_LENGTH)
        check(fine, f"a text has 1 to {MAX_LENGTH} characters, such as 4 or 4-6, not {self}")

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """The inverse of `str`: `4`, or `4-6`."""
        ends = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text)
        if ends is None:
            raise UsageError(f"{text[:40]!r} is no length such as 4 or 4-6")
        return cls(int(ends[1]), int(ends[2] or ends[1]))

    def __contains__(self, length: int) -> bool:
        return self.shortest <= length <= self.longest

    def __str__(self) -> str:
        return f"{self.shortest}-{self.longest}" if self.vary else str(self.longest)

    @property
    def vary(self) -> bool:
        """Whether there is more than one."""
        return self.shortest != self.longest


@dataclass(frozen=True)
class InputSize:
    """What the network is fed: images of (channels, height, width)."""

    height: int
    width: int
    channels: int

    def __post_init__(self) -> None:
        for side in (self.height, self.width):
            check(
                is_int(side, MIN_SIDE, MAX_SIDE), f"an input side must be {MIN_SIDE} to {MAX_SIDE} pixels, not {side}"
            )
        check(self.channels in (1, 3), f"the number of channels must be 1 or 3, not {self.channels}")

    def __str__(self) -> str:
        return f"{self.width}x{self.height}, {self.colours}"

    @property
    def colours(self) -> str:
        """The channels, in words."""
        return "grey" if self.channels == 1 else "colour"


class ImageKind(NamedTuple):
    """What the images of a set are like: the usual sides, and the channels that tell something."""

    height: int
    width: int
    channels: int


GENERATED = ImageKind(height=60, width=160, channels=1)


@dataclass(frozen=True)
class NetworkConfig:
    """The free choices in the ResNet-18.

    stem: one convolution of `3x3` at stride 1, or `strided`, one of 5x5 and one of 3x3, both at stride 2.
    pool: `global` averages all positions and has a linear layer for every place in the text; `columns` keeps columns of
    8 pixels apart, each has the same linear layer, and CTC makes places of them; `narrow` the same with columns of 4.
    normalise: whether each channel of each image is brought to mean 0 and deviation 1 first.
    """

    width: int = 32
    stem: Stem = "strided"
    pool: Pool = "columns"
    normalise: bool = True

    def __post_init__(self) -> None:
        check(is_int(self.width, 1, 512), f"the network's width must be 1 to 512, not {self.width}")
        check(self.stem in get_args(Stem), f"unknown stem {self.stem!r}")
        check(self.pool in get_args(Pool), f"unknown pool {self.pool!r}")
        check(isinstance(self.normalise, bool), "normalise must be true or false")


@dataclass(frozen=True)
class ModelConfig:
    """All that is needed to rebuild a network and its preprocessing."""

    charset: Charset
    lengths: Lengths
    size: InputSize
    network: NetworkConfig

    def __post_init__(self) -> None:
        check(self.features <= MOST_FEATURES, f"a network with {self.features:,} numbers an image is too large")

    @property
    def features(self) -> int:
        """How many numbers the largest of the network's feature maps has, or its output, for one image."""
        shrunk = 1 if self.network.stem == "3x3" else 16
        first = self.network.width * self.size.height * self.size.width // shrunk
        return max(first, self.lengths.longest * self.classes)

    @property
    def classes(self) -> int:
        """What a place of the text can hold: characters and, last, where lengths vary and in columns, nothing."""
        return len(self.charset) + (self.lengths.vary or self.network.pool != "global")

    @property
    def class_names(self) -> list[str]:
        """The character of every class; nothing is empty."""
        return [*self.charset.characters, ""][: self.classes]

    def to_dict(self) -> dict[str, Any]:
        """The configuration as JSON types."""
        return {**asdict(self), "charset": self.charset.to_dict()}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "ModelConfig":
        """The inverse of `to_dict`; UsageError for anything that is not such a document."""
        try:
            return cls(
                charset=Charset.from_dict(document["charset"]),
                lengths=Lengths(**document["lengths"]),
                size=InputSize(**document["size"]),
                network=NetworkConfig(**document["network"]),
            )
        except (KeyError, TypeError) as error:
            raise UsageError(f"the model's configuration is malformed ({error})") from None


@dataclass(frozen=True)
class PrepareConfig:
    """How images become shards. `split` is train/val/test in percent; a labels file's own wins.

    fold: which of how many, counted from 1, where the test set is to be one of so many parts; no given split counts.
    width, height and channels None: as the images have it (`input_size`). lengths None: those that the labels have.
    max_bytes: larger image files are left out.
    """

    preset: str = "default"
    lengths: Lengths | None = None
    width: int | None = None
    height: int | None = None
    channels: int | None = None
    charset: str | None = None
    case_sensitive: bool = False
    label_pattern: str | None = None
    split: tuple[int, ...] = (80, 10, 10)
    fold: tuple[int, int] | None = None
    max_bytes: int = MAX_BYTES
    seed: int = 0

    def __post_init__(self) -> None:
        check_max_bytes(self.max_bytes)
        fine = len(self.split) == 3 and sum(self.split) == 100 and min(self.split) > 0
        check(fine, "--split must be three percentages above 0 that add up to 100, such as 80/10/10")
        if self.fold is not None:
            check(is_int(self.fold[1], 2, MAX_FOLDS), f"--folds must be 2 to {MAX_FOLDS}, not {self.fold[1]}")
            check(is_int(self.fold[0], 1, self.fold[1]), f"there is no fold {self.fold[0]} of {self.fold[1]}")
            check(
                self.split == PrepareConfig.split, "--folds and --split exclude each other: folds split by themselves"
            )
        check((self.width is None) == (self.height is None), "width and height are given together")
        check_seed(self.seed)
        self.input_size(4, GENERATED)

    def input_size(self, longest: int, images: ImageKind) -> InputSize:
        """The size of the network's input for texts of at most `longest` characters in images of about that size."""
        size = preset_named(self.preset).size or affordable(images, longest)
        return InputSize(
            size.height if self.height is None else self.height,
            size.width if self.width is None else self.width,
            size.channels if self.channels is None else self.channels,
        )


def affordable(images: ImageKind, longest: int) -> InputSize:
    """A size of the images' own proportions with about as many pixels a character as the generator's images have.

    Small images are enlarged: the network would otherwise have fewer columns than the text has characters.
    """
    budget = PIXELS_PER_CHARACTER * max(4, longest)
    scale = math.sqrt(budget / (images.width * images.height))
    if CLOSE_ENOUGH < scale < 1 / CLOSE_ENOUGH:
        scale = 1.0
    width = max(round(images.width * scale), LEAST_WIDTH * longest)
    height, width = (max(MIN_SIDE, min(MAX_SIDE, side)) for side in (round(images.height * scale), width))
    return InputSize(height, width, images.channels)


@dataclass(frozen=True)
class TrainConfig:
    """How a network is trained. `epochs` None derives the number from the preset's `images_seen`.

    smoothing: the share of every target that is spread over all characters (losses.py).
    focus: the share of the images shown that is drawn by how hard their characters are (difficulty.py).
    augment: whether images are changed a little each time they are shown (augment.py).
    images: how many of those to train on are, the first; None means all.
    frozen: the share of the steps in which only what reads the features learns; of the first epoch's where their number
    is open.
    """

    preset: str = "default"
    epochs: int | None = None
    patience: int = 20
    batch_size: int = 100
    learning_rate: float = 4e-3
    schedule: Schedule = "onecycle"
    optimizer: Optimizer = "adamw"
    weight_decay: float = 0.1
    loss: Loss = "bce"
    smoothing: float = 0.1
    focus: float = 0.75
    augment: bool = False
    images: int | None = None
    frozen: float = 0.0
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check(0 <= self.smoothing < 1, f"smoothing must be 0 to 1, not {self.smoothing}")
        check(0 <= self.frozen <= 1, f"frozen must be 0 to 1, not {self.frozen}")
        check(0 <= self.focus <= 1, f"focus must be 0 to 1, not {self.focus}")
        check(isinstance(self.augment, bool), "augment must be true or false")
        check(self.images is None or is_int(self.images, 2, 10**12), "--images must be 2 or more")
        check(self.epochs is None or is_int(self.epochs, 1, 10**6), "--epochs must be 1 to 1,000,000")
        check(is_int(self.patience, 1, 10**6), "--patience must be 1 to 1,000,000")
        check(is_int(self.batch_size, 2, 10**6), "--batch-size must be 2 to 1,000,000")
        check(0 < self.learning_rate < 10, "--lr must lie between 0 and 10")
        check(self.schedule in get_args(Schedule), f"unknown schedule {self.schedule!r}")
        check(self.optimizer in get_args(Optimizer), f"unknown optimizer {self.optimizer!r}")
        check(self.loss in get_args(Loss), f"unknown loss {self.loss!r}")
        check(self.precision in get_args(Precision), f"unknown precision {self.precision!r}")
        check_seed(self.seed)

    def to_dict(self) -> dict[str, Any]:
        """The configuration as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "TrainConfig":
        """The inverse of `to_dict`; UsageError for anything that is not such a document."""
        try:
            return cls(**document)
        except TypeError as error:
            raise UsageError(f"the training's configuration is malformed ({error})") from None

    def from_a_model(self) -> "TrainConfig":
        """The same for a trained model's weights: at half the rate, the convolutions at first left alone."""
        return replace(self, learning_rate=self.learning_rate / 2, frozen=0.1)

    def with_options(self, **options: Any) -> "TrainConfig":
        """A copy in which every option that is not None replaces the preset's value."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})


@dataclass(frozen=True)
class Preset:
    """A named choice of input size, network and training.

    meant_for: how many images to train on, in words.
    images_seen: the number of training images, repeats counted, after which a decaying rate ends, or `most_epochs` if
    that is sooner; None where early stopping alone ends a run.
    size: of the network's input, where that is part of the recipe; else it follows from the images.
    """

    size: InputSize | None = None
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    images_seen: int | None = None
    most_epochs: int = 100
    meant_for: str = "any number of images"


FEW = 20_000  # images to train on, below which they are augmented
PRESETS = {
    # The best trade measured for 2 CPU cores: docs/lab-notebook.md, 2026-11-21.
    "default": Preset(images_seen=280_000, meant_for=f"{FEW:,} images and more"),
    # The same for half an hour of training: as many images as that reads, each only a few times.
    "accuracy": Preset(training=TrainConfig(preset="accuracy"), images_seen=1_050_000),
    # For some hundred to some thousand images, shown many times: changed a little, no two are alike. Validation
    # goes up and down for half the run, and of ten images all are soon read by luck: patience would end what is not yet
    # learnt.
    "few": Preset(
        network=NetworkConfig(pool="narrow"),
        training=TrainConfig(preset="few", patience=120, augment=True, weight_decay=1.0),
        images_seen=150_000,
        most_epochs=120,
        meant_for=f"fewer than {FEW:,} images",
    ),
    # The recipe that the project started from.
    "seed": Preset(
        size=InputSize(height=24, width=56, channels=3),
        network=NetworkConfig(width=64, stem="3x3", pool="global", normalise=False),
        training=TrainConfig(
            preset="seed",
            learning_rate=1e-3,
            schedule="constant",
            optimizer="adam",
            weight_decay=0.0,
            smoothing=0.0,
            focus=0.0,
        ),
    ),
}


def preset_for(training_images: int) -> str:
    """The preset that a number of images asks for, where none is named."""
    return "few" if training_images < FEW else "default"


def preset_named(name: str) -> Preset:
    """The preset `name`; UsageError names those there are."""
    check(name in PRESETS, f"unknown preset {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def derive_epochs(config: TrainConfig, training_images: int) -> int | None:
    """The number of epochs to run at most; None means until early stopping ends the run."""
    training_images = config.images or training_images
    if config.epochs is not None:
        return config.epochs
    preset = PRESETS[config.preset]
    if preset.images_seen is None:
        check(not decays(config), f"--schedule {config.schedule} needs --epochs with this preset")
        return None
    return max(1, min(preset.most_epochs, round(preset.images_seen / training_images)))


def decays(config: TrainConfig) -> bool:
    """Whether the learning rate comes to rest at the last epoch, which therefore has to be known."""
    return config.schedule in ("onecycle", "cosine")


def differences(old: Any, new: Any) -> list[str]:
    """The fields in which two dataclasses of one type differ, each as `name: old -> new`, fields of fields too."""
    words = []
    for item in fields(new):
        before, after = getattr(old, item.name), getattr(new, item.name)
        if is_dataclass(before):
            words += differences(before, after)
        elif before != after:
            old_words, new_words = ("unset" if value is None else str(value) for value in (before, after))
            words.append(f"{item.name}: {old_words} -> {new_words}")
    return words
