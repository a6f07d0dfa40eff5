"""The model folder: weights, configuration and card; copy it anywhere and it reads.

`config.json` carries the sha256 of every file beside it that matters and of its own content.
Nothing here, nor anywhere else in the project, is pickled.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from captcha_ocr import __version__
from captcha_ocr.config import ModelConfig, TrainConfig, check, differences
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.files import read_checked, read_sealed, seal, sha256, sync_folder, to_json, write_atomic
from captcha_ocr.metrics import Scores
from captcha_ocr.model import ResNet18
from captcha_ocr.shards import Dataset

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
MODEL_FORMAT, MODEL_VERSION = "captcha-ocr model", 3


def save_model(
    folder: Path,
    model: ResNet18,
    facts: Mapping[str, Any],
    card: str | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder at once: `folder` is the old one or the new one, whole, and never between.

    facts: anything worth keeping in config.json (JSON types); card: a README.md for people;
    beside: further files, by name, whose hashes config.json then carries too.
    """
    files = {WEIGHTS_FILE: weights_of(model), **(beside or {})}
    document = {
        "format": MODEL_FORMAT,
        "version": MODEL_VERSION,
        "model": model.config.to_dict(),
        "facts": dict(facts),
        "files": {name: sha256(data) for name, data in files.items()},
    }
    temporary = temporary_of(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, data in files.items():
        write_atomic(temporary / name, data)
    if card is not None:
        write_atomic(temporary / CARD_FILE, card.encode())
    write_atomic(temporary / CONFIG_FILE, to_json(seal(document)))
    put_in_place(temporary, folder)


def copy_model(source: Path, folder: Path) -> None:
    """Copy a model folder at once, as `save_model` writes one."""
    temporary = temporary_of(folder)
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    put_in_place(temporary, folder)


def put_in_place(temporary: Path, folder: Path) -> None:
    """Rename `temporary` to `folder`, which steps aside to `.old` and is removed only afterwards."""
    old = aside(folder)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(temporary, folder)
    sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def aside(folder: Path) -> Path:
    """Where `folder` steps to while its successor takes its place."""
    return folder.with_name(folder.name + ".old")


def temporary_of(folder: Path) -> Path:
    """Where the successor of `folder` is written."""
    return folder.with_name(folder.name + ".tmp")


def standing(folder: Path) -> Path:
    """`folder`, or where it had stepped aside to when the program was killed: for readers, who change nothing."""
    return aside(folder) if aside(folder).exists() and not folder.exists() else folder


def recover(folder: Path) -> None:
    """Bring back a folder that had stepped aside when the program was killed."""
    if standing(folder) != folder:
        os.replace(aside(folder), folder)


def weights_of(model: ResNet18) -> bytes:
    """The model's parameters and buffers as a safetensors payload."""
    return save_tensors({name: t.contiguous().cpu() for name, t in model.state_dict().items()})


def read_config(folder: Path) -> dict[str, Any]:
    """The checked content of config.json; UsageError where there is no model, DamagedError if not whole."""
    if not (folder / CONFIG_FILE).exists():
        raise UsageError(f"{folder} is no model folder (it has no {CONFIG_FILE}); make one with: captcha-ocr train")
    document = read_sealed(folder / CONFIG_FILE, MODEL_FORMAT, MODEL_VERSION)
    files = document.get("files")
    if not isinstance(files, dict) or WEIGHTS_FILE not in files or "model" not in document:
        raise DamagedError(f"{folder / CONFIG_FILE} is malformed")
    return document


def read_model_config(folder: Path) -> ModelConfig:
    """What the model in `folder` is made of; errors as `read_config`."""
    document = read_config(folder)
    try:
        return ModelConfig.from_dict(document["model"])
    except UsageError as error:
        raise DamagedError(f"{folder / CONFIG_FILE} is malformed: {error}") from None


def load_model(folder: Path) -> ResNet18:
    """The model in `folder`, on the CPU, in evaluation mode; its files are checked first."""
    config = read_model_config(folder)
    data = read_checked(folder / WEIGHTS_FILE, read_config(folder)["files"][WEIGHTS_FILE])
    # Built without memory of its own, so that a stranger's config.json cannot ask for any.
    with torch.device("meta"):
        model = ResNet18(config)
    try:
        model.load_state_dict(load_tensors(data), assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise DamagedError(f"{folder / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}") from None
    return model.eval()


def model_card(
    config: TrainConfig, dataset: Dataset, best_epoch: int, validation: Scores, test: Scores | None = None
) -> str:
    """The model card, as Markdown."""
    charset = dataset.charset
    case = "kept" if charset.fold is None else f"folded to {charset.fold} case"
    lines = [
        "# A captcha-ocr model",
        "",
        f"Reads texts of {dataset.lengths} of the {len(charset)} characters `{charset.characters}` (case {case})",
        f"from images brought to {dataset.size}. Trained by captcha-ocr {__version__}, preset `{config.preset}`,",
        f"seed {config.seed}, on {config.images or dataset.count('train'):,} images; the best epoch was {best_epoch}.",
        "",
        "For captchas that you generate, own or may test.",
        "",
        "Validation, on which this epoch was chosen:",
        "",
        *(f"    {line}" for line in str(validation).splitlines()),
    ]
    if test is not None:
        lines += ["", "Test, scored once:", "", *(f"    {line}" for line in str(test).splitlines())]
    return "\n".join([*lines, ""])


def load_into(model: ResNet18, folder: Path) -> None:
    """Take over the weights in `folder`, which must be of the same alphabet, length, size and network."""
    other = load_model(folder)
    changed = differences(other.config, model.config)
    check(not changed, f"the model in {folder} differs from the one to train ({'; '.join(changed)})")
    model.load_state_dict(other.state_dict())


def find_model_folder(folder: Path) -> Path:
    """The model folder that `folder` means: itself, or, of a run folder, its `best`."""
    best = standing(folder / "best")
    return best if best.is_dir() else folder
