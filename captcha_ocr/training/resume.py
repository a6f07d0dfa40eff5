"""A stopped run goes on: which checkpoint it goes on from, whether it may, and the trainer brought to where it was."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

from captcha_ocr.config import decays
from captcha_ocr.errors import DamagedError, check
from captcha_ocr.inference.model_folder import STATE_FILE, standing
from captcha_ocr.metrics import loss_of
from captcha_ocr.network.weights import load_into
from captcha_ocr.system.console import counted, say
from captcha_ocr.system.documents import alike
from captcha_ocr.training.checkpoint import LAST, PREVIOUS, checkpoint_named, load_last, read_checkpoint, restore
from captcha_ocr.training.optim import make_schedule
from captcha_ocr.training.run_folder import (
    BEST,
    Run,
    changes,
    check_best,
    check_description,
    has_lost_its_checkpoints,
    is_longer,
)
from captcha_ocr.training.trainer import Trainer

COURSE = (  # what changes in a schedule's state while it runs
    *("last_epoch", "_step_count", "_last_lr", "_is_initial", "_get_lr_called_within_step"),
    *("best", "cooldown_counter", "num_bad_epochs"),
)


def go_on(trainer: Trainer, run: Run, resume: str) -> Path | None:
    """Bring the trainer to where a run was stopped, if one was; returns, in the first process, the checkpoint."""
    checkpoint: Path | None = None
    tensors = b""

    def read() -> bytes:
        nonlocal checkpoint, tensors
        checkpoint = find_checkpoint(run.out, resume, run.replace)
        if checkpoint is None:
            return b""
        document, tensors = read_checkpoint(checkpoint)
        progress = document["progress"]
        check_goes_on(checkpoint, progress["run"], document["state"], trainer, run)
        load_into(trainer.model, checkpoint)
        if progress["best_exact"] >= 0 or standing(checkpoint.parent / BEST).exists():
            progress |= best_beside(checkpoint, progress, run)
            left = trainer.epochs is None or progress["epoch"] < trainer.epochs
            refusal = f"{checkpoint} has done all its epochs, and no best model lies beside it; --epochs trains it on"
            check(left or progress["best_exact"] >= 0, refusal)
        return json.dumps(document).encode()

    document = trainer.processes.from_first(read)
    if not document:
        return None
    progress, state = restore(json.loads(document), trainer.processes.from_first(lambda: tensors), trainer.optimizer)
    progress.run = run.described
    trainer.progress = progress
    try:
        whole = fits(trainer, state)
        if whole:
            trainer.restore(state)
    except (RuntimeError, ValueError, OverflowError):  # a number that no tensor holds
        whole = False
    if not whole:
        raise DamagedError(f"the checkpoint in {run.out} is malformed: its state is of another kind of training")
    if decays(trainer.config) and state["steps"] != trainer.steps:
        lengthen(trainer)
    if checkpoint == run.out / PREVIOUS:
        say(f"{run.out / LAST} is not whole: going on from the checkpoint before it")
    within = f" and {counted(progress.batch, 'step')}" if progress.batch else ""
    run.tell(f"resumed    after {counted(progress.epoch, 'epoch')}{within}, from {checkpoint}")
    return checkpoint


def fits(trainer: Trainer, state: dict[str, Any]) -> bool:
    """Whether a checkpoint's state, and its progress, are of the trainer's kind: its schedule could else fail later."""
    own, progress, steps = json.loads(json.dumps(trainer.state())), trainer.progress, trainer.share.steps
    has_come = progress.epoch >= 0 and 0 <= progress.batch <= steps
    if not has_come or progress.step != progress.epoch * steps + progress.batch or not alike(own, state):
        return False
    if any(state[tally][name] < 0 for tally in ("epoch", "recent") for name in ("images", "seconds")):
        return False
    before, now = state["schedule"], own["schedule"]
    is_longer = decays(trainer.config) and state["steps"] != trainer.steps  # whose schedule is made anew
    is_same = is_longer or all(before[name] == value for name, value in now.items() if name not in COURSE)
    by_epoch = trainer.config.schedule == "plateau"
    return is_same and before["last_epoch"] == (progress.epoch if by_epoch else progress.step)


def find_checkpoint(out: Path, resume: str, replace: bool) -> Path | None:
    """The checkpoint to go on from: the newest whole one in `out`, else the one that `resume` names, else None."""
    checkpoint = None if replace else load_last(out)
    if checkpoint is not None:
        return checkpoint
    if resume in ("auto", "never"):
        if has_lost_its_checkpoints(out) and not replace:
            raise DamagedError(
                f"{out} has no checkpoint to go on from any more; begin anew with --resume never --force, "
                "or go on from another one in another --out with --resume PATH"
            )
        return None
    named = Path(resume)
    inside = out.resolve() in (named.resolve(), *named.resolve().parents)
    check(not inside, f"{named} lies in {out}, which has no whole run to go on with; choose another --out")
    return checkpoint_named(named)


def check_goes_on(checkpoint: Path, begun: dict[str, Any], state: dict[str, Any], trainer: Trainer, run: Run) -> None:
    """Refuse a checkpoint of a run that was begun otherwise, with what differs."""
    check_description(checkpoint / STATE_FILE, begun)
    changed = [] if is_longer(begun, run.described) else changes(begun, run.described)
    check(not changed, f"{checkpoint} is of another run ({'; '.join(changed)}); --init takes its weights alone")
    before, now = state.get("steps_per_epoch"), trainer.share.steps
    check(
        before in (None, now),
        f"{checkpoint} is of a run with {before} steps an epoch, of which {counted(run.processes.count, 'process')} "
        f"would take {now}; start as many processes as it had, or another run",
    )


def best_beside(checkpoint: Path, progress: dict[str, Any], run: Run) -> dict[str, Any]:
    """What a run that goes on from a checkpoint knows of its best epoch, as fields of Progress."""
    own, epoch = checkpoint.parent == run.out, progress["epoch"]
    try:
        best = check_best(checkpoint.parent, progress["run"])
    except DamagedError:
        if own:
            raise
        best = None
    if best is None or (best["epoch"] > epoch and not own):
        # None, or one of epochs after this checkpoint, which the run in `out` has yet to do in its own way.
        run.tell(f"best       not known of the epochs before, in {checkpoint.parent}: one of those to come is kept")
        return {"best_epoch": epoch, "best_exact": -1.0, "best_loss": math.inf}
    # A run killed between writing `best` and `last` has left a newer best than the checkpoint knows.
    validation = best["validation"]
    return {
        "best_epoch": best["epoch"],
        "best_exact": validation["exact_match"],
        "best_loss": loss_of(validation["loss"]),
    }


def lengthen(trainer: Trainer) -> None:
    """Put the schedule of a run of another length where this run has come to."""
    for group in trainer.optimizer.param_groups:
        group["lr"] = trainer.config.learning_rate
    trainer.schedule = make_schedule(trainer.optimizer, trainer.config, trainer.steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch expects steps of the optimiser between
        for _ in range(trainer.progress.step):
            trainer.schedule.step()
