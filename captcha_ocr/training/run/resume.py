"""Resume a stopped run: from which checkpoint, whether it may, and the trainer's state."""

import math
from pathlib import Path

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
    find_checkpoint,
    find_last,
)
from captcha_ocr.training.run.folder import BEST, check_best, has_lost_its_checkpoints
from captcha_ocr.training.run.spec import Run
from captcha_ocr.training.step.trainer import Trainer


def resume(trainer: Trainer, run: Run) -> Path | None:
    """Bring the trainer to the state in which the run was stopped.

    Returns the folder of the checkpoint, None for a new run.
    """
    checkpoint = run.group.broadcast_from_main(
        lambda: _read_source(trainer, run),
        dump=lambda checkpoint: b"" if checkpoint is None else checkpoint.dump(),
        load=lambda data: Checkpoint.load(data) if data else None,
    )
    if checkpoint is None:
        return None
    checkpoint.restore(trainer)
    if decays(trainer.config) and checkpoint.state["steps"] != trainer.total_steps:
        trainer.optimization.extend(trainer.config, trainer.total_steps, trainer.progress.step)
    if checkpoint.folder == run.out / PREVIOUS:
        say(f"{run.out / LAST} is damaged: resuming from the checkpoint before it")
    progress = trainer.progress
    steps = f" and {counted(progress.batch, 'step')}" if progress.batch else ""
    run.tell(
        f"resumed    after {counted(progress.epoch, 'epoch')}{steps}, from {checkpoint.folder}"
    )
    return checkpoint.folder


def _read_source(trainer: Trainer, run: Run) -> Checkpoint | None:
    """Find, read and check the checkpoint to resume from, and load its weights.

    Returns None for a new run.
    """
    folder = _find_folder(run.out, run.options.resume, run.replaces)
    if folder is None:
        return None
    checkpoint = Checkpoint.read(folder)
    _check_same_run(checkpoint, trainer, run)
    load_into(trainer.model, folder)
    progress = checkpoint.progress
    if progress.best_exact >= 0 or current_path(folder.parent / BEST).exists():
        progress.best_epoch, progress.best_exact, progress.best_loss = _find_best_epoch(
            checkpoint, run
        )
        left = trainer.epochs is None or progress.epoch < trainer.epochs
        check(
            left or progress.best_exact >= 0,
            f"{folder} has done all its epochs and has no best model beside it; "
            "continue it with more `epochs`",
        )
    return checkpoint


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
    return find_checkpoint(named)


def _check_same_run(checkpoint: Checkpoint, trainer: Trainer, run: Run) -> None:
    """Refuse a checkpoint of a run that was begun with other settings, and name them."""
    spec = checkpoint.spec
    changes = [] if spec.is_extended_by(run.spec) else spec.changes(run.spec)
    check(
        not changes,
        f"{checkpoint.folder} is of another run ({'; '.join(changes)}); "
        "`init` takes its weights alone",
    )
    before, now = checkpoint.state.get("steps_per_epoch"), trainer.partition.steps
    check(
        before == now,
        f"{checkpoint.folder} is of a run with {before} steps an epoch, of which "
        f"{counted(run.group.world_size, 'process')} would take {now}; "
        "start as many processes as it had",
    )


def _find_best_epoch(checkpoint: Checkpoint, run: Run) -> tuple[int, float, float]:
    """Return the number, the exact match and the loss of the best epoch, as a resumed run knows."""
    folder, epoch = checkpoint.folder.parent, checkpoint.progress.epoch
    try:
        facts = check_best(folder, checkpoint.spec)
    except DamagedError:
        if folder == run.out:
            raise
        facts = None
    if facts is None or (facts["epoch"] > epoch and folder != run.out):
        # No best model, or one of epochs after this checkpoint, which the run in `out` has yet to
        # do in its own way.
        run.tell(
            f"best       unknown for the epochs before, in {folder}; "
            "the best of the coming epochs is kept"
        )
        return epoch, -1.0, math.inf
    # A run that was killed between writing `best` and `last` has a newer best model than the
    # checkpoint knows.
    validation = facts["validation"]
    return facts["epoch"], validation["exact_match"], loss_or_infinity(validation["loss"])
