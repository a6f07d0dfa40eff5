"""Optimisers, learning-rate schedules and the gradient scaler."""

import torch

from captcha_ocr.config import Precision, TrainConfig
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.system.signals import deferred


def make_scaler(device: torch.device, precision: Precision) -> torch.amp.GradScaler:
    """Return a scaler that keeps the gradients of fp16 in its range; it does nothing in other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def make_optimizer(model: ResNet18, config: TrainConfig) -> torch.optim.Optimizer:
    """Return Adam or AdamW over all parameters, as one fused kernel if the device has it."""
    kinds: dict[str, type[torch.optim.Adam]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    fused = model.device.type in ("cpu", "cuda")
    with deferred():  # torch imports modules here, for a second
        return kinds[config.optimizer](
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=fused or None
        )


def make_schedule(
    optimizer: torch.optim.Optimizer, config: TrainConfig, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the schedule: one cycle or cosine over all `steps`, lower on plateaus of the loss, or constant."""
    schedules = torch.optim.lr_scheduler
    if config.schedule == "onecycle":
        return schedules.OneCycleLR(optimizer, config.learning_rate, total_steps=steps, cycle_momentum=False)
    if config.schedule == "cosine":
        return schedules.CosineAnnealingLR(optimizer, steps)
    if config.schedule == "plateau":
        return schedules.ReduceLROnPlateau(optimizer, patience=config.patience // 4)
    return schedules.ConstantLR(optimizer, factor=1.0)
