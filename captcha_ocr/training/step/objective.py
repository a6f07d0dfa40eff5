"""What a training minimises: the loss of its configuration, and its gradients."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from captcha_ocr.network.device import autocast
from captcha_ocr.network.losses import LOSSES, ctc, merged_classes, read_columns, smooth_labels
from captcha_ocr.options.training import Precision, TrainConfig


class Objective:
    """The loss of a training, computed in a precision.

    one_case: (K,), the first of the classes that differ in their case alone.
    """

    def __init__(
        self,
        config: TrainConfig,
        precision: Precision,
        class_names: Sequence[str],
        device: torch.device,
    ) -> None:
        self.config, self.precision = config, precision
        self.one_case = merged_classes(class_names, str.casefold).to(device)

    def compute_gradients(
        self, network: nn.Module, part: tuple[Tensor, Tensor], weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add the gradients of the losses of some images, times `weight`, to those of a network.

        part: images (B, C, H, W) and targets, class ids (B, L) or probabilities (B, L, K). weight:
        a scalar tensor. Returns the sum of the losses, and the classes that the network reads
        (B, L).
        """
        images, targets = part
        reads_columns = self.config.loss == "ctc"
        with autocast(weight.device, self.precision):
            logits = network(images, as_columns=reads_columns)
        if reads_columns:
            loss = self._ctc(logits, targets)
            classes = read_columns(logits.detach(), targets.shape[1])
        else:
            if self.config.smoothing:
                targets = smooth_labels(targets, logits.shape[-1], self.config.smoothing)
            loss = LOSSES[self.config.loss](logits, targets, self.config.focus)
            classes = logits.detach().argmax(-1)
        total = loss * len(images)
        (total * weight).backward()  # type: ignore[no-untyped-call]
        return total.detach(), classes

    def _ctc(self, columns: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of columns, in part with both cases as one."""
        loss, share = columns.new_zeros(()), self.config.case_folded
        if share < 1:
            loss = loss + (1 - share) * ctc(columns, labels)
        if share > 0:
            loss = loss + share * ctc(columns, labels, self.one_case)
        return loss
