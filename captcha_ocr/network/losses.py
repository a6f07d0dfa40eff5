"""Losses of logits (B, L, K) float32 against class ids (B, L) or probabilities (B, L, K)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from captcha_ocr.network.resnet import MIN_PROBABILITY
from captcha_ocr.options.training import Loss

_LEAST_WEIGHT = 0.02  # of a position that the network is sure of, before weights are scaled


def bce_over_softmax(logits: Tensor, targets: Tensor, focus: float = 0.0) -> Tensor:
    """Return the binary cross-entropy of softmax probabilities against the targets, averaged over
    B*L*K by `_average_focused`.

    The recipe that this project began with computes log p for the correct class and log(1 - p) for
    the others from probabilities. In float32 this becomes infinite, or loses its gradient, as soon
    as p is close to 1. Here both are computed from the logits, relative to the likeliest class:
    with d the logsumexp of all other classes, that class has log p = -softplus(d) and log(1 - p) =
    -softplus(-d), so 1 is never subtracted from a number close to it.
    """
    logits = logits.float()
    top = logits.argmax(-1, keepdim=True)  # (B, L, 1)
    relative = logits - logits.gather(-1, top)  # (B, L, K), at most 0
    others = torch.logsumexp(relative.scatter(-1, top, -torch.inf), dim=-1, keepdim=True)
    log_p = relative.scatter(-1, top, 0.0) - functional.softplus(others)
    # The likeliest class is a constant in log1p: its gradient there would be infinite, or cancel
    # another large one.
    log_not_p = torch.log1p(-log_p.exp().scatter(-1, top, 0.0))
    log_not_p = log_not_p.scatter(-1, top, -functional.softplus(-others))
    if targets.ndim == 3:
        losses = -(targets * log_p + (1 - targets) * log_not_p)
    else:
        losses = -torch.where(
            functional.one_hot(targets.long(), logits.shape[-1]).bool(), log_p, log_not_p
        )
    return _average_focused(losses.mean(-1), logits, targets, focus)


def _average_focused(losses: Tensor, logits: Tensor, targets: Tensor, focus: float) -> Tensor:
    """Return the mean of losses (B, L), weighted by how wrong the network is at each if `focus` is
    not 0.

    A weight is the probability of all wrong classes to the power of `focus`, as in the focal loss
    (Lin et al. 2017, arXiv:1708.02002), of a mean of 1. So the few characters that look like others
    count as much as the many that do not.
    """
    if not focus:
        return losses.mean()
    right = (targets.argmax(-1) if targets.ndim == 3 else targets.long())[..., None]
    weights = (
        1 + _LEAST_WEIGHT - logits.detach().float().softmax(-1).gather(-1, right)[..., 0]
    ) ** focus
    return (losses * weights).mean() / weights.mean()


def smooth_labels(targets: Tensor, classes: int, share: float) -> Tensor:
    """Return targets (B, …) or (B, …, K) as probabilities (B, …, K), `share` of each spread evenly
    over all classes.

    Label smoothing: Szegedy et al. 2015, arXiv:1512.00567.
    """
    if not targets.is_floating_point():
        targets = functional.one_hot(targets.long(), classes).float()
    return targets * (1 - share) + share / classes


def cross_entropy(logits: Tensor, targets: Tensor, focus: float = 0.0) -> Tensor:
    """Return the cross-entropy, averaged over B*L by `_average_focused`."""
    flat = targets.flatten(0, 1) if targets.ndim == 3 else targets.long().flatten()
    losses = functional.cross_entropy(logits.float().flatten(0, 1), flat, reduction="none")
    return _average_focused(losses.view(logits.shape[:2]), logits, targets, focus)


def ctc(columns: Tensor, targets: Tensor, same: Tensor | None = None) -> Tensor:
    """Return minus the logarithm of the texts' probability by CTC, a character, averaged over B.

    columns: logits (B, columns, K), whose last class is the blank. targets: (B, L), the blank's
    class after the end.
    same: (K,), the first of the classes that count as one, as the two cases of a letter do; their
    probabilities are added in each column.
    """
    blank = columns.shape[-1] - 1
    log_p = columns.float().log_softmax(-1)
    if same is not None:
        merged = torch.zeros_like(log_p).index_add_(-1, same, log_p.exp())
        log_p, targets = merged.clamp_min(MIN_PROBABILITY).log(), same[targets]
    lengths = (targets != blank).sum(1)
    all_columns = torch.full_like(lengths, columns.shape[1])
    return functional.ctc_loss(
        log_p.transpose(0, 1), targets, all_columns, lengths, blank, zero_infinity=True
    )


# Of positions. `ctc` is of columns; where only positions are at hand, `ce` stands for it.
LOSSES: dict[Loss, Callable[..., Tensor]]
LOSSES = {"bce": bce_over_softmax, "ce": cross_entropy, "ctc": cross_entropy}


def merged_classes(characters: Sequence[str], rule: Callable[[str], str]) -> Tensor:
    """Return for each class the first one that `rule` makes the same, (K,) int64."""
    first: dict[str, int] = {}
    return torch.tensor(
        [first.setdefault(rule(character), number) for number, character in enumerate(characters)]
    )


def read_columns(columns: Tensor, length: int) -> Tensor:
    """Return the classes (B, L) of the likeliest alignments of columns (B, columns, K), which
    nearly always are the likeliest texts; the last class after the end.
    """
    blank = columns.shape[-1] - 1
    best = columns.argmax(-1)  # (B, columns)
    before = functional.pad(best, (1, 0), value=blank)[:, :-1]
    begins = (best != blank) & (best != before)
    # What does not fit goes to L
    place = torch.where(begins, begins.cumsum(1) - 1, length).clamp_max(length)
    return best.new_full((len(best), length + 1), blank).scatter_(1, place, best)[:, :length]
