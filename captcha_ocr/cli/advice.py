"""Advice after a run: is the network guessing, still learning, or overfitting?

Each sentence knows what the run was, and its commands work as they stand.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from captcha_ocr.cli.wording import word_command
from captcha_ocr.data.prepare import label_options
from captcha_ocr.data.shards import Dataset, read_dataset
from captcha_ocr.errors import CaptchaOcrError, Command
from captcha_ocr.inference.model_folder import PRETRAINED_NAME
from captcha_ocr.network.resnet import count_columns
from captcha_ocr.options.declaration import declarations, words
from captcha_ocr.options.model import NetworkConfig
from captcha_ocr.options.training import (
    MAX_DRAWINGS,
    PRESETS,
    DrawOptions,
    TrainConfig,
    derive_epochs,
)
from captcha_ocr.system.console import counted
from captcha_ocr.system.documents import read_sealed
from captcha_ocr.system.files import find_unused
from captcha_ocr.training.run.folder import RUN_FILE, RUN_FORMAT, Finished, read_run
from captcha_ocr.training.run.spec import RUN_VERSION, RunSpec
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData

_MIN_TRAINING_MATCH = 0.95  # exact match on training images; below it the network has more to learn
# Of exact match between training and validation images; beyond it the network overfits.
_MAX_GAP = 0.05


@dataclass(frozen=True)
class Origin:
    """How a run was begun, as far as its command tells and its `RunSpec` does not.

    options: those of `TrainOptions` that were given, as words of a command.
    """

    dataset: TrainingData
    out: Path
    options: Mapping[str, object] = field(default_factory=dict)
    processes: int = 1


def advice_on_run(folder: Path) -> list[str]:
    """Return the advice on the run in `folder`, one sentence each; nothing if there is no finished
    run.

    Its commands are complete if the shards are where they were.
    """
    if not (folder / RUN_FILE).exists():
        return []
    spec, finished = read_run(folder)
    return [] if finished is None else advice(finished, spec, read_origin(folder, spec))


def read_origin(folder: Path, spec: RunSpec) -> Origin | None:
    """Return how a finished run was begun; None if run.json does not tell, or shards or fonts are
    gone or others.
    """
    document = read_sealed(folder / RUN_FILE, RUN_FORMAT, RUN_VERSION)
    with suppress(CaptchaOcrError, KeyError, TypeError, ValueError):
        given = dict(document["given"])
        data = given.pop("data")
        dataset: TrainingData = (
            DrawnData.of(DrawOptions.from_dict(data), spec.training)
            if isinstance(data, dict)
            else read_dataset(list(map(Path, data)))
        )
        if given["device"] == "auto":
            del given["device"]
        if dataset.sha256 == spec.data:
            return Origin(dataset, folder, given, document["processes"])
    return None


def advice(finished: Finished, spec: RunSpec, origin: Origin | None = None) -> list[str]:
    """Return the advice on a run; its commands are complete if the origin of the run is known, and
    one process trained it.
    """
    trained, validated = finished.training, finished.validation
    known = None if origin is None or origin.processes > 1 else origin
    chance = 1 / len(spec.model.charset)
    if validated["character_accuracy"] < chance * (2 - chance):  # an alphabet may have two
        share = f"{validated['character_accuracy']:.1%} of the characters of validation images"
        if spec.drawn is not None or finished.epochs < (_usual_epochs(spec) or 0):
            remedy = _learn_longer(finished, spec, known)
        else:  # as many epochs as usual: look at the labels, which are right in drawings
            look = _look_at_images(origin)
            remedy = f": compare the labels with the images{look}, or use more images"
        return [f"{share} are correct, which is guessing{remedy}"]
    training_match, validation_match = trained["exact_match"], validated["exact_match"]
    images = f"{training_match:.1%} of training images"
    is_apart = trained["interval"][0] > validated["interval"][1]
    if is_apart and training_match - validation_match > _MAX_GAP:
        both = f"{images} and {validation_match:.1%} of validation images are correct"
        if _was_cut_short(finished, spec):
            return [f"{both}{_learn_longer(finished, spec, known)}"]
        return [f"{both}, which is overfitting: {'; or '.join(_against_overfitting(spec, known))}"]
    if training_match < _MIN_TRAINING_MATCH:
        remedy = _learn_longer(finished, spec, known)
        return [f"{images} are correct, so the network is still learning{remedy}"]
    return []


def _learn_longer(finished: Finished, spec: RunSpec, origin: Origin | None) -> str:
    """Return how to train longer: with more patience if early stopping ended the run, else with
    more epochs.
    """
    usual, patience = _usual_epochs(spec), 2 * (spec.training.patience or finished.epochs)
    limit = spec.training.epochs or usual
    if limit is None or finished.epochs < limit:
        return f": {_train_again(spec, origin, is_new=True, patience=patience)}"
    if _was_cut_short(finished, spec):
        preset = f"that preset {spec.training.preset} takes"
        takes = f" after {finished.epochs} of the {usual} epochs {preset}"
        return f"{takes}: {_train_again(spec, origin, epochs=usual)}"
    done = counted(finished.epochs, "epoch")
    return f" after {done}: {_train_again(spec, origin, epochs=2 * finished.epochs)}"


def _was_cut_short(finished: Finished, spec: RunSpec) -> bool:
    """Tell whether `--epochs` ended the run before the number of epochs that the preset takes."""
    return finished.epochs == spec.training.epochs and finished.epochs < (_usual_epochs(spec) or 0)


def _usual_epochs(spec: RunSpec) -> int | None:
    """Return the number of epochs that the preset takes for so many images; None if it leaves that
    open.
    """
    if PRESETS[spec.training.preset].images_seen is None:
        return None
    return derive_epochs(replace(spec.training, epochs=None), spec.images["train"])


def _train_again(
    spec: RunSpec, origin: Origin | None, is_new: bool = False, **changes: object
) -> str:
    """Say how to continue a run, or to start it again, with other options."""
    if origin is None:
        sentence = f"repeat the command that began this run with {' '.join(words(changes))}"
        return f"{sentence} and another --out" if is_new else sentence
    out = find_unused(origin.out) if is_new else origin.out
    command = _train_command(spec, origin, out, **changes)
    return f"start again with: {command}" if is_new else f"continue with: {command}"


def _train_command(spec: RunSpec, origin: Origin, out: Path, **changes: object) -> str:
    """Return the command that carries out a run, or the same run with changed options."""
    if isinstance(origin.dataset, DrawnData):
        options = origin.dataset.options.given()
    else:
        options = {"data": origin.dataset.folders}
    declared = declarations(TrainConfig)
    options |= {"out": out, "preset": spec.training.preset}
    options |= {name: value for name, value in spec.given.items() if declared[name].help}
    names = ("init", "keep_every", "stream", "tensorboard", "device", "threads")
    options |= {name: origin.options.get(name) for name in names}
    return word_command(Command("train", (), {**options, **changes}))


def _against_overfitting(spec: RunSpec, origin: Origin | None) -> list[str]:
    """Return what helps against overfitting and was not done."""
    if spec.drawn is not None:
        more = {"repeat": spec.drawn["repeat"] // 2}
        if more["repeat"] == 0:
            more = {"images": min(2 * spec.images["train"], MAX_DRAWINGS)}
        return [f"draw more images: {_train_again(spec, origin, is_new=True, **more)}"]
    ways, options = ["use more images"], dict[str, str]()
    if not spec.training.augment and _fits(spec, PRESETS["few"].network):
        options["preset"] = "few"
    if spec.init is None and _fits(spec, NetworkConfig()):
        options["init"] = PRETRAINED_NAME
    if origin is None:
        return ways + [
            _train_again(spec, None, is_new=True, **{name: value})
            for name, value in options.items()
        ]
    dataset = origin.dataset
    if isinstance(dataset, Dataset) and len(dataset.folders) == 1 and spec.images["test"]:
        out = find_unused(origin.out.with_name(f"{origin.out.name}-curve"))
        given = {name: origin.options.get(name) for name in ("init", "device", "threads")}
        curve = Command("curve", dataset.folders, {"out": out, **given})
        ways[0] += f"; how many: {word_command(curve)}"
    for name, value in options.items():
        out = find_unused(origin.out.with_name(f"{origin.out.name}-{value}"))
        command = _train_command(spec, origin, out, **{name: value})
        ways.append(f"take --{name} {value}: {command}")
    return ways


def _fits(spec: RunSpec, network: NetworkConfig) -> bool:
    """Tell whether a network has enough columns for the texts of a run."""
    return count_columns(replace(spec.model, network=network)) >= 2 * spec.model.lengths.longest - 1


def _look_at_images(origin: Origin | None) -> str:
    """Name the command that shows images and labels, if they are still where they were."""
    if origin is not None and isinstance(origin.dataset, Dataset):
        manifest = origin.dataset.manifests[0]
        if Path(manifest.source).is_dir():
            inspect = Command("inspect", (manifest.source,), label_options(manifest))
            return f" ({word_command(inspect)})"
    return ""
