"""Advice after a run: is the network guessing, still learning, or overfitting?

Each sentence knows what the run was, and its commands work as they stand.
"""

import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from captcha_ocr.config import PRESETS, NetworkConfig, derive_epochs
from captcha_ocr.data.prepare import label_words
from captcha_ocr.data.shards import Dataset, read_dataset
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inference.model_folder import PRETRAINED_NAME, name_of_model
from captcha_ocr.network.resnet import columns_of
from captcha_ocr.system.console import counted
from captcha_ocr.system.files import unused
from captcha_ocr.training.run import RunSpec, TrainOptions
from captcha_ocr.training.run_folder import RUN_FILE, Finished, read_run

MIN_TRAINING_MATCH = 0.95  # exact match on training images; below it the network has more to learn
MAX_GAP = 0.05  # of exact match between training and validation images; beyond it the network overfits
OPTIONS = {  # of train, by the name of their field
    **{"epochs": "--epochs", "patience": "--patience", "batch_size": "--batch-size", "learning_rate": "--lr"},
    **{"schedule": "--schedule", "loss": "--loss", "images": "--images", "precision": "--precision", "seed": "--seed"},
}


@dataclass(frozen=True)
class Origin:
    """How a run was begun, as far as its command tells and run.json does not."""

    dataset: Dataset
    out: Path
    options: TrainOptions = TrainOptions()
    processes: int = 1


def advice_on_run(folder: Path, data: Path) -> list[str]:
    """Return the advice on the run in `folder`, one sentence each; nothing if there is no finished run.

    data: shards. The commands need them, if the run was trained on them.
    """
    if not (folder / RUN_FILE).exists():
        return []
    spec, finished = read_run(folder)
    if finished is None:
        return []
    origin = None
    with suppress(CaptchaOcrError):  # without the shards the advice is in words
        dataset = read_dataset([data])
        if dataset.sha256 == spec.data and spec.init is None:  # run.json does not name the folder of --init
            origin = Origin(dataset, folder)
    return advice(finished, spec, origin)


def advice(finished: Finished, spec: RunSpec, origin: Origin | None = None) -> list[str]:
    """Return the advice on a run; its commands are complete if the origin of the run is known."""
    trained, validated = finished.training, finished.validation
    training_match, validation_match = trained["exact_match"], validated["exact_match"]
    if validated["character_accuracy"] < 2 / len(spec.model.charset):
        found = f"{validated['character_accuracy']:.1%} of the characters of validation images are correct"
        return [f"{found}, which is guessing{against_guessing(finished, spec, origin)}"]
    if training_match - validation_match > MAX_GAP and trained["interval"][0] > validated["interval"][1]:
        both = f"{training_match:.1%} of training images and {validation_match:.1%} of validation images"
        return [f"{both} are correct, which is overfitting: {'; or '.join(against_overfitting(spec, origin))}"]
    if training_match < MIN_TRAINING_MATCH:
        found = f"{training_match:.1%} of training images are correct, so the network is still learning"
        return [f"{found}{learn_longer(finished, spec, origin)}"]
    return []


def against_guessing(finished: Finished, spec: RunSpec, origin: Origin | None) -> str:
    """Return what to do about guessing: train longer if the run was short, else look at the labels."""
    if finished.epochs < (usual_epochs(spec) or 0):
        return learn_longer(finished, spec, origin)
    return f": compare the labels with the images{look_at_images(origin)}, or use more images"


def learn_longer(finished: Finished, spec: RunSpec, origin: Origin | None) -> str:
    """Return how to train longer: with more patience if early stopping ended the run, else with more epochs."""
    usual = usual_epochs(spec)
    limit = spec.training.epochs or usual
    if limit is None or finished.epochs < limit:
        return f": {train_again(spec, origin, 'patience', 2 * spec.training.patience, is_new=True)}"
    if usual is not None and finished.epochs < usual:
        takes = f" after {finished.epochs} of the {usual} epochs that preset {spec.training.preset} takes"
        return f"{takes}: {train_again(spec, origin, 'epochs', usual)}"
    done = counted(finished.epochs, "epoch")
    return f" after {done}: {train_again(spec, origin, 'epochs', 2 * finished.epochs)}"


def usual_epochs(spec: RunSpec) -> int | None:
    """Return the number of epochs that the preset takes for so many images; None if it leaves that open."""
    if PRESETS[spec.training.preset].images_seen is None:
        return None
    return derive_epochs(replace(spec.training, epochs=None), spec.images["train"])


def train_again(spec: RunSpec, origin: Origin | None, name: str, value: int, is_new: bool = False) -> str:
    """Say how to continue a run, or to start it again, with another value of one option."""
    if origin is None or origin.processes > 1:
        elsewhere = ", with another --out" if is_new else ""
        return f"repeat the command that began this run with {OPTIONS[name]} {value}{elsewhere}"
    out = unused(origin.out) if is_new else origin.out
    changed = replace(spec, training=spec.training.with_options(**{name: value}))
    return f"{'begin anew' if is_new else 'continue'} with: {train_command(changed, origin, out)}"


def train_command(spec: RunSpec, origin: Origin, out: Path) -> str:
    """Return the command that carries out a run."""
    config, options = spec.training, origin.options
    usual = PRESETS[config.preset].training
    usual = usual if options.init is None else usual.for_fine_tuning()
    words = ["--preset", config.preset]
    for name, option in OPTIONS.items():
        if getattr(config, name) != getattr(usual, name):
            words += [option, str(getattr(config, name))]
    words += [] if options.init is None else ["--init", name_of_model(options.init)]
    words += [] if options.keep_every is None else ["--keep-every", str(options.keep_every)]
    words += ["--stream"] * options.stream + ["--tensorboard"] * options.tensorboard
    return command_on(origin, out, *words)


def command_on(origin: Origin, out: Path, *words: str, name: str = "train") -> str:
    """Return a command on the shards and the device of a run."""
    device = [] if origin.options.device == "auto" else ["--device", origin.options.device]
    data = [word for folder in origin.dataset.folders for word in ["--data"] * (name == "train") + [str(folder)]]
    return shlex.join(["captcha-ocr", name, *data, "--out", str(out), *words, *device])


def against_overfitting(spec: RunSpec, origin: Origin | None) -> list[str]:
    """Return what helps against overfitting and was not done."""
    ways, options = ["use more images"], list[str]()
    if not spec.training.augment and fits(spec, PRESETS["few"].network):
        options.append("--preset few")
    if spec.init is None and fits(spec, NetworkConfig()):
        options.append(f"--init {PRETRAINED_NAME}")
    if origin is None or origin.processes > 1:
        return ways + [f"take {option}, with another --out" for option in options]
    if len(origin.dataset.folders) == 1 and spec.images["test"]:
        init = [] if origin.options.init is None else ["--init", name_of_model(origin.options.init)]
        out = unused(origin.out.with_name(f"{origin.out.name}-curve"))
        ways[0] += f"; how many: {command_on(origin, out, *init, name='curve')}"
    for option in options:
        out = unused(origin.out.with_name(f"{origin.out.name}-{option.split()[-1]}"))
        ways.append(f"take {option}: {command_on(origin, out, *option.split())}")
    return ways


def fits(spec: RunSpec, network: NetworkConfig) -> bool:
    """Tell whether a network has enough columns for the texts of a run."""
    return columns_of(replace(spec.model, network=network)) >= 2 * spec.model.lengths.longest - 1


def look_at_images(origin: Origin | None) -> str:
    """Name the command that shows images and labels, if they are still where they were."""
    manifest = None if origin is None else origin.dataset.manifests[0]
    if manifest is None or not Path(manifest.source).is_dir():
        return ""
    return f" ({shlex.join(['captcha-ocr', 'inspect', manifest.source, *label_words(manifest)])})"
