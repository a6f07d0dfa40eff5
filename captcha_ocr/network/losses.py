"""Losses over logits (B, L, K) float32 and targets, class ids (B, L) or shares (B, L, K): pure functions."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from captcha_ocr.config import Loss


def bce_over_softmax(logits: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy of softmax probabilities against the targets, averaged over B*L*K.

    The recipe that the project started from computes log p for the right class and log(1 - p) for
    the others from probabilities, which in float32 goes to infinity, or loses its gradient, as soon
    as the network is sure of itself. Here both are taken from the logits, relative to the
    likeliest class: with d the logsumexp of all the others, that class has log p = -softplus(d)
    and log(1 - p) = -softplus(-d), and no 1 is ever subtracted from something close to it.
    """
    logits = logits.float()
    top = logits.argmax(-1, keepdim=True)  # (B, L, 1)
    relative = logits - logits.gather(-1, top)  # (B, L, K), at most 0
    others = torch.logsumexp(relative.scatter(-1, top, -torch.inf), dim=-1, keepdim=True)
    log_p = relative.scatter(-1, top, 0.0) - functional.softplus(others)
    # The likeliest class's own entries are written in as constants, so that neither its infinite
    # gradient of log1p nor two large gradients that cancel ever arise.
    log_not_p = torch.log1p(-log_p.exp().scatter(-1, top, 0.0))
    log_not_p = log_not_p.scatter(-1, top, -functional.softplus(-others))
    if targets.ndim == 3:
        return -(targets * log_p + (1 - targets) * log_not_p).mean()
    right = functional.one_hot(targets.long(), logits.shape[-1]).bool()
    return -torch.where(right, log_p, log_not_p).mean()


def smooth(targets: Tensor, classes: int, share: float) -> Tensor:
    """Targets (B, …) or (B, …, K) as shares (B, …, K), with `share` of each spread evenly over all classes.

    Szegedy et al. 2015, arXiv:1512.00567.
    """
    if not targets.is_floating_point():
        targets = functional.one_hot(targets.long(), classes).float()
    return targets * (1 - share) + share / classes


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy averaged over B*L."""
    targets = targets.flatten(0, 1) if targets.ndim == 3 else targets.long().flatten()
    return functional.cross_entropy(logits.float().flatten(0, 1), targets)


LOSSES: dict[Loss, Callable[[Tensor, Tensor], Tensor]] = {"bce": bce_over_softmax, "ce": cross_entropy}
