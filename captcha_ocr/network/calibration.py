"""Confidences that mean what they say: one temperature for a network, found on images that it did not learn from."""

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from captcha_ocr.network.device import autocast, choose_precision
from captcha_ocr.network.losses import smooth
from captcha_ocr.network.resnet import ResNet18

MOST = 5000  # images: one number needs no more
STEPS = 30  # of halving the range of its logarithm, from -5 to 5 at first


@torch.no_grad()
def calibrate(model: ResNet18, batches: Iterable[tuple[Tensor, Tensor]]) -> ResNet18:
    """A copy of `model` that reads the same, and is as sure as it is right on (images, labels) batches.

    All its logits are divided by one temperature (Guo et al. 2017, arXiv:1706.04599).
    """
    model = copy.deepcopy(model).eval()
    precision = choose_precision("auto", model.device)
    logits, labels = [], []
    for images, batch_labels in batches:
        with autocast(model.device, precision):
            logits.append(model(images))
        labels.append(batch_labels)
        if sum(map(len, labels)) >= MOST:
            break
    if not labels:  # one of several processes, which had nothing to validate
        return model
    model.temperature.mul_(temperature_of(torch.cat(logits).flatten(0, 1), torch.cat(labels).flatten()))
    return model


def temperature_of(logits: Tensor, labels: Tensor) -> float:
    """What to divide logits (N, K) by, so that their cross-entropy against labels (N) is least.

    It is convex in the inverse, so halving finds where its slope is 0. The labels are smoothed by one in N, as if one
    had been any class: a network that was never wrong is not sure without bounds.
    """
    logits = logits.float()
    shares = smooth(labels, logits.shape[-1], 1 / len(labels))
    low, high = -5.0, 5.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        slope = (((logits * math.exp(middle)).softmax(-1) - shares) * logits).sum()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.exp(-middle)
