"""Networks to model folders and back, without pickle; weights from one network to another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from captcha_ocr.errors import DamagedError, check
from captcha_ocr.inference.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    read_config,
    read_model_config,
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
    config = read_model_config(folder, document)
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
        raise DamagedError(
            f"{folder / WEIGHTS_FILE} does not fit {CONFIG_FILE}: {' '.join(str(error).split())}"
        ) from None
    return model.eval()


def load_into(model: ResNet18, folder: Path) -> None:
    """Load the weights in `folder` into a model.

    UsageError unless alphabet, lengths, size and network are the same.
    """
    other = load_model(folder)
    changes = [f"{name}: {change}" for name, change in differences(other.config, model.config)]
    check(
        not changes, f"the model in {folder} differs from the one to train ({'; '.join(changes)})"
    )
    model.load_state_dict(other.state_dict())


def copy_matching_weights(source: ResNet18, target: ResNet18) -> None:
    """Copy the weights of `source` to `target`, which has the same NetworkConfig.

    Convolutions and norms are copied; the first convolution is adapted to another number of
    channels. Of the head, the characters that both models know are copied, in either case, if both
    or neither normalise its features. With CTC no weight depends on lengths or sizes.
    """
    state = target.state_dict()
    both_alike = type(source.norm) is type(target.norm)
    for name, tensor in source.state_dict().items():
        if name == "stem.0.weight" and tensor.shape != state[name].shape:  # (O, C, H, W)
            # Grey images in colour have equal channels: each takes its part of the sum over the old
            # channels.
            channels = state[name].shape[1]
            state[name] = tensor.sum(1, keepdim=True).expand(-1, channels, -1, -1) / channels
        elif name.startswith(("head.", "norm.")) and not both_alike:
            continue
        elif name.startswith("head."):
            _copy_characters(
                tensor, source.config.class_names, state[name], target.config.class_names
            )
        elif name != "temperature":
            state[name] = tensor
    target.load_state_dict(state)


def _copy_characters(source: Tensor, known: list[str], target: Tensor, wanted: list[str]) -> None:
    """Copy a head's weights or biases (positions * K, …) of the characters that both class lists
    have.
    """
    source = source.view(-1, len(known), *source.shape[1:])
    target = target.view(-1, len(wanted), *target.shape[1:])
    positions = min(len(source), len(target))
    for number, name in enumerate(wanted):
        same = next((c for c in (name, name.lower(), name.upper()) if c in known), None)
        if same is not None:
            target[:positions, number] = source[:positions, known.index(same)]


def blend_weights(model: ResNet18, weights: Mapping[str, Tensor], share: float) -> None:
    """Replace the weights of a model, and the statistics of its norms, by their mean with others.

    share: that of the others in it, 0 to 1.
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.lerp_(weights[name], share)


def mean_model(folders: Sequence[Path]) -> ResNet18:
    """Return a model with the mean of the weights in some folders, whose models differ in nothing
    else.
    """
    model = load_model(folders[0])
    for number, folder in enumerate(folders[1:], 2):
        blend_weights(model, load_model(folder).state_dict(), 1 / number)
    return model
