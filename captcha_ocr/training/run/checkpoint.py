"""Checkpoints: model folders with what a stopped run needs to continue, and how it continues.

A run has the newest in `last` and the one before it in `previous`.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from captcha_ocr.errors import DamagedError, UsageError, check
from captcha_ocr.inference.model_folder import (
    OPTIMIZER_FILE,
    STATE_FILE,
    current_path,
    read_config,
    swap_in,
)
from captcha_ocr.network.weights import load_into, save_model
from captcha_ocr.options.training import decays
from captcha_ocr.scores import loss_or_infinity
from captcha_ocr.system.console import counted, say
from captcha_ocr.system.documents import parse_json
from captcha_ocr.system.files import read_checked
from captcha_ocr.training.run.folder import (
    BEST,
    LAST,
    PREVIOUS,
    check_best,
    find_last,
    has_lost_its_checkpoints,
)
from captcha_ocr.training.run.spec import RUN_VERSION, Run, RunSpec
from captcha_ocr.training.step.optim import name_moments
from captcha_ocr.training.step.trainer import Progress, Trainer

_MISFITS = (  # what torch and Python raise where a checkpoint does not fit
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
    OverflowError,
    SafetensorError,
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
    document = {
        "version": RUN_VERSION,
        "run": spec.to_dict(),
        "progress": asdict(trainer.progress),
        "state": trainer.state(),
    }
    files = {OPTIMIZER_FILE: save_tensors(tensors), STATE_FILE: json.dumps(document).encode()}
    save_model(folder, trainer.model, {"epoch": trainer.progress.epoch}, files=files)


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimiser the tensors in a checkpoint."""
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state[int(number)][name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for parameter, moments in optimizer.state.items():
        for name in name_moments(optimizer, parameter):
            # In the parameter's own layout, since the fused kernels walk both in the order of
            # memory.
            moments[name] = torch.empty_like(parameter).copy_(moments[name])


def resume(trainer: Trainer, run: Run) -> Path | None:
    """Bring the trainer to the state in which the run was stopped.

    Returns the folder of the checkpoint, None for a new run. The main process reads it for all.
    UsageError for a checkpoint of another run or version; DamagedError for one that does not fit.
    """
    document, optimizer = run.group.broadcast_from_main(lambda: _read_checkpoint(trainer, run))
    if document is None:
        return None
    folder, progress = Path(document["folder"]), Progress(**document["progress"])
    trainer.progress = progress
    try:
        _restore_optimizer(trainer.optimization.optimizer, load_tensors(optimizer))
        trainer.restore(document["state"])
        if decays(trainer.config) and document["state"]["steps"] != trainer.total_steps:
            trainer.optimization.extend(trainer.config, trainer.total_steps, progress.step)
    except _MISFITS as error:
        raise _damaged(folder, error) from None
    if folder == run.out / PREVIOUS:
        say(f"{run.out / LAST} is damaged: resuming from the checkpoint before it")
    done = counted(progress.epoch, "epoch")
    if progress.batch:
        done += f" and {counted(progress.batch, 'step')}"
    run.tell(f"resumed    after {done}, from {folder}")
    return folder


def _damaged(folder: Path, error: Exception) -> DamagedError:
    return DamagedError(
        f"the checkpoint in {folder} does not fit this training: {' '.join(str(error).split())}"
    )


def _read_checkpoint(trainer: Trainer, run: Run) -> tuple[dict[str, Any] | None, bytes]:
    """Find, read and check the checkpoint to resume from, and load its weights.

    Returns its document, with its folder, and the optimiser's tensors; None for a new run. Errors
    as `resume`.
    """
    folder = _find_folder(run.out, run.options.resume, run.replaces)
    if folder is None:
        return None, b""
    files, path = read_config(folder)["files"], folder / STATE_FILE
    check(
        STATE_FILE in files and OPTIMIZER_FILE in files,
        f"{folder} is a model, but no checkpoint to resume from",
    )
    document = parse_json(path, read_checked(path, files[STATE_FILE]))
    optimizer = read_checked(folder / OPTIMIZER_FILE, files[OPTIMIZER_FILE])
    check(
        document.get("version") == RUN_VERSION,
        f"{folder} is a checkpoint of another version of captcha-ocr; "
        "train again, from its weights with `init`",
    )
    try:
        spec, progress = RunSpec.from_dict(document["run"]), Progress(**document["progress"])
        before = document["state"]["steps_per_epoch"]
    except (KeyError, TypeError, UsageError) as error:
        raise _damaged(folder, error) from None
    changes = [] if spec.is_extended_by(run.spec) else spec.changes(run.spec)
    check(
        not changes,
        f"{folder} is of another run ({'; '.join(changes)}); `init` takes its weights alone",
    )
    check(
        before == trainer.partition.steps,
        f"{folder} is of a run with {before} steps an epoch, of which "
        f"{counted(run.group.world_size, 'process')} would take {trainer.partition.steps}; "
        "start as many processes as it had",
    )
    load_into(trainer.model, folder)
    if progress.best_exact >= 0 or current_path(folder.parent / BEST).exists():
        _find_best_epoch(folder.parent, spec, progress, run)
        left = trainer.epochs is None or progress.epoch < trainer.epochs
        check(
            left or progress.best_exact >= 0,
            f"{folder} has done all its epochs and has no best model beside it; "
            "continue it with more `epochs`",
        )
    return {**document, "progress": asdict(progress), "folder": str(folder)}, optimizer


def _find_folder(out: Path, resume: str, replaces: bool) -> Path | None:
    """Return the checkpoint folder: the newest whole one in `out`, else that which `resume` names.

    Returns None if there is neither.
    """
    checkpoint = None if replaces else find_last(out)
    if checkpoint is not None:
        return checkpoint
    if resume in ("auto", "never"):
        check(
            replaces or not has_lost_its_checkpoints(out),
            f"{out} has no checkpoint to resume from; start again with `resume` never `force`, "
            "or continue from another checkpoint in another `out` with `resume` PATH",
            DamagedError,
        )
        return None
    named = Path(resume)
    inside = out.resolve() in (named.resolve(), *named.resolve().parents)
    check(
        not inside,
        f"{named} is in {out}, which holds no undamaged run to resume; choose another `out`",
    )
    return find_last(named) or named


def _find_best_epoch(folder: Path, spec: RunSpec, progress: Progress, run: Run) -> None:
    """Set the best epoch so far, as far as a run that resumes from one in `folder` knows it.

    A run that was killed between writing `best` and `last` has a newer best model than the
    checkpoint knows.
    """
    facts: dict[str, Any] = {}
    try:
        facts = check_best(folder, spec)
    except DamagedError:
        if folder == run.out:
            raise
    if facts and (facts["epoch"] <= progress.epoch or folder == run.out):
        validation = facts["validation"]
        progress.best_epoch, progress.best_exact = facts["epoch"], validation["exact_match"]
        progress.best_loss = loss_or_infinity(validation["loss"])
        return
    # No best model, or one of epochs after this checkpoint, which the run in `out` has yet to do in
    # its own way.
    run.tell(
        f"best       unknown for the epochs before, in {folder}; "
        "the best of the coming epochs is kept"
    )
    progress.best_epoch, progress.best_exact, progress.best_loss = progress.epoch, -1.0, math.inf
