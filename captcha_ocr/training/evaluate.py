"""Scoring a network on batches."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from captcha_ocr.charset import merge_lookalikes
from captcha_ocr.config import Loss
from captcha_ocr.inference.decoding import allowed_classes
from captcha_ocr.metrics import Scores
from captcha_ocr.network.device import autocast, choose_precision
from captcha_ocr.network.losses import LOSSES
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.training.distributed import ProcessGroup

EVALUATION_BATCH = 250


@torch.inference_mode()
def evaluate(
    model: ResNet18, batches: Iterable[tuple[Tensor, Tensor]], loss: Loss = "bce", group: ProcessGroup | None = None
) -> Scores:
    """Score `model` on (images (B, C, H, W) uint8, labels (B, L)) batches that lie on its device.

    With several processes every one brings batches of its own, and all get the score of all.

    In the precision in which codes are read later, so that `eval` gives the same but for a rounding.
    Counts stay on the device until the end. Puts the model into evaluation mode and leaves it there.
    """
    model.eval()
    config, device = model.config, model.device
    characters, classes = config.class_names, config.classes
    forbidden = torch.from_numpy(~allowed_classes(config)).to(device)  # (L, K)
    precision = choose_precision("auto", device)
    confusion = torch.zeros(classes * classes, dtype=torch.int64, device=device)
    fold, merge = (same_as(characters, rule, device) for rule in (str.casefold, merge_lookalikes))
    exact = torch.zeros((), dtype=torch.int64, device=device)
    folded, merged = torch.zeros_like(exact), torch.zeros_like(exact)
    loss_sum = torch.zeros((), dtype=torch.float32, device=device)
    images = torch.zeros_like(exact)
    for inputs, labels in batches:
        with autocast(device, precision):
            logits = model(inputs)  # (B, L, K) float32
        read = logits.masked_fill(forbidden, -torch.inf).argmax(-1)
        read[(read == len(config.charset)).cumsum(1) > 0] = classes - 1  # a text ends at its first nothing
        exact += (read == labels).all(1).sum()
        folded += (fold[read] == fold[labels]).all(1).sum()
        merged += (merge[read] == merge[labels]).all(1).sum()
        places = (labels * classes + read).flatten()
        confusion.index_add_(0, places, torch.ones_like(places))
        loss_sum += LOSSES[loss](logits, labels) * len(inputs)
        images += len(inputs)
    if group is not None:
        group.all_reduce(confusion, exact, folded, merged, loss_sum, images)
    seen = confusion.nonzero().flatten()  # a wait for the device, the first
    pairs = Counter(
        {
            (characters[place // classes], characters[place % classes]): count
            for place, count in zip(seen.tolist(), confusion[seen].tolist(), strict=True)
        }
    )
    del pairs["", ""]  # behind the ends of both
    loss_of_all = float(loss_sum) / max(1, int(images))
    return Scores(int(images), int(exact), pairs, loss_of_all, int(folded) - int(exact), int(merged) - int(exact))


def same_as(characters: Sequence[str], rule: Callable[[str], str], device: torch.device) -> Tensor:
    """Each class to the first one that `rule` makes the same, (K,) int64."""
    ruled = [rule(character) for character in characters]
    return torch.tensor([ruled.index(character) for character in ruled], device=device)
