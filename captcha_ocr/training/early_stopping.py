"""Early stopping: which epoch a run keeps, and when it has learnt enough."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from captcha_ocr.errors import CaptchaOcrError, check
from captcha_ocr.options.training import TrainConfig, derive_epochs
from captcha_ocr.scores import Scores, is_worse, loss_or_infinity, wilson_interval
from captcha_ocr.system.console import counted
from captcha_ocr.training.step.trainer import Progress, Trainer

_ENOUGH = 0.99  # of all images is surely read by a run that has learnt enough
_FEWEST_TRAINED, _FEWEST_VALIDATED = 200, 20  # images of a run that finds its end
_FEWEST = 3  # epochs that tell so
_FIRST_END = 1 / 3  # the part of all epochs before which a run does not end


def is_better(scores: Scores, progress: Progress, at_rest: bool = False) -> bool:
    """Tell whether a validation beats the best so far: more exact matches, or as many at less loss.

    at_rest: whether the learning rate has decayed to zero, or the run has learnt enough. Such
    weights are better unless they are significantly worse: of many epochs the luckiest reads a few
    more of a thousand validation images, or all of ten, but fewer other images (docs/decisions.md,
    Optimiser, schedule and end of a run).
    """
    loss = loss_or_infinity(scores.loss)
    if at_rest and math.isfinite(loss):
        best = max(0, round(progress.best_exact * scores.images))
        return not is_worse(scores.exact, best, scores.images)
    return (scores.exact_match, -loss) > (progress.best_exact, -progress.best_loss)


def surely_read(epochs: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of images that the average of the weights surely reads, at 95 %.

    epochs: their rows of metrics, of which the last third counts, three at least. So neither one
    lucky epoch decides, nor ten validation images that are all read by chance: the training images
    that each epoch scores are others each time.
    """
    last = epochs[-max(_FEWEST, math.ceil(len(epochs) / 3)) :]
    if len(last) < _FEWEST or any("average_exact" not in row for row in last):
        return 0.0
    right, total = (sum(row[name] for row in last) for name in ("average_exact", "average_images"))
    return wilson_interval(right, total)[0]


def first_end(epochs: int | None) -> int:
    """Return the first epoch after which a run of so many may end that finds its end."""
    return max(_FEWEST, math.ceil(_FIRST_END * (epochs or 0)))


def finds_end(config: TrainConfig, training_images: int, validation_images: int) -> bool:
    """Tell whether a run ends when it has learnt enough.

    One on few images never does: it knows them by heart long before it reads most others, and a few
    validation images are all read by chance. Nor does one of so few epochs that none can be left.
    """
    epochs = derive_epochs(config, training_images) or math.inf
    return (
        config.patience is None
        and training_images >= _FEWEST_TRAINED
        and validation_images >= _FEWEST_VALIDATED
        and epochs > _FEWEST
    )


def has_learnt(trainer: Trainer, epochs: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a run that finds its end has found it after some epochs, by their rows.

    All processes have the same rows, and so have checkpoints: they all decide alike.
    """
    may_end = trainer.finds_end and len(epochs) >= first_end(trainer.epochs)
    return may_end and surely_read(epochs) >= _ENOUGH


def ending_rule(trainer: Trainer) -> str | None:
    """Return the rule that ends the run now, or None; CaptchaOcrError if training has failed."""
    progress, patience = trainer.progress, trainer.config.patience
    check(
        not progress.rows or math.isfinite(progress.rows[-1]["training_loss"]),
        f"the loss is not a finite number after epoch {progress.epoch}; "
        "try a lower `learning_rate`",
        CaptchaOcrError,
    )
    if trainer.epochs is not None and progress.epoch >= trainer.epochs:
        return "all epochs done"
    if has_learnt(trainer, progress.epoch_rows):
        return f"{_ENOUGH:.0%} of images are surely read"
    if patience is not None and progress.epoch - progress.best_epoch >= patience:
        return f"validation has not improved for {counted(patience, 'epoch')}"
    return None


def describe_early_stopping(trainer: Trainer) -> str:
    """Say what ends the run early; nothing where only its last epoch does."""
    patience = trainer.config.patience
    if trainer.finds_end:
        sure = f"when {_ENOUGH:.0%} of images are surely read"
        return f"{sure}, after epoch {first_end(trainer.epochs)} at the earliest"
    if patience is not None and patience < (trainer.epochs or math.inf):
        return f"when validation has not improved for {counted(patience, 'epoch')}"
    return ""
