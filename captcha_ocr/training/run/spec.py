"""A run: what identifies it, the options that say how to carry it out, and what its parts share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from captcha_ocr.data.label_sources.tables import excerpt
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.model_folder import (
    PRETRAINED,
    WEIGHTS_FILE,
    find_model_folder,
    read_config,
    read_model_config,
)
from captcha_ocr.options.declaration import declarations, differences
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.options.preparation import SPLITS
from captcha_ocr.options.training import (
    PRESETS,
    DrawOptions,
    TrainConfig,
    TrainOptions,
    derive_epochs,
    preset_named,
)
from captcha_ocr.system.console import say
from captcha_ocr.system.documents import to_json
from captcha_ocr.system.files import sha256
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData

RUN_VERSION = 4  # of run.json and state.json


@dataclass(frozen=True)
class RunSpec:
    """What distinguishes runs: training, network, numbers of images, data and starting weights.

    images: how many there are in each split. data: the hash of the manifests, or of what is drawn.
    init: the hash of the starting weights. begun_from: the hash of the checkpoint that `resume`
    named; it does not distinguish runs. drawn: what is drawn, None for a run on shards.
    """

    training: TrainConfig
    model: ModelConfig
    images: Mapping[str, int]
    data: str
    init: str | None = None
    begun_from: str | None = None
    drawn: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, dataset: TrainingData, config: TrainConfig, init: Path | None = None) -> "RunSpec":
        """Describe the run that trains on a data set, perhaps from the model in `init`.

        Its network is the preset's, or that of the model to start from. Errors as `read_config`.
        """
        drawn = dataset.identity if isinstance(dataset, DrawnData) else None
        weights, network = None, preset_named(config.preset).network
        if init is not None:
            folder = find_model_folder(init)
            weights = read_config(folder)["files"][WEIGHTS_FILE]
            source = read_model_config(folder)
            network = replace(source.network, feature_norm=source.normalises_features)
        return cls(
            training=config,
            model=ModelConfig(dataset.charset, dataset.lengths, dataset.size, network),
            images={split: dataset.count(split) for split in SPLITS},
            data=dataset.sha256,
            init=weights,
            drawn=drawn,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as JSON types; `drawn` is left out for a run on shards."""
        drawn = {} if self.drawn is None else {"drawn": dict(self.drawn)}
        return {
            "training": self.training.to_dict(),
            "model": self.model.to_dict(),
            "images": dict(self.images),
            "data": self.data,
            "init": self.init,
            "begun_from": self.begun_from,
            **drawn,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "RunSpec":
        """Invert `to_dict`; further keys are ignored. UsageError for a malformed document."""
        try:
            drawn = dict(document["drawn"]) if "drawn" in document else None
            return cls(
                training=TrainConfig.from_dict(document["training"]),
                model=ModelConfig.from_dict(document["model"]),
                images={str(split): int(document["images"][split]) for split in SPLITS},
                data=document["data"],
                init=document["init"],
                begun_from=document["begun_from"],
                drawn=drawn,
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:  # int(inf)
            raise UsageError(f"the description of a run is malformed ({error})") from None

    @property
    def given(self) -> dict[str, Any]:
        """The fields of the training that are not as usual: by an option, or in another version."""
        usual = PRESETS.get(self.training.preset, PRESETS["default"]).training
        if self.init is not None:
            usual = usual.for_fine_tuning(self.drawn is not None)
        return {name: getattr(self.training, name) for name, _ in differences(usual, self.training)}

    def changes(self, new: "RunSpec") -> list[str]:
        """List in what another run differs: "`option`: old -> new".

        What no option sets has no backticks. What only follows from another preset or from other
        starting weights is not listed.
        """
        told = {"preset", *self.given, *new.given}
        options = declarations(TrainConfig)
        lines = []
        for name, change in differences(self.training, new.training):
            if name in told:
                lines.append(f"`{name}`: {change}" if options[name].help else f"{name}: {change}")
        both_draw = self.drawn is not None and new.drawn is not None
        parts = ["size"] if both_draw else ["charset", "lengths", "size"]
        if (self.training.preset, self.init) == (new.training.preset, new.init):
            parts.append("network")
        for part in parts:
            changed = differences(getattr(self.model, part), getattr(new.model, part))
            lines += [f"{name}: {change}" for name, change in changed]
        for split, count in new.images.items():
            if self.images[split] != count:
                name = "`images`" if split == "train" and both_draw else f"{split} images"
                lines.append(f"{name}: {self.images[split]:,} -> {count:,}")
        lines += _changes_of_drawings(self.drawn, new.drawn)
        if self.data != new.data and self.drawn is None and new.drawn is None:
            lines.append("other images")
        if self.init != new.init:
            lines.append("other starting weights (`init`)")
        return lines

    def is_extended_by(self, new: "RunSpec") -> bool:
        """Tell whether another run is this one with more epochs."""
        same_length = replace(new, training=replace(new.training, epochs=self.training.epochs))
        if self.changes(same_length):
            return False
        before, after = (derive_epochs(spec.training, new.images["train"]) for spec in (self, new))
        return before is not None and after is not None and after > before

    @property
    def identity(self) -> str:
        """The hash that the models of a run carry.

        It does not depend on where the run begins and ends.
        """
        content = self.to_dict()
        content["training"]["epochs"] = None
        names = ("model", "images", "data", "init", "training")
        return sha256(to_json({name: content[name] for name in names}))


@dataclass(frozen=True)
class Run:
    """What every part of a training shares.

    replaces: whether the run takes the place of the one in `out`.
    """

    out: Path
    spec: RunSpec
    dataset: TrainingData
    group: ProcessGroup
    options: TrainOptions
    replaces: bool

    @cached_property
    def interruption(self) -> Interruption:
        """The signals that end the run."""
        return Interruption(self.group)

    @property
    def is_silent(self) -> bool:
        """Whether this process prints nothing: the run is quiet, or another process prints."""
        return self.options.quiet or not self.group.is_main

    def tell(self, line: str) -> None:
        """Print a line to stderr, unless this process is silent."""
        say(line, self.is_silent)


def with_preset_model(options: TrainOptions, config: TrainConfig) -> TrainOptions:
    """Return the options with the model that the preset starts from, if they name none."""
    if options.init is not None or not preset_named(config.preset).pretrained:
        return options
    return replace(options, init=PRETRAINED)


def _changes_of_drawings(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    """List in what other drawings differ, but for the seed; None for shards."""
    nothing = {"design": "unset"}
    names = nothing if old is None or new is None else {**old, **new}
    old, new = old or nothing, new or nothing
    options = declarations(DrawOptions)
    lines = []
    for name in names:
        if name not in ("seed", "look") and old.get(name) != new.get(name):
            field = "designs" if name == "design" else name
            label = f"`{field}`" if field in options else name
            lines.append(f"{label}: {excerpt(str(old.get(name)))} -> {excerpt(str(new.get(name)))}")
    if not lines and old.get("look") != new.get("look"):  # most options change the look, too
        lines.append(f"the design {new['design']} was changed")
    return lines
