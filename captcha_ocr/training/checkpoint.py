"""Everything besides the model that a stopped run needs to go on, in the folder `last`."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from captcha_ocr.errors import CaptchaOcrError, DamagedError, check
from captcha_ocr.inference.model_folder import OPTIMIZER_FILE, STATE_FILE, put_in_place, read_config, recover
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.weights import save_model
from captcha_ocr.system.documents import alike, parse_json
from captcha_ocr.system.files import read_checked

LAST, PREVIOUS = "last", "previous"
MOMENTS = ("exp_avg", "exp_avg_sq")  # what Adam keeps of every parameter, beside its step


@dataclass
class Progress:
    """How far a run has come: finished epochs, steps of the one in progress (`batch`) and of all, and the best so far.

    run: what is run, from `run.describe_run`. rows: of metrics.
    """

    run: dict[str, Any]
    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_exact: float = -1.0
    best_loss: float = float("inf")
    rows: list[dict[str, Any]] = field(default_factory=list)


def save_last(
    run: Path, model: ResNet18, optimizer: torch.optim.Optimizer, progress: Progress, state: dict[str, Any]
) -> None:
    """Write `last`, as `save_checkpoint` does; the one that was there becomes `previous`."""
    last, previous = run / LAST, run / PREVIOUS
    if last.exists():
        put_in_place(last, previous)
    save_checkpoint(last, model, optimizer, progress, state)


def save_checkpoint(
    folder: Path, model: ResNet18, optimizer: torch.optim.Optimizer, progress: Progress, state: dict[str, Any]
) -> None:
    """Write a model folder with all that a stopped run needs. state: what `progress` does not hold, as JSON types."""
    tensors = optimizer.state_dict()
    document = {"progress": asdict(progress), "state": state, "groups": tensors["param_groups"]}
    beside = {OPTIMIZER_FILE: save_tensors(flatten(tensors["state"])), STATE_FILE: json.dumps(document).encode()}
    save_model(folder, model, {"epoch": progress.epoch}, beside=beside)


def load_last(run: Path) -> Path | None:
    """The folder to go on from: `last`, or `previous` where `last` is not whole; None if there is neither."""
    for name in (LAST, PREVIOUS):
        recover(run / name)
    folders = [run / name for name in (LAST, PREVIOUS) if (run / name).exists()]
    reasons = []
    for folder in folders:
        try:
            check_whole(folder)
            return folder
        except CaptchaOcrError as error:
            reasons.append(str(error))
    if reasons:
        raise DamagedError(
            f"no checkpoint in {run} is whole: {'; '.join(reasons)}; begin anew with --resume never --force"
        )
    return None


def checkpoint_named(path: Path) -> Path:
    """The checkpoint folder that `path` means: itself, or the newest whole one of a run folder."""
    return load_last(path) or path


def check_whole(folder: Path) -> dict[str, Any]:
    """The content of config.json; DamagedError unless every file that it names is as it was written."""
    document = read_config(folder)
    for name, expected in document["files"].items():
        read_checked(folder / name, expected)
    return document


def read_checkpoint(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The checked content of state.json and of optimizer.safetensors; UsageError for a model without them."""
    files = read_config(folder)["files"]
    check(STATE_FILE in files and OPTIMIZER_FILE in files, f"{folder} is a model, but no checkpoint to go on from")
    state, tensors = (read_checked(folder / name, files[name]) for name in (STATE_FILE, OPTIMIZER_FILE))
    document = parse_json(folder / STATE_FILE, state)
    example = {"progress": asdict(Progress({})), "state": {}, "groups": []}
    if not alike(example, document) or not all(map(is_row, document["progress"]["rows"])):
        raise DamagedError(f"{folder / STATE_FILE} is malformed")
    return document, tensors


def is_row(row: Any) -> bool:
    """Whether a JSON value is a row of metrics."""
    if not isinstance(row, dict) or row.get("by") not in ("step", "epoch"):
        return False
    measured = ("seconds", "training_loss", "training_exact", "learning_rate", "images_per_s")
    validated = ("validation_loss", "validation_exact") if row["by"] == "epoch" else ()
    memory = {"peak_memory_mb": None, "peak_device_memory_mb": None}
    return alike({"by": "", "epoch": 0, "step": 0, **dict.fromkeys(measured + validated, 0.0), **memory}, row)


def restore(
    document: dict[str, Any], tensors: bytes, optimizer: torch.optim.Optimizer
) -> tuple[Progress, dict[str, Any]]:
    """Bring the optimiser to what `read_checkpoint` read; returns the progress and the further state."""
    own, numbers = optimizer.state_dict()["param_groups"], of_numbers(document["groups"])
    if not alike(of_numbers(own), numbers):
        raise DamagedError(f"a checkpoint's {STATE_FILE} is malformed: it is of another optimiser")
    groups = [{**group, **row, "betas": tuple(row["betas"])} for group, row in zip(own, numbers, strict=True)]
    try:
        optimizer.load_state_dict({"state": unflatten(load_tensors(tensors)), "param_groups": groups})
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise DamagedError(f"a checkpoint's {OPTIMIZER_FILE} is malformed: {error}") from None
    for parameter, state in optimizer.state.items():
        if not is_of_adam(parameter, state):
            raise DamagedError(f"a checkpoint's {OPTIMIZER_FILE} is malformed: it is of another network")
        for name in MOMENTS:
            # In the parameter's own layout: the fused kernels walk both in the order of memory.
            state[name] = torch.empty_like(parameter).copy_(state[name])
    return Progress(**document["progress"]), document["state"]


def is_of_adam(parameter: Any, state: dict[str, torch.Tensor]) -> bool:
    """Whether Adam could have written this of a parameter; what it wrote of none has a number in its place."""
    if not isinstance(parameter, torch.Tensor) or set(state) != {"step", *MOMENTS}:
        return False
    return state["step"].shape == () and all(state[name].shape == parameter.shape for name in MOMENTS)


def of_numbers(groups: list[Any]) -> list[Any]:
    """What of an optimiser's groups is a number, as JSON has it: switches are others on another device."""
    return [
        {name: value for name, value in group.items() if name == "betas" or type(value) in (int, float)}
        if isinstance(group, dict)
        else group
        for group in groups
    ]


def flatten(state: dict[int, dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """An optimiser's state, {parameter: {name: tensor}}, as {"parameter.name": tensor}."""
    return {
        f"{number}.{name}": tensor.contiguous().cpu()
        for number, entries in state.items()
        for name, tensor in entries.items()
    }


def unflatten(tensors: dict[str, torch.Tensor]) -> dict[int, dict[str, torch.Tensor]]:
    """The inverse of `flatten`."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    return state
