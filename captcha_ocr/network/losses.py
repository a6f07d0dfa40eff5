"""Losses of logits (B, L, K) float32 against targets: class ids (B, L) or probabilities (B, L, K)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from captcha_ocr.config import Loss


def bce_over_softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the binary cross-entropy of softmax probabilities against the targets, averaged over B*L*K.

    The recipe that this project began with computes log p for the correct class and log(1 - p) for the others from
    probabilities. In float32 this becomes infinite, or loses its gradient, as soon as p is close to 1. Here both are
    computed from the logits, relative to the likeliest class: with d the logsumexp of all other classes, that class has
    log p = -softplus(d) and log(1 - p) = -softplus(-d), so 1 is never subtracted from a number close to it.
    """
    logits = logits.float()
    top = logits.argmax(-1, keepdim=True)  # (B, L, 1)
    relative = logits - logits.gather(-1, top)  # (B, L, K), at most 0
    others = torch.logsumexp(relative.scatter(-1, top, -torch.inf), dim=-1, keepdim=True)
    log_p = relative.scatter(-1, top, 0.0) - functional.softplus(others)
    # The likeliest class is a constant in log1p: its gradient there would be infinite, or cancel another large one.
    log_not_p = torch.log1p(-log_p.exp().scatter(-1, top, 0.0))
    log_not_p = log_not_p.scatter(-1, top, -functional.softplus(-others))
    if targets.ndim == 3:
        return -(targets * log_p + (1 - targets) * log_not_p).mean()
    correct = functional.one_hot(targets.long(), logits.shape[-1]).bool()
    return -torch.where(correct, log_p, log_not_p).mean()


def smooth(targets: Tensor, classes: int, share: float) -> Tensor:
    """Return targets (B, …) or (B, …, K) as probabilities (B, …, K), `share` of each spread evenly over all classes.

    Label smoothing: Szegedy et al. 2015, arXiv:1512.00567.
    """
    if not targets.is_floating_point():
        targets = functional.one_hot(targets.long(), classes).float()
    return targets * (1 - share) + share / classes


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy, averaged over B*L."""
    targets = targets.flatten(0, 1) if targets.ndim == 3 else targets.long().flatten()
    return functional.cross_entropy(logits.float().flatten(0, 1), targets)


LOSSES: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {"bce": bce_over_softmax, "ce": cross_entropy}
