"""Scoring a network on batches."""

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from captcha_ocr.charset import merge_lookalikes
from captcha_ocr.config import Loss
from captcha_ocr.device import autocast, choose_precision
from captcha_ocr.losses import LOSSES
from captcha_ocr.metrics import Scores
from captcha_ocr.model import ResNet18
from captcha_ocr.processes import Processes

EVALUATION_BATCH = 250


@torch.inference_mode()
def evaluate(
    model: ResNet18,
    batches: Iterable[tuple[Tensor, Tensor]],
    loss: Loss = "bce",
    processes: Processes | None = None,
) -> Scores:
    """Score `model` on (images (B, C, H, W) uint8, labels (B, L)) batches that lie on its device.

    With several processes every one brings batches of its own, and all get the score of all.

    In the precision in which codes are read later, so that `eval` gives the same but for a rounding.
    Counts stay on the device until the end. Puts the model into evaluation mode and leaves it there.
    """
    model.eval()
    characters = model.config.charset.characters
    classes = len(characters)
    device = model.device
    precision = choose_precision("auto", device)
    confusion = torch.zeros(classes * classes, dtype=torch.int64, device=device)
    merged_class = [merge_lookalikes(characters).index(character) for character in merge_lookalikes(characters)]
    merge = torch.tensor(merged_class, device=device)  # (K,): each class to the first of its look-alikes
    exact = torch.zeros((), dtype=torch.int64, device=device)
    merged = torch.zeros_like(exact)
    loss_sum = torch.zeros((), dtype=torch.float32, device=device)
    images = torch.zeros_like(exact)
    for inputs, labels in batches:
        with autocast(device, precision):
            logits = model(inputs)  # (B, L, K) float32
        read = logits.argmax(-1)
        exact += (read == labels).all(1).sum()
        merged += (merge[read] == merge[labels]).all(1).sum()
        places = (labels * classes + read).flatten()
        confusion.index_add_(0, places, torch.ones_like(places))
        loss_sum += LOSSES[loss](logits, labels) * len(inputs)
        images += len(inputs)
    if processes is not None:
        processes.add(confusion, exact, merged, loss_sum, images)
    seen = confusion.nonzero().flatten()  # a wait for the device, the first
    pairs = Counter(
        {
            (characters[place // classes], characters[place % classes]): count
            for place, count in zip(seen.tolist(), confusion[seen].tolist(), strict=True)
        }
    )
    return Scores(int(images), int(exact), pairs, float(loss_sum) / max(1, int(images)), int(merged) - int(exact))
