"""Checkpoints in `last` and `previous`: model folders with what a stopped run needs to continue."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError, check
from captcha_ocr.inference.model_folder import (
    OPTIMIZER_FILE,
    STATE_FILE,
    read_config,
    restore_backup,
    swap_in,
)
from captcha_ocr.network.weights import save_model
from captcha_ocr.system.documents import parse_json
from captcha_ocr.system.files import read_checked
from captcha_ocr.training.run.spec import RUN_VERSION, RunSpec
from captcha_ocr.training.step.optim import name_moments
from captcha_ocr.training.step.progress import Progress
from captcha_ocr.training.step.trainer import Trainer

LAST, PREVIOUS = "last", "previous"


@dataclass
class Checkpoint:
    """What a checkpoint holds beside the model.

    spec: the run. state: of the trainer, as JSON types. optimizer: the optimiser's tensors, as the
    bytes of a safetensors file.
    """

    folder: Path
    spec: RunSpec
    progress: Progress
    state: dict[str, Any]
    optimizer: bytes

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """Read and check a checkpoint's files.

        UsageError for a model without them, or one of another version; DamagedError if they are not
        whole.
        """
        files = read_config(folder)["files"]
        check(
            STATE_FILE in files and OPTIMIZER_FILE in files,
            f"{folder} is a model, but no checkpoint to resume from",
        )
        state = read_checked(folder / STATE_FILE, files[STATE_FILE])
        optimizer = read_checked(folder / OPTIMIZER_FILE, files[OPTIMIZER_FILE])
        return cls.from_dict(folder, parse_json(folder / STATE_FILE, state), optimizer)

    @classmethod
    def from_dict(cls, folder: Path, document: dict[str, Any], optimizer: bytes) -> "Checkpoint":
        """Invert `to_dict`; errors as `read`."""
        check(
            document.get("version") == RUN_VERSION,
            f"{folder} is a checkpoint of another version of captcha-ocr; "
            "train again, from its weights with `init`",
        )
        try:
            spec, progress = RunSpec.from_dict(document["run"]), Progress(**document["progress"])
            return cls(folder, spec, progress, document["state"], optimizer)
        except (KeyError, TypeError, UsageError) as error:
            raise _damaged(folder, error) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the content of state.json: everything but the tensors."""
        return {
            "version": RUN_VERSION,
            "run": self.spec.to_dict(),
            "progress": asdict(self.progress),
            "state": self.state,
        }

    def restore(self, trainer: Trainer) -> None:
        """Bring a trainer's optimiser, schedule and progress to the state of the checkpoint.

        DamagedError if they do not fit.
        """
        optimizer = trainer.optimization.optimizer
        try:
            state: dict[int, dict[str, torch.Tensor]] = {}
            for key, tensor in load_tensors(self.optimizer).items():
                number, name = key.split(".", 1)
                state.setdefault(int(number), {})[name] = tensor
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
            for parameter, moments in optimizer.state.items():
                for name in name_moments(optimizer, parameter):
                    # In the parameter's own layout, since the fused kernels walk both in the order
                    # of memory.
                    moments[name] = torch.empty_like(parameter).copy_(moments[name])
            trainer.restore(self.state)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            RuntimeError,
            OverflowError,
            SafetensorError,
        ) as error:
            raise _damaged(self.folder, error) from None
        trainer.progress = self.progress


def _damaged(folder: Path, error: Exception) -> DamagedError:
    return DamagedError(
        f"the checkpoint in {folder} does not fit this training: {' '.join(str(error).split())}"
    )


def save_last(run: Path, spec: RunSpec, trainer: Trainer) -> None:
    """Write `last` as `save_checkpoint` does; the one before becomes `previous`."""
    last, previous = run / LAST, run / PREVIOUS
    if last.exists():
        swap_in(last, previous)
    save_checkpoint(last, spec, trainer)


def save_checkpoint(folder: Path, spec: RunSpec, trainer: Trainer) -> None:
    """Write a model folder with all that a stopped run needs to continue."""
    tensors = {}
    for number, moments in trainer.optimization.optimizer.state_dict()["state"].items():
        for name, tensor in moments.items():
            tensors[f"{number}.{name}"] = tensor.contiguous().cpu()
    optimizer = save_tensors(tensors)
    checkpoint = Checkpoint(folder, spec, trainer.progress, trainer.state(), optimizer)
    files = {OPTIMIZER_FILE: optimizer, STATE_FILE: json.dumps(checkpoint.to_dict()).encode()}
    save_model(folder, trainer.model, {"epoch": trainer.progress.epoch}, files=files)


def find_last(run: Path) -> Path | None:
    """Return the newest whole checkpoint of a run; None if it has none.

    DamagedError if none is whole.
    """
    for name in (LAST, PREVIOUS):
        restore_backup(run / name)
    reasons = []
    for folder in (run / LAST, run / PREVIOUS):
        if not folder.exists():
            continue
        try:
            check_files(folder)
            return folder
        except CaptchaOcrError as error:
            reasons.append(str(error))
    if reasons:
        raise DamagedError(
            f"no checkpoint in {run} is whole: {'; '.join(reasons)}; "
            "start again with `resume` never `force`"
        )
    return None


def check_files(folder: Path) -> dict[str, Any]:
    """Return the content of config.json.

    DamagedError unless every file that it lists is as it was written.
    """
    document = read_config(folder)
    for name, expected in document["files"].items():
        read_checked(folder / name, expected)
    return document
