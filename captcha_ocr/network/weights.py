"""Networks to model folders and back. Nothing here, nor anywhere else in the project, is pickled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from captcha_ocr.config import differences
from captcha_ocr.errors import DamagedError, check
from captcha_ocr.inference.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    model_config_in,
    read_config,
    write_model_folder,
)
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.system.files import read_checked

HEADER_BYTES = 1_000_000  # of a weights file, at most, beside its numbers


def save_model(
    folder: Path,
    model: ResNet18,
    facts: Mapping[str, Any],
    card: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder at once, with further `files` by name (`write_model_folder`)."""
    write_model_folder(folder, model.config, facts, {WEIGHTS_FILE: weights_of(model), **(files or {})}, card)


def weights_of(model: ResNet18) -> bytes:
    """The model's parameters and buffers as a safetensors payload."""
    return save_tensors({name: t.contiguous().cpu() for name, t in model.state_dict().items()})


def load_model(folder: Path) -> ResNet18:
    """The model in `folder`, on the CPU, in evaluation mode; its files are checked first."""
    document = read_config(folder)
    config = model_config_in(folder, document)
    # Built without memory of its own, so that a stranger's config.json cannot ask for any.
    with torch.device("meta"):
        model = ResNet18(config)
    known = model.state_dict()
    most_bytes = sum(8 * tensor.numel() for tensor in known.values()) + HEADER_BYTES
    data = read_checked(folder / WEIGHTS_FILE, document["files"][WEIGHTS_FILE], most_bytes)
    try:
        # Weights may lie there in half precision, to be smaller; they are computed with in float32.
        tensors = {name: t.float() if t.is_floating_point() else t for name, t in load_tensors(data).items()}
        if any(name in known and tensor.dtype != known[name].dtype for name, tensor in tensors.items()):
            raise RuntimeError("some of its numbers are of another type")
        model.load_state_dict(tensors, assign=True)
    except (SafetensorError, RuntimeError, KeyError) as error:  # the last for a type of numbers that torch has not
        reason = " ".join(str(error).split())
        raise DamagedError(f"{folder / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {reason}") from None
    return model.eval()


def load_into(model: ResNet18, folder: Path) -> None:
    """Take over the weights in `folder`, which must be of the same alphabet, length, size and network."""
    other = load_model(folder)
    changed = differences(other.config, model.config)
    check(not changed, f"the model in {folder} differs from the one to train ({'; '.join(changed)})")
    model.load_state_dict(other.state_dict())
