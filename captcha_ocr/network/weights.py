"""Networks to model folders and back, without pickle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from captcha_ocr.errors import DamagedError, check
from captcha_ocr.inference.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    parse_model_config,
    read_config,
    write_model_folder,
)
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.options.declaration import differences
from captcha_ocr.system.files import read_checked

_MAX_HEADER_BYTES = 1_000_000  # of a weights file


def save_model(
    folder: Path,
    model: ResNet18,
    facts: Mapping[str, Any],
    card: str | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder in one step, with further `files` by name; see `write_model_folder`."""
    weights = save_tensors(
        {name: tensor.contiguous().cpu() for name, tensor in model.state_dict().items()}
    )
    write_model_folder(folder, model.config, facts, {WEIGHTS_FILE: weights, **(files or {})}, card)


def load_model(folder: Path) -> ResNet18:
    """Read the model in `folder`, on the CPU and in evaluation mode.

    UsageError if there is none, DamagedError.
    """
    document = read_config(folder)
    config = parse_model_config(folder, document)
    # A meta device allocates nothing, so a stranger's config.json cannot exhaust the memory.
    with torch.device("meta"):
        model = ResNet18(config)
    known = model.state_dict()
    max_bytes = sum(8 * tensor.numel() for tensor in known.values()) + _MAX_HEADER_BYTES
    data = read_checked(folder / WEIGHTS_FILE, document["files"][WEIGHTS_FILE], max_bytes)
    try:
        # A file may store half precision to be smaller; the network computes in float32.
        tensors = load_tensors(data)
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                tensors[name] = tensor.float()
            if name in known and tensors[name].dtype != known[name].dtype:
                raise RuntimeError("some of its numbers are of another type")
        model.load_state_dict(tensors, assign=True)
    # KeyError: a type of numbers that torch lacks.
    except (SafetensorError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise DamagedError(
            f"{folder / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {reason}"
        ) from None
    return model.eval()


def load_into(model: ResNet18, folder: Path) -> None:
    """Load the weights in `folder` into a model.

    UsageError unless alphabet, lengths, size and network are the same.
    """
    other = load_model(folder)
    changed = [f"{name}: {change}" for name, change in differences(other.config, model.config)]
    check(
        not changed, f"the model in {folder} differs from the one to train ({'; '.join(changed)})"
    )
    model.load_state_dict(other.state_dict())
