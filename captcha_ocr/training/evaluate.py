"""Score a network on batches."""

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from captcha_ocr.charset import merge_lookalikes
from captcha_ocr.inference.decoding import allowed_classes
from captcha_ocr.network.device import autocast, choose_precision
from captcha_ocr.network.losses import LOSSES, merged_classes
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.options.model import MAX_EXACT, ModelConfig
from captcha_ocr.options.training import Loss
from captcha_ocr.scores import Scores
from captcha_ocr.training.distributed import ProcessGroup

_EVALUATION_BATCH = 250
_EVALUATION_BATCH_OF_MANY = 50  # with a large alphabet, whose probabilities take 0.6 MB an image


def evaluation_batch(config: ModelConfig) -> int:
    """Return how many images of a model to score at a time."""
    return _EVALUATION_BATCH if config.classes <= MAX_EXACT else _EVALUATION_BATCH_OF_MANY


@torch.inference_mode()
def evaluate(
    model: ResNet18, batches: Iterable[tuple[Tensor, Tensor]], loss: Loss, group: ProcessGroup
) -> Scores:
    """Score `model` on batches of images (B, C, H, W) uint8 and labels (B, L) on its device.

    Leaves the model in eval mode. Every process brings its own batches, and all processes return
    the scores of all batches. It computes in the precision that `auto` chooses, so that `eval`
    gives the same scores but for rounding. The readings stay on the device until the end.
    """
    model.eval()
    config, device = model.config, model.device
    characters, classes = config.class_names, config.classes
    forbidden = torch.from_numpy(~allowed_classes(config)).to(device)  # (L, K)
    precision = choose_precision("auto", device)
    cells = [torch.zeros(0, dtype=torch.int64, device=device)]
    loss_sum = torch.zeros((), dtype=torch.float32, device=device)
    for inputs, labels in batches:
        with autocast(device, precision):
            logits = model(inputs)  # (B, L, K) float32
        read = logits.masked_fill(forbidden, -torch.inf).argmax(-1)
        # A text ends at its first end class.
        read[(read == len(config.charset)).cumsum(1) > 0] = classes - 1
        cells.append((labels * classes + read).flatten())
        loss_sum += LOSSES[loss](logits, labels) * len(inputs)
    all_cells = group.concatenate(torch.cat(cells))
    group.all_reduce(loss_sum)
    # Of thousands of characters only these pairs are counted, not the millions that could be
    # confused. This is the first wait for the device.
    confused, counts = torch.unique(all_cells, return_counts=True)
    pairs: Counter[tuple[str, str]] = Counter()
    for cell, count in zip(confused.tolist(), counts.tolist(), strict=True):
        pairs[characters[cell // classes], characters[cell % classes]] = count
    del pairs["", ""]  # positions after both texts have ended
    true = (all_cells // classes).view(-1, config.lengths.longest)
    read = (all_cells % classes).view(-1, config.lengths.longest)
    matches = []
    for rule in (str, str.casefold, merge_lookalikes):
        same = merged_classes(characters, rule).to(device)
        matches.append(int((same[true] == same[read]).all(1).sum()))
    exact, folded, merged = matches
    mean_loss = float(loss_sum) / max(1, len(true))
    return Scores(len(true), exact, pairs, mean_loss, folded - exact, merged - exact)
