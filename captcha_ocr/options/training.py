"""The options of train, with their defaults, and the presets."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from captcha_ocr.errors import check
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.drawing import CLASSIC_DESIGN, WARPS, DrawingOptions
from captcha_ocr.options.model import Lengths, NetworkConfig
from captcha_ocr.options.shared import (
    charset_option,
    device_option,
    fonts_option,
    force_option,
    quiet_option,
    seed_option,
    threads_option,
    workers_option,
)

Optimizer = Literal["adam", "adamw", "muon"]
Schedule = Literal["onecycle", "cosine", "plateau", "constant"]
Loss = Literal["bce", "ce", "ctc"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
FEWEST = 1000  # fewer images than that train from the model in the package
FEW = 20_000  # fewer training images than that are augmented
DRAWN_IMAGES = 20_000  # drawings of an epoch
PATIENCE = 20  # epochs


@dataclass(frozen=True, eq=False, repr=False)
class TrainConfig(Options):
    """The options of a training. Without a help text the preset alone decides.

    epochs: None derives the number from the preset's `images_seen`. patience: None ends a run when
    it has learnt enough (early_stopping.py), or with few images after all epochs. loss: of
    positions, bce or ce, or of columns, ctc. smoothing: the part of every target that label
    smoothing spreads over all characters; not with ctc. focus: how much more than others the
    characters count that the network gets wrong; not with ctc. case_folded: the part of the loss in
    which both cases of a letter are one; with ctc alone. augment: whether training images are
    changed at random (augment.py). frozen: the part of the steps in which only the head is trained;
    of the first epoch's steps if the number of epochs is open. start_images: as how many images the
    weights that it starts from count, in the mean with those that it has learnt.
    """

    preset: str = option(
        "default",
        "Network and training options.",
        shown=f"as prepare, finetune for drawings of a design, few below {FEW:,} training images,"
        " else default",
    )
    epochs: int | None = option(
        None,
        "Maximum number of epochs.",
        shown="from the number of images",
        at_least=1,
        at_most=10**6,
    )
    patience: int | None = option(
        PATIENCE,
        "Stop after so many epochs without a better validation.",
        shown="when it surely reads 99 %, or 20, by preset",
        at_least=1,
        at_most=10**6,
    )
    batch_size: int = option(100, "Images per step.", at_least=2, at_most=10**6)
    learning_rate: float = option(4e-3, "Maximum learning rate.", flag="--lr", above=0, below=10)
    schedule: Schedule = option("onecycle", "Learning rate schedule.")
    optimizer: Optimizer = option("adamw")
    weight_decay: float = option(0.1)
    loss: Loss = option(
        "bce", "Binary or categorical cross-entropy of positions, or CTC of columns."
    )
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
    seed: int = seed_option()

    def for_fine_tuning(self, on_drawings: bool) -> "TrainConfig":
        """Return a copy that starts from a trained model: half the learning rate, and only the head
        at first.

        on_drawings: of which there are enough to train all at once. A preset that always starts so
        stays as it is.
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

    size: of the network's input; None derives it from the images. images_seen: the number of epochs
    follows from this number of training images, repeats counted, up to `max_epochs`; None leaves it
    open, and only early stopping ends a run. pretrained: whether it starts from the model in the
    package unless it is given another. meant_for: for how many images the preset is made, in words.
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
RECIPE = TrainConfig(optimizer="muon", learning_rate=1e-2, focus=1.0)  # docs/decisions.md, Presets
BY_COLUMN = TrainConfig(loss="ctc", smoothing=0.0, augment=True)
PRESETS = {
    # The best accuracy in a few minutes on 2 CPU cores.
    "default": Preset(
        network=NetworkConfig(pool="slim"),
        training=replace(RECIPE, patience=None),
        images_seen=280_000,
        meant_for=f"{FEW:,} images and more",
    ),
    # The same recipe for a quarter of an hour, for many images that are each seen a few times.
    "accuracy": Preset(
        network=NetworkConfig(pool="slim"),
        training=replace(RECIPE, preset="accuracy"),
        images_seen=600_000,
    ),
    # For some hundred to some thousand images, augmented each time.
    "few": Preset(
        network=NetworkConfig(pool="narrow"),
        training=replace(RECIPE, preset="few", patience=None, augment=True, weight_decay=0.2),
        images_seen=150_000,
        max_epochs=120,
        meant_for=f"fewer than {FEW:,} images",
    ),
    # Images of any design, drawn while it trains: docs/decisions.md, The model in the package.
    "general": Preset(
        size=ANY_DESIGN,
        network=NetworkConfig(width=48, context=2),
        training=replace(
            BY_COLUMN,
            preset="general",
            optimizer="muon",
            batch_size=64,
            learning_rate=2e-3,
            case_folded=0.5,
        ),
        images_seen=1_000_000,
        meant_for="drawings of any design",
    ),
    # For a handful of images, augmented each time: docs/decisions.md, Fine-tuning.
    "finetune": Preset(
        size=ANY_DESIGN,
        training=replace(
            BY_COLUMN,
            preset="finetune",
            batch_size=16,
            learning_rate=5e-4,
            patience=None,
            start_images=20,
        ),
        images_seen=10_000,
        max_epochs=50,
        pretrained=True,
        meant_for=f"fewer than {FEWEST:,} images, and drawings of a design",
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
        and replace(size, ink=None) == ANY_DESIGN.fixed(size.width, size.height)
    ):
        return "finetune"
    return "few" if training_images < FEW else "default"


def preset_named(name: str) -> Preset:
    """Return the preset `name`; UsageError if there is none."""
    check(name in PRESETS, f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


def derive_epochs(config: TrainConfig, training_images: int) -> int | None:
    """Return the maximum number of epochs; None if only early stopping ends the run."""
    if config.epochs is not None:
        return config.epochs
    preset = PRESETS[config.preset]
    if preset.images_seen is None:
        check(not decays(config), f"`schedule` {config.schedule} needs `epochs` with this preset")
        return None
    epochs = round(preset.images_seen / (config.images or training_images))
    return max(1, min(preset.max_epochs, epochs))


def decays(config: TrainConfig) -> bool:
    """Tell whether the learning rate decays to zero at the last epoch, so that the number of epochs
    must be known.
    """
    return config.schedule in ("onecycle", "cosine")


_OF_THE_PACKAGE = (*WARPS, CLASSIC_DESIGN)
MAX_DRAWINGS = 10**6  # of an epoch; there are at most a million epochs


@dataclass(frozen=True, eq=False, repr=False)
class TrainOptions(Options):
    """How to carry out a run.

    init: a trained model to start from. resume: `auto`, `never` or the path of a checkpoint.
    threads: with how many torch computes on the CPU; None: one for each processor.
    """

    device: str = device_option()
    init: Path | None = option(
        None,
        "Start from a trained model of any alphabet, length and size, or pretrained or chinese.",
        path="model",
    )
    resume: str = option("auto", "Continue an unfinished run.", metavar="auto|never|PATH")
    stream: bool = option(
        False, "Read images from disk in every epoch.", shown="if memory is short"
    )
    force: bool = force_option()
    quiet: bool = quiet_option()
    keep_every: int | None = option(
        None, "Keep the checkpoint of every Nth epoch.", metavar="N", at_least=1, at_most=10**6
    )
    tensorboard: bool = option(False, "Also write the metrics for TensorBoard, into OUT.")
    threads: int | None = threads_option()


@dataclass(frozen=True, eq=False, repr=False)
class DrawOptions(Options):
    """The options of train --draw.

    designs: what is drawn, as for generate; several take turns, and one that is named twice has two
    turns. fonts: those of random designs if there is one, else of all. size: width and height of
    the network's input, in pixels. images: the drawings of an epoch. workers: the processes that
    draw, which change nothing in the images.
    """

    designs: tuple[str, ...] = option(
        ("captcha",),
        "Draw images of this design; designs take turns.",
        flag="--draw",
        metavar="DESIGN",
    )
    length: str | None = option(
        None,
        "Characters per text.",
        metavar="N|N-M",
        shown="the design's",
        parse=lambda text: str(Lengths.parse(text)),
    )
    charset: str | None = charset_option(shown="the design's")
    case_sensitive: bool = option(False, "Distinguish upper and lower case.")
    fonts: tuple[str, ...] = fonts_option()
    size: tuple[int, int] | None = option(None, "The network's input.", shown="as prepare")
    channels: Literal[1, 3] | None = option(None, "Grey or colour input.", shown="as prepare")
    images: int = option(DRAWN_IMAGES, "Drawings of an epoch.", at_least=2, at_most=MAX_DRAWINGS)
    repeat: int = option(4, "Epochs that show an image.", at_least=1, at_most=10**6)
    workers: int | None = workers_option(help_text="Processes that draw.")

    @property
    def imitates(self) -> bool:
        """Whether the drawings are only like the captchas that are to be read, as those of a design
        but that of the captcha package, which is drawn as it is.
        """
        drawn = [DrawingOptions(design=design) for design in self.designs]
        return not all(
            each.design in _OF_THE_PACKAGE or each.level or each.is_saved for each in drawn
        )

    def different(self, epochs: int) -> int:
        """Return how many different images so many epochs show."""
        return self.images * math.ceil(epochs / self.repeat)

    @property
    def rhythm(self) -> str:
        """How often other images are drawn, in words."""
        return "epoch" if self.repeat == 1 else f"{self.repeat:,} epochs"

    def given(self) -> dict[str, object]:
        """Return the designs, and the options that do not have their defaults, as given."""
        defaults = vars(DrawOptions(designs=()))
        given = {name: value for name, value in vars(self).items() if value != defaults[name]}
        if self.size is not None:
            given["size"] = "x".join(map(str, self.size))
        return given
