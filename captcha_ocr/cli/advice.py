"""Advice after a run: is the network guessing, still learning, or overfitting?

Each sentence knows what the run was, and its commands work as they stand.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from captcha_ocr.cli.wording import word_command
from captcha_ocr.data.prepare import label_options
from captcha_ocr.data.shards import Dataset, read_dataset
from captcha_ocr.errors import CaptchaOcrError, Command
from captcha_ocr.inference.model_folder import PRETRAINED_NAME, name_model, resolve_model_name
from captcha_ocr.network.resnet import count_columns
from captcha_ocr.options.declaration import declarations, words
from captcha_ocr.options.model import NetworkConfig
from captcha_ocr.options.training import (
    MAX_DRAWINGS,
    PRESETS,
    DrawOptions,
    TrainConfig,
    TrainOptions,
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
    """How a run was begun, as far as its command tells and run.json does not."""

    dataset: TrainingData
    out: Path
    options: TrainOptions = TrainOptions()
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
        dataset: TrainingData
        if isinstance(data, dict):
            dataset = DrawnData.of(DrawOptions.from_dict(data), spec.training)
        else:
            dataset = read_dataset(list(map(Path, data)))
        init = given.pop("init")
        options = TrainOptions(init=None if init is None else resolve_model_name(init), **given)
        if dataset.sha256 == spec.data:
            return Origin(dataset, folder, options, document["processes"])
    return None


def advice(finished: Finished, spec: RunSpec, origin: Origin | None = None) -> list[str]:
    """Return the advice on a run; its commands are complete if the origin of the run is known."""
    trained, validated = finished.training, finished.validation
    training_match, validation_match = trained["exact_match"], validated["exact_match"]
    if validated["character_accuracy"] < 2 / len(spec.model.charset):
        share = f"{validated['character_accuracy']:.1%} of the characters of validation images"
        remedy = _against_guessing(finished, spec, origin)
        return [f"{share} are correct, which is guessing{remedy}"]
    found = f"{training_match:.1%} of training images"
    is_apart = trained["interval"][0] > validated["interval"][1]
    if is_apart and training_match - validation_match > _MAX_GAP:
        both = f"{found} and {validation_match:.1%} of validation images are correct"
        if _was_cut_short(finished, spec):
            return [f"{both}{_learn_longer(finished, spec, origin)}"]
        return [f"{both}, which is overfitting: {'; or '.join(_against_overfitting(spec, origin))}"]
    if training_match < _MIN_TRAINING_MATCH:
        remedy = _learn_longer(finished, spec, origin)
        return [f"{found} are correct, so the network is still learning{remedy}"]
    return []


def _against_guessing(finished: Finished, spec: RunSpec, origin: Origin | None) -> str:
    """Train longer if the run was short, else look at the labels; those of drawings are right."""
    if finished.epochs < (_usual_epochs(spec) or 0) or spec.drawn is not None:
        return _learn_longer(finished, spec, origin)
    return f": compare the labels with the images{_look_at_images(origin)}, or use more images"


def _learn_longer(finished: Finished, spec: RunSpec, origin: Origin | None) -> str:
    """Return how to train longer: with more patience if early stopping ended the run, else with
    more epochs.
    """
    usual = _usual_epochs(spec)
    limit = spec.training.epochs or usual
    if limit is None or finished.epochs < limit:
        return (
            f": {_train_again(spec, origin, 'patience', 2 * spec.training.patience, is_new=True)}"
        )
    if usual is not None and _was_cut_short(finished, spec):
        preset = f"that preset {spec.training.preset} takes"
        takes = f" after {finished.epochs} of the {usual} epochs {preset}"
        return f"{takes}: {_train_again(spec, origin, 'epochs', usual)}"
    done = counted(finished.epochs, "epoch")
    return f" after {done}: {_train_again(spec, origin, 'epochs', 2 * finished.epochs)}"


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
    spec: RunSpec, origin: Origin | None, name: str, value: int, is_new: bool = False
) -> str:
    """Say how to continue a run, or to start it again, with another value of one option."""
    if origin is None or origin.processes > 1:
        return _repeat_with({name: value}, is_new)
    out = find_unused(origin.out) if is_new else origin.out
    changed = replace(spec, training=spec.training.with_options(**{name: value}))
    return f"{'start again' if is_new else 'continue'} with: {_train_command(changed, origin, out)}"


def _repeat_with(options: Mapping[str, object], is_new: bool) -> str:
    """Say how to change a command that is not known, or that starts several processes."""
    sentence = f"repeat the command that began this run with {' '.join(words(options))}"
    return f"{sentence} and another --out" if is_new else sentence


def _train_command(
    spec: RunSpec,
    origin: Origin,
    out: Path,
    preset: str | None = None,
    init: str | None = None,
) -> str:
    """Return the command that carries out a run, or the same run with another preset or from a
    trained model.
    """
    declared = declarations(TrainConfig)
    given = {name: value for name, value in spec.given.items() if declared[name].help}
    given.pop("preset", None)
    options: dict[str, object] = {"preset": preset or spec.training.preset, **given}
    options["init"] = _name_of_init(origin) or init
    for name in ("keep_every", "stream", "tensorboard"):
        options[name] = getattr(origin.options, name)
    return _command_on("train", origin, out, options)


def _name_of_init(origin: Origin) -> str | None:
    """Return the name of the model that a run started from; None if it started from none."""
    return None if origin.options.init is None else name_model(origin.options.init)


def _command_on(name: str, origin: Origin, out: Path, options: Mapping[str, object]) -> str:
    """Return a command on the images and the device of a run."""
    arguments: tuple[object, ...] = ()
    data: dict[str, object] = {}
    if isinstance(origin.dataset, DrawnData):
        data = origin.dataset.options.given()
    elif name == "train":
        data = {"data": origin.dataset.folders}
    else:
        arguments = origin.dataset.folders
    device = None if origin.options.device == "auto" else origin.options.device
    ending = {"device": device, "threads": origin.options.threads}
    return word_command(Command(name, arguments, {**data, "out": out, **options, **ending}))


def _against_overfitting(spec: RunSpec, origin: Origin | None) -> list[str]:
    """Return what helps against overfitting and was not done."""
    if spec.drawn is not None:
        return _against_repetition(spec, origin)
    ways, options = ["use more images"], dict[str, str]()
    if not spec.training.augment and _fits(spec, PRESETS["few"].network):
        options["preset"] = "few"
    if spec.init is None and _fits(spec, NetworkConfig()):
        options["init"] = PRETRAINED_NAME
    if origin is None or origin.processes > 1:
        return ways + [_repeat_with({name: value}, is_new=True) for name, value in options.items()]
    is_one_folder = isinstance(origin.dataset, Dataset) and len(origin.dataset.folders) == 1
    if is_one_folder and spec.images["test"]:
        out = find_unused(origin.out.with_name(f"{origin.out.name}-curve"))
        curve = _command_on("curve", origin, out, {"init": _name_of_init(origin)})
        ways[0] += f"; how many: {curve}"
    for option, value in options.items():
        out = find_unused(origin.out.with_name(f"{origin.out.name}-{value}"))
        command = _train_command(spec, origin, out, **{option: value})
        ways.append(f"take --{option} {value}: {command}")
    return ways


def _against_repetition(spec: RunSpec, origin: Origin | None) -> list[str]:
    """Return what helps a network that learns its drawings by heart: to show it more of them."""
    assert spec.drawn is not None, "the run is one on drawings"
    repeat, images = spec.drawn["repeat"], spec.images["train"]
    more = {"repeat": repeat // 2} if repeat > 1 else {"images": min(2 * images, MAX_DRAWINGS)}
    if origin is None or origin.processes > 1 or not isinstance(origin.dataset, DrawnData):
        return [f"draw more images: {_repeat_with(more, is_new=True)}"]
    options = DrawOptions(**{**vars(origin.dataset.options), **more})
    changed = replace(origin, dataset=replace(origin.dataset, options=options))
    command = _train_command(spec, changed, find_unused(origin.out))
    return [f"draw more images: start again with: {command}"]


def _fits(spec: RunSpec, network: NetworkConfig) -> bool:
    """Tell whether a network has enough columns for the texts of a run."""
    return count_columns(replace(spec.model, network=network)) >= 2 * spec.model.lengths.longest - 1


def _look_at_images(origin: Origin | None) -> str:
    """Name the command that shows images and labels, if they are still where they were."""
    if origin is None or isinstance(origin.dataset, DrawnData):
        return ""
    manifest = origin.dataset.manifests[0]
    if not Path(manifest.source).is_dir():
        return ""
    inspect = Command("inspect", (manifest.source,), label_options(manifest))
    return f" ({word_command(inspect)})"
