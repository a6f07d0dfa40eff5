"""The model folder: weights, configuration and card, without any link to its place.

`config.json` holds the sha256 of the weights, of the other files that are read, and of its own
content.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captcha_ocr.errors import Advice, Command, DamagedError, UsageError, check
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.options.shared import ADAPTED, LABELLED, RUN
from captcha_ocr.system.documents import read_sealed, sealed
from captcha_ocr.system.files import TEMPORARY, sha256, sync_folder, write_in_turn

CONFIG_FILE, WEIGHTS_FILE, ONNX_FILE, CARD_FILE = (
    "config.json",
    "model.safetensors",
    "model.onnx",
    "README.md",
)
OPTIMIZER_FILE, STATE_FILE = "optimizer.safetensors", "state.json"  # in a checkpoint
_HASHED_FILES = {WEIGHTS_FILE, ONNX_FILE, OPTIMIZER_FILE, STATE_FILE}
_MODEL_FORMAT, _MODEL_VERSION = "captcha-ocr model", 3
_MAX_CONFIG_BYTES = 4_000_000  # the largest alphabet takes a tenth of it
PRETRAINED = Path(__file__).parent.parent / "pretrained"  # the model that comes with the package
CHINESE = PRETRAINED.with_name("pretrained_chinese")  # and that of Chinese texts
PRETRAINED_NAME = "pretrained"  # what options and CAPTCHA_OCR_MODEL call it
IN_PACKAGE = {PRETRAINED_NAME: PRETRAINED, "chinese": CHINESE}
MODEL_VARIABLE = "CAPTCHA_OCR_MODEL"
BACKUP = ".captcha-ocr.old"


def write_model_folder(
    folder: Path,
    config: ModelConfig,
    facts: Mapping[str, Any],
    files: Mapping[str, bytes],
    card: str | None = None,
) -> None:
    """Write a model folder atomically: a reader sees either the old folder or the new one.

    facts: more entries for config.json, as JSON types. files: content by name; config.json gets the
    hashes.
    card: the README.md.
    """
    document = {
        "format": _MODEL_FORMAT,
        "version": _MODEL_VERSION,
        "model": config.to_dict(),
        "facts": dict(facts),
        "files": {name: sha256(data) for name, data in files.items()},
    }
    contents = {**files, CONFIG_FILE: sealed(document)}
    if card is not None:
        contents[CARD_FILE] = card.encode()
    _write_folder(folder, contents)


def copy_model(source: Path, folder: Path) -> None:
    """Copy a model folder atomically."""
    files = sorted(filter(Path.is_file, source.iterdir()))
    _write_folder(folder, {file.name: file.read_bytes() for file in files})


def _write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new folder, which then replaces `folder`, or is removed after an error."""
    temporary = folder.with_name(folder.name + TEMPORARY)
    remove_folder(temporary)
    temporary.mkdir(parents=True)
    try:
        write_in_turn([(temporary / name, data) for name, data in contents.items()])
    except BaseException:
        remove_folder(temporary)
        raise
    swap_in(temporary, folder)


def swap_in(temporary: Path, folder: Path) -> None:
    """Rename `temporary` to `folder`.

    The old folder is renamed to its backup path first, and removed at the end.
    """
    backup = backup_path(folder)
    remove_folder(backup)
    if folder.exists():
        os.replace(folder, backup)
    os.replace(temporary, folder)
    sync_folder(folder.parent)
    remove_folder(backup)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, if it exists; of a link, only the link."""
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def backup_path(folder: Path) -> Path:
    """Return the path of the old `folder` while the new one replaces it."""
    return folder.with_name(folder.name + BACKUP)


def current_path(folder: Path) -> Path:
    """Return `folder`, or its backup path if the program was killed while it replaced the folder.

    Change nothing.
    """
    return backup_path(folder) if backup_path(folder).exists() and not folder.exists() else folder


def restore_backup(folder: Path) -> None:
    """Rename the backup to `folder` if the program was killed while it replaced the folder."""
    if current_path(folder) != folder:
        os.replace(backup_path(folder), folder)


def read_config(folder: Path) -> dict[str, Any]:
    """Read and check config.json.

    UsageError if there is no model, DamagedError if the file is damaged.
    """
    training, path = Command("train"), folder / CONFIG_FILE
    archive = next(filter(Path.is_file, folder.parents), None)
    check(archive is None, f"{archive} is no folder; unpack it, since models are read from files")
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}", Advice("train a model with", training))
    if not path.exists():
        raise UsageError(
            f"{folder} is not a model folder (it has no {CONFIG_FILE})",
            Advice("make one with", training),
        )
    document = read_sealed(path, _MODEL_FORMAT, _MODEL_VERSION, _MAX_CONFIG_BYTES)
    files = document.get("files")
    is_whole = (
        isinstance(files, dict)
        and {WEIGHTS_FILE} <= set(files) <= _HASHED_FILES
        and isinstance(document.get("facts"), dict)
        and "model" in document
    )
    check(is_whole, f"{path} is malformed", DamagedError)
    return document


def read_model_config(folder: Path, document: dict[str, Any] | None = None) -> ModelConfig:
    """Read the configuration of the model in `folder`; errors as `read_config`.

    document: the result of `read_config`, where it is at hand.
    """
    document = document or read_config(folder)
    try:
        return ModelConfig.from_dict(document["model"])
    except UsageError as error:
        raise DamagedError(f"{folder / CONFIG_FILE} is malformed: {error}") from None


def resolve_model_name(name: str) -> Path:
    """Return the folder that a name means: a model in the package for `pretrained` or `chinese`,
    else the folder of that name.

    A folder that is called so itself is `./pretrained`.
    """
    return IN_PACKAGE.get(name, Path(name))


def name_model(folder: Path) -> str:
    """Invert `resolve_model_name`, for a command."""
    for name, packaged in IN_PACKAGE.items():
        if folder == packaged:
            return name
    return f"./{folder}" if str(folder) in IN_PACKAGE else str(folder)


def describe_model(folder: Path) -> str:
    """Return what to call a model in a line for people."""
    if folder == CHINESE:
        return "the Chinese one in the package"
    return "the one in the package" if folder == PRETRAINED else str(folder)


def find_model_folder(folder: Path) -> Path:
    """Return the model folder for a given folder: `best` in a run folder, else the folder itself.

    A model in the package always has the path in IN_PACKAGE, by whatever path it is named.
    """
    best = current_path(folder / "best")
    model = best if best.is_dir() else folder
    packaged = {folder.resolve(): folder for folder in IN_PACKAGE.values()}
    return packaged.get(model.resolve(), model)


def default_model(runs: Sequence[Path] = (RUN, ADAPTED, LABELLED)) -> Path:
    """Return the model to use if none is given.

    It is that of CAPTCHA_OCR_MODEL, else the newest of what `runs` have as their best, else the
    package's own. UsageError if the variable names no model folder.
    """
    if named := os.environ.get(MODEL_VARIABLE):
        folder = resolve_model_name(named)
        check(
            (find_model_folder(folder) / CONFIG_FILE).exists(),
            f"{MODEL_VARIABLE} is {named}, which is not a model folder (it has no {CONFIG_FILE})",
        )
        return folder
    found = [current_path(run / "best") / CONFIG_FILE for run in runs]
    newest = max(filter(Path.exists, found), key=lambda file: file.stat().st_mtime, default=None)
    return PRETRAINED if newest is None else newest.parent
