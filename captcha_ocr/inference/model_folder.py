"""The model folder: weights, configuration and card; copy it anywhere and it reads. No torch here.

`config.json` carries the sha256 of every file beside it that matters and of its own content.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captcha_ocr.config import ModelConfig
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.system.documents import read_sealed, sealed
from captcha_ocr.system.files import TEMPORARY, sha256, sync_folder, write_atomic

CONFIG_FILE, WEIGHTS_FILE, ONNX_FILE, CARD_FILE = "config.json", "model.safetensors", "model.onnx", "README.md"
OPTIMIZER_FILE, STATE_FILE = "optimizer.safetensors", "state.json"  # beside them in a checkpoint
FILES = (WEIGHTS_FILE, ONNX_FILE, OPTIMIZER_FILE, STATE_FILE)  # whose sha256 config.json may carry
MODEL_FORMAT, MODEL_VERSION = "captcha-ocr model", 3
PRETRAINED = Path(__file__).parent.parent / "pretrained"  # the model that comes with the package
VARIABLE = "CAPTCHA_OCR_MODEL"
BACKUP = ".captcha-ocr.old"


def write_model_folder(
    folder: Path, config: ModelConfig, facts: Mapping[str, Any], files: Mapping[str, bytes], card: str | None = None
) -> None:
    """Write a model folder at once: `folder` is the old one or the new one, whole, and never between.

    facts: anything worth keeping in config.json (JSON types); files: by name, whose hashes config.json then carries;
    card: a README.md for people.
    """
    document = {
        "format": MODEL_FORMAT,
        "version": MODEL_VERSION,
        "model": config.to_dict(),
        "facts": dict(facts),
        "files": {name: sha256(data) for name, data in files.items()},
    }
    with replacing(folder) as temporary:
        for name, data in files.items():
            write_atomic(temporary / name, data)
        if card is not None:
            write_atomic(temporary / CARD_FILE, card.encode())
        write_atomic(temporary / CONFIG_FILE, sealed(document))


def copy_model(source: Path, folder: Path) -> None:
    """Copy a model folder at once, as `save_model` writes one."""
    with replacing(folder) as temporary:
        for file in sorted(filter(Path.is_file, source.iterdir())):
            write_atomic(temporary / file.name, file.read_bytes())


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """An empty folder to fill, which takes the place of `folder` in the end, or goes where filling it failed."""
    temporary = temporary_of(folder)
    remove_folder(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
    except BaseException:
        remove_folder(temporary)
        raise
    swap_in(temporary, folder)


def swap_in(temporary: Path, folder: Path) -> None:
    """Rename `temporary` to `folder`, which steps aside and is removed only afterwards."""
    old = backup_path(folder)
    remove_folder(old)
    if folder.exists():
        os.replace(folder, old)
    os.replace(temporary, folder)
    sync_folder(folder.parent)
    remove_folder(old)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there; of a link the link alone."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def backup_path(folder: Path) -> Path:
    """Where `folder` steps to while its successor takes its place."""
    return folder.with_name(folder.name + BACKUP)


def temporary_of(folder: Path) -> Path:
    """Where the successor of `folder` is written."""
    return folder.with_name(folder.name + TEMPORARY)


def current_path(folder: Path) -> Path:
    """`folder`, or where it had stepped aside to when the program was killed: for readers, who change nothing."""
    return backup_path(folder) if backup_path(folder).exists() and not folder.exists() else folder


def restore_backup(folder: Path) -> None:
    """Bring back a folder that had stepped aside when the program was killed."""
    if current_path(folder) != folder:
        os.replace(backup_path(folder), folder)


def read_config(folder: Path) -> dict[str, Any]:
    """The checked content of config.json; UsageError where there is no model, DamagedError if not whole."""
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}; make a model with: captcha-ocr train")
    if not (folder / CONFIG_FILE).exists():
        raise UsageError(f"{folder} is no model folder (it has no {CONFIG_FILE}); make one with: captcha-ocr train")
    document = read_sealed(folder / CONFIG_FILE, MODEL_FORMAT, MODEL_VERSION)
    files, facts = document.get("files"), document.get("facts")
    whole = isinstance(files, dict) and WEIGHTS_FILE in files and set(files) <= set(FILES)
    if not whole or not isinstance(facts, dict) or "model" not in document:
        raise DamagedError(f"{folder / CONFIG_FILE} is malformed")
    return document


def read_model_config(folder: Path) -> ModelConfig:
    """What the model in `folder` is made of; errors as `read_config`."""
    return model_config_in(folder, read_config(folder))


def model_config_in(folder: Path, document: dict[str, Any]) -> ModelConfig:
    """As `read_model_config`, from what `read_config` gave."""
    try:
        return ModelConfig.from_dict(document["model"])
    except UsageError as error:
        raise DamagedError(f"{folder / CONFIG_FILE} is malformed: {error}") from None


def find_model_folder(folder: Path) -> Path:
    """The model folder that `folder` means: itself, or, of a run folder, its `best`."""
    best = current_path(folder / "best")
    return best if best.is_dir() else folder


def default_model(run: Path) -> Path:
    """The folder to read with where none is named: CAPTCHA_OCR_MODEL, else a run's best, else the package's own.

    UsageError where the variable names no model.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not (find_model_folder(Path(named)) / CONFIG_FILE).exists():
            raise UsageError(f"{VARIABLE} is {named}, which is no model folder (it has no {CONFIG_FILE})")
        return Path(named)
    best = current_path(run / "best")
    return best if (best / CONFIG_FILE).exists() else PRETRAINED
