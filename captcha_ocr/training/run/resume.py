"""Resume a stopped run: from which checkpoint, whether it may, and the trainer's state."""

import math
from pathlib import Path
from typing import Any

from captcha_ocr.errors import DamagedError, check
from captcha_ocr.inference.model_folder import current_path
from captcha_ocr.network.weights import load_into
from captcha_ocr.options.training import decays
from captcha_ocr.scores import loss_or_infinity
from captcha_ocr.system.console import counted, say
from captcha_ocr.training.run.checkpoint import (
    LAST,
    PREVIOUS,
    Checkpoint,
    find_last,
)
from captcha_ocr.training.run.folder import BEST, check_best, has_lost_its_checkpoints
from captcha_ocr.training.run.spec import Run
from captcha_ocr.training.step.trainer import Trainer


def resume(trainer: Trainer, run: Run) -> Path | None:
    """Bring the trainer to the state in which the run was stopped.

    Returns the folder of the checkpoint, None for a new run. The main process reads it for all.
    """
    document, optimizer = run.group.broadcast_from_main(lambda: _read_checkpoint(trainer, run))
    if document is None:
        return None
    checkpoint = Checkpoint.from_dict(Path(document["folder"]), document, optimizer)
    checkpoint.restore(trainer)
    if decays(trainer.config) and checkpoint.state["steps"] != trainer.total_steps:
        trainer.optimization.extend(trainer.config, trainer.total_steps, trainer.progress.step)
    if checkpoint.folder == run.out / PREVIOUS:
        say(f"{run.out / LAST} is damaged: resuming from the checkpoint before it")
    progress = trainer.progress
    done = counted(progress.epoch, "epoch")
    if progress.batch:
        done += f" and {counted(progress.batch, 'step')}"
    run.tell(f"resumed    after {done}, from {checkpoint.folder}")
    return checkpoint.folder


def _read_checkpoint(trainer: Trainer, run: Run) -> tuple[dict[str, Any] | None, bytes]:
    """Find, read and check the checkpoint to resume from, and load its weights.

    Returns its document, with its folder, and the optimiser's tensors; None for a new run.
    UsageError for a checkpoint of a run that was begun with other settings.
    """
    folder = _find_folder(run.out, run.options.resume, run.replaces)
    if folder is None:
        return None, b""
    checkpoint = Checkpoint.read(folder)
    spec, progress = checkpoint.spec, checkpoint.progress
    changes = [] if spec.is_extended_by(run.spec) else spec.changes(run.spec)
    check(
        not changes,
        f"{folder} is of another run ({'; '.join(changes)}); `init` takes its weights alone",
    )
    before, now = checkpoint.state.get("steps_per_epoch"), trainer.partition.steps
    check(
        before == now,
        f"{folder} is of a run with {before} steps an epoch, of which "
        f"{counted(run.group.world_size, 'process')} would take {now}; "
        "start as many processes as it had",
    )
    load_into(trainer.model, folder)
    if progress.best_exact >= 0 or current_path(folder.parent / BEST).exists():
        _find_best_epoch(checkpoint, run)
        left = trainer.epochs is None or progress.epoch < trainer.epochs
        check(
            left or progress.best_exact >= 0,
            f"{folder} has done all its epochs and has no best model beside it; "
            "continue it with more `epochs`",
        )
    return {**checkpoint.to_dict(), "folder": str(folder)}, checkpoint.optimizer


def _find_folder(out: Path, resume: str, replaces: bool) -> Path | None:
    """Return the checkpoint folder: the newest whole one in `out`, else that which `resume` names.

    Returns None if there is neither.
    """
    checkpoint = None if replaces else find_last(out)
    if checkpoint is not None:
        return checkpoint
    if resume in ("auto", "never"):
        if has_lost_its_checkpoints(out) and not replaces:
            raise DamagedError(
                f"{out} has no checkpoint to resume from; start again with `resume` never `force`, "
                "or continue from another checkpoint in another `out` with `resume` PATH"
            )
        return None
    named = Path(resume)
    inside = out.resolve() in (named.resolve(), *named.resolve().parents)
    check(
        not inside,
        f"{named} is in {out}, which holds no undamaged run to resume; choose another `out`",
    )
    return find_last(named) or named


def _find_best_epoch(checkpoint: Checkpoint, run: Run) -> None:
    """Set the best epoch so far, as far as a resumed run knows it.

    A run that was killed between writing `best` and `last` has a newer best model than the
    checkpoint knows.
    """
    folder, progress = checkpoint.folder.parent, checkpoint.progress
    facts: dict[str, Any] = {}
    try:
        facts = check_best(folder, checkpoint.spec)
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
