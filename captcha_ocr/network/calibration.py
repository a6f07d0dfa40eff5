"""Temperature scaling: one number for a network, found on validation images, that calibrates its
confidences.
"""

import copy
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from captcha_ocr.network.device import autocast, choose_precision
from captcha_ocr.network.losses import ctc, smooth_labels
from captcha_ocr.network.resnet import ResNet18

_MAX_IMAGES = 5000  # more do not change one number
_MAX_LOGITS = 2**23
_BISECTION_STEPS = 30
_TERNARY_STEPS = 12


@torch.no_grad()
def calibrate(model: ResNet18, batches: Iterable[tuple[Tensor, Tensor]]) -> ResNet18:
    """Return a copy of `model` with the same predictions, whose confidences are calibrated on
    (images, labels) batches.

    One temperature divides all its logits (Guo et al. 2017, arXiv:1706.04599), those of the columns
    if it reads them.
    """
    model = copy.deepcopy(model).eval()
    precision = choose_precision("auto", model.device)
    logits, labels = [], []
    for images, batch_labels in batches:
        with autocast(model.device, precision):
            logits.append(model(images, as_columns=model.config.reads_columns))
        labels.append(batch_labels)
        if sum(map(len, labels)) >= _MAX_IMAGES or sum(map(Tensor.numel, logits)) >= _MAX_LOGITS:
            break
    if labels:  # one of several processes may have no validation image
        if model.config.reads_columns:
            model.temperature.mul_(fit_column_temperature(logits, labels))
        else:
            model.temperature.mul_(
                fit_temperature(torch.cat(logits).flatten(0, 1), torch.cat(labels).flatten())
            )
    return model


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature that minimises the cross-entropy of logits (N, K) / temperature
    against labels (N,).

    The cross-entropy is convex in 1 / temperature, so bisection finds where its slope is 0. The
    labels are smoothed by 1/N: without that, the temperature of a network without errors would go
    to 0.
    """
    logits = logits.float()
    targets = smooth_labels(labels, logits.shape[-1], 1 / len(labels))
    low, high = -5.0, 5.0  # of log(1 / temperature)
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        slope = (((logits * math.exp(middle)).softmax(-1) - targets) * logits).sum()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.exp(-middle)


def fit_column_temperature(columns: Sequence[Tensor], labels: Sequence[Tensor]) -> float:
    """Return the temperature of logits of columns (B, columns, K) that makes the texts (B, L) most
    probable by CTC.
    """

    def loss(log_temperature: float) -> float:
        divisor = math.exp(log_temperature)
        return sum(
            ctc(part / divisor, texts).item() * len(texts)
            for part, texts in zip(columns, labels, strict=True)
        )

    low, high = -2.0, 2.0
    for _ in range(_TERNARY_STEPS):
        third, two_thirds = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two_thirds) if loss(third) < loss(two_thirds) else (third, high)
    return math.exp((low + high) / 2)
