"""The options of prepare, of a network and of its training, with their defaults, and the presets.

Every class is frozen and checks its values. The command line shows the defaults of these classes.
"""

import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from captcha_ocr.charset import NAMED_ALPHABETS, Charset
from captcha_ocr.errors import UsageError, check, is_int
from captcha_ocr.input_size import GENERATED, ImageKind, InputSize
from captcha_ocr.options.declaration import Options, option

Stem = Literal["3x3", "strided"]
Pool = Literal["global", "columns", "slim", "narrow"]
Optimizer = Literal["adam", "adamw", "muon"]
Schedule = Literal["onecycle", "cosine", "plateau", "constant"]
Loss = Literal["bce", "ce", "ctc"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
EngineName = Literal["auto", "torch", "onnx"]
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

MAX_AREA = 4_000_000  # pixels of an image, generated or read
MAX_FEATURES = 2**26  # numbers in a feature map of one image: 256 MB in float32
MAX_THREADS = 1024
MAX_BYTES = 2_000_000  # of an image file that is read, unless --max-bytes says otherwise
MAX_LENGTH = 64  # characters of a text
OFTEN = 10  # times as often as others come the characters of --often
MAX_FOLDS = 100
RARE = 100  # a length that fewer than 1 in 100 labels have may be a typing error
FEWEST = 1000  # fewer images than that train from the model in the package
FEW = 20_000  # fewer training images than that are augmented
DRAWN_IMAGES = 20_000  # drawings of an epoch
MAX_SEED = 2**32 - 1  # that every random generator we use accepts


def check_max_bytes(max_bytes: object) -> None:
    """Raise UsageError unless the limit on image files is from 1 byte to 1 GB."""
    check(
        is_int(max_bytes, 1, 10**9),
        f"`max_bytes` must be 1 to 1,000,000,000, not {max_bytes!r}",
    )


@dataclass(frozen=True)
class Lengths:
    """The numbers of characters that a text may have: from `shortest` to `longest`."""

    shortest: int
    longest: int

    def __post_init__(self) -> None:
        fine = is_int(self.shortest, 1, MAX_LENGTH) and is_int(
            self.longest, self.shortest, MAX_LENGTH
        )
        check(fine, f"a text has 1 to {MAX_LENGTH} characters, such as 4 or 4-6, not {self}")

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """Invert `str`: parse `4` or `4-6`."""
        ends = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text)
        if ends is None:
            raise UsageError(f"{text[:40]!r} is not a length such as 4 or 4-6")
        return cls(int(ends[1]), int(ends[2] or ends[1]))

    def __contains__(self, length: int) -> bool:
        return self.shortest <= length <= self.longest

    def __str__(self) -> str:
        return f"{self.shortest}-{self.longest}" if self.vary else str(self.longest)

    @property
    def vary(self) -> bool:
        """Whether texts may have different lengths."""
        return self.shortest != self.longest


@dataclass(frozen=True)
class NetworkConfig:
    """The options of the ResNet-18.

    stem: `3x3` is one convolution with stride 1; `strided` is a 5x5 and a 3x3 convolution, both with stride 2.
    pool: `global` averages the feature map and has a linear layer for every position of the text; `columns` keeps one
    column for every 8 pixels, with one linear layer for all, and CTC turns columns into positions; `slim` does the same
    with fewer channels and rows; `narrow` has a column for every 4 pixels.
    normalise: whether each channel of each image gets mean 0 and standard deviation 1 first.
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
    """Everything that is needed to build a network and to preprocess its images."""

    charset: Charset
    lengths: Lengths
    size: InputSize
    network: NetworkConfig

    def __post_init__(self) -> None:
        fits = self.size.step is None or self.network.pool != "global"
        check(fits, "pool global takes images of one width, but the size has a step")
        check(
            self.features <= MAX_FEATURES,
            f"the network is too large: {self.features:,} numbers for one image",
        )

    @property
    def features(self) -> int:
        """The number of values in the largest feature map, or in the logits of positions or columns, of one image."""
        shrunk = 1 if self.network.stem == "3x3" else 4
        first = self.network.width * self.size.height * self.size.width // shrunk**2
        columns = 0 if self.network.pool == "global" else self.size.width // shrunk
        return max(first, columns * self.classes, self.lengths.longest * self.classes)

    @property
    def classes(self) -> int:
        """The number of classes of a position; the last is "no character" if lengths vary or columns are read."""
        return len(self.charset) + (self.lengths.vary or self.network.pool != "global")

    @property
    def reads_columns(self) -> bool:
        """Whether the network gives logits of columns for images of any width, which decoding turns into positions.

        Other networks do that themselves, so that other programs can use them.
        """
        return self.size.step is not None

    @property
    def class_names(self) -> list[str]:
        """The character of every class; `""` for "no character"."""
        return [*self.charset.symbols, ""][: self.classes]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "charset": self.charset.to_dict(), "size": self.size.to_dict()}

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


@dataclass(frozen=True)
class PrepareConfig(Options):
    """The options of prepare.

    size: width and height of the network's input in pixels; None takes the preset's or the images' own, as `channels`.
    split: training, validation and test images in percent; splits in a labels file have priority.
    fold: (fold, folds), counted from 1, makes the test set one of `folds` parts and ignores other splits.
    """

    preset: str | None = option(
        None,
        "Its input size is used.",
        shown=f"finetune below {FEWEST:,} labels, else default",
    )
    lengths: Lengths | None = option(
        None,
        "Characters per text.",
        flag="--length",
        metavar="N|N-M",
        shown=f"the lengths of 1 in {RARE} labels or more",
    )
    size: tuple[int, int] | None = option(None, "Size of the images in pixels.")
    channels: Literal[1, 3] | None = option(None, "Grey or colour.", shown="colour if it is needed")
    charset: str | None = option(
        None, f"Characters, or one of {', '.join(NAMED_ALPHABETS)}.", shown="those in the labels"
    )
    case_sensitive: bool = option(
        False, "Distinguish upper and lower case if the labels have both."
    )
    label_pattern: str | None = option(
        None, "Regular expression that finds the text in a file name.", metavar="REGEX"
    )
    split: tuple[int, ...] = option((80, 10, 10), "Percentages for training/validation/test.")
    fold: tuple[int, int] | None = option(None)
    max_bytes: int = option(MAX_BYTES, "Refuse larger image files.", at_least=1, at_most=10**9)
    seed: int = option(0, "Random seed.", at_least=0, at_most=MAX_SEED)

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
        """Return the size of the network's input: the options first, then the preset's size, then `derived`."""
        size = preset_named(self.preset or "default").size or derived
        if isinstance(size, InputSize):
            size = size.fixed(derived.width, derived.height)
        width, height = self.size or (size.width, size.height)
        return InputSize(height, width, self.channels or size.channels)


@dataclass(frozen=True)
class TrainConfig(Options):
    """The options of a training. Without a help text the preset alone decides.

    epochs: None derives the number from the preset's `images_seen`.
    loss: of positions, bce or ce, or of columns, ctc.
    smoothing: the part of every target that label smoothing spreads over all characters; not with ctc.
    focus: how much more than others the characters count that the network gets wrong; not with ctc.
    case_folded: the part of the loss in which both cases of a letter are one; with ctc alone.
    augment: whether training images are changed at random (augment.py).
    frozen: the part of the steps in which only the head is trained; of the first epoch's steps if the number of epochs
    is open.
    start_images: as how many images the weights that it starts from count, in the mean with those that it has learnt.
    """

    preset: str = option(
        "default",
        "Network and training options.",
        shown=f"as prepare, few below {FEW:,} training images, else default",
    )
    epochs: int | None = option(
        None,
        "Maximum number of epochs.",
        shown="from the number of images",
        at_least=1,
        at_most=10**6,
    )
    patience: int = option(
        20, "Stop after so many epochs without a better validation.", at_least=1, at_most=10**6
    )
    batch_size: int = option(100, "Images per step.", at_least=2, at_most=10**6)
    learning_rate: float = option(4e-3, "Maximum learning rate.", flag="--lr", above=0, below=10)
    schedule: Schedule = option("onecycle", "Learning rate schedule.")
    optimizer: Optimizer = option("adamw")
    weight_decay: float = option(0.1)
    loss: Loss = option("bce", "Binary or categorical cross-entropy.")
    smoothing: float = option(0.1, at_least=0, below=1)
    focus: float = option(0.0, at_least=0, at_most=10, is_newer=True)
    case_folded: float = option(0.0, at_least=0, at_most=1, is_newer=True)
    augment: bool = option(False)
    images: int | None = option(
        None,
        "Train on the first so many images, or draw so many.",
        shown=f"all, or {DRAWN_IMAGES:,}",
        at_least=2,
        at_most=10**12,
    )
    frozen: float = option(0.0, at_least=0, at_most=1)
    start_images: int = option(0, at_least=0, at_most=10**12, is_newer=True)
    precision: Precision = option("auto", "auto: bf16 if native to the device.")
    seed: int = option(0, "Random seed.", at_least=0, at_most=MAX_SEED)

    def for_fine_tuning(self, on_drawings: bool) -> "TrainConfig":
        """Return a copy that starts from a trained model: half the learning rate, and only the head at first.

        on_drawings: of which there are enough to train all at once. A preset that always starts so stays as it is.
        """
        if self.preset in PRESETS and PRESETS[self.preset].pretrained:
            return self
        return replace(
            self, learning_rate=self.learning_rate / 2, frozen=0.0 if on_drawings else 0.1
        )

    def with_options(self, **options: Any) -> "TrainConfig":
        """Return a copy in which every option that is not None replaces the preset's value."""
        return replace(
            self, **{name: value for name, value in options.items() if value is not None}
        )


@dataclass(frozen=True)
class Preset:
    """An input size, a network and a training under one name.

    size: of the network's input; None derives it from the images.
    images_seen: the number of epochs follows from this number of training images, repeats counted, up to `max_epochs`;
    None leaves it open, and only early stopping ends a run.
    pretrained: whether it starts from the model in the package unless it is given another.
    meant_for: for how many images the preset is made, in words.
    """

    size: InputSize | None = None
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    images_seen: int | None = None
    max_epochs: int = 100
    pretrained: bool = False
    meant_for: str = "any number of images"


ANY_DESIGN = InputSize(
    height=64, width=384, channels=3, step=32
)  # the input of the model in the package
RECIPE = TrainConfig(
    optimizer="muon", learning_rate=1e-2, focus=1.0
)  # docs/lab-notebook.md, 2026-11-27
BY_COLUMN = TrainConfig(loss="ctc", smoothing=0.0, augment=True)
PRESETS = {
    # The best accuracy in a few minutes on 2 CPU cores.
    "default": Preset(
        network=NetworkConfig(pool="slim"),
        training=RECIPE,
        images_seen=280_000,
        meant_for=f"{FEW:,} images and more",
    ),
    # The same recipe for a quarter of an hour, meant for many images that are each seen a few times.
    "accuracy": Preset(
        network=NetworkConfig(pool="slim"),
        training=replace(RECIPE, preset="accuracy"),
        images_seen=600_000,
    ),
    # For some hundred to some thousand images, augmented each time. Patience is as long as the run: validation goes up
    # and down for half of it, and a network that is still learning may read all of ten validation images by luck.
    "few": Preset(
        network=NetworkConfig(pool="narrow"),
        training=replace(RECIPE, preset="few", patience=120, augment=True, weight_decay=0.2),
        images_seen=150_000,
        max_epochs=120,
        meant_for=f"fewer than {FEW:,} images",
    ),
    # Images of any design, drawn while it trains: docs/lab-notebook.md, 2026-11-26.
    "general": Preset(
        size=ANY_DESIGN,
        network=NetworkConfig(width=48),
        training=replace(
            BY_COLUMN, preset="general", batch_size=32, learning_rate=2e-3, case_folded=0.5
        ),
        images_seen=1_000_000,
        meant_for="drawings of any design",
    ),
    # For a handful of images, augmented each time: docs/lab-notebook.md, 2026-11-26.
    "finetune": Preset(
        size=ANY_DESIGN,
        training=replace(
            BY_COLUMN,
            preset="finetune",
            batch_size=16,
            learning_rate=1e-3,
            patience=100,
            start_images=20,
        ),
        images_seen=10_000,
        pretrained=True,
        meant_for=f"fewer than {FEWEST:,} images",
    ),
    # The recipe with which the project began.
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
        ),
    ),
}


def preset_for(training_images: int, size: InputSize | None = None) -> str:
    """Return the name of the preset to use if none is given, with images of such a size."""
    if (
        training_images < FEWEST
        and size is not None
        and size == ANY_DESIGN.fixed(size.width, size.height)
    ):
        return "finetune"
    return "few" if training_images < FEW else "default"


def preset_named(name: str) -> Preset:
    """Return the preset `name`; UsageError if there is none."""
    check(name in PRESETS, f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def derive_epochs(config: TrainConfig, training_images: int) -> int | None:
    """Return the maximum number of epochs; None if only early stopping ends the run."""
    training_images = config.images or training_images
    if config.epochs is not None:
        return config.epochs
    preset = PRESETS[config.preset]
    if preset.images_seen is None:
        check(not decays(config), f"`schedule` {config.schedule} needs `epochs` with this preset")
        return None
    return max(1, min(preset.max_epochs, round(preset.images_seen / training_images)))


def decays(config: TrainConfig) -> bool:
    """Tell whether the learning rate decays to zero at the last epoch, so that the number of epochs must be known."""
    return config.schedule in ("onecycle", "cosine")
