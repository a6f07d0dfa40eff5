"""Optimisers, learning-rate schedules and the gradient scaler."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from captcha_ocr.config import Precision, TrainConfig
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.system.signals import deferred

MOMENTUM = 0.95  # of Muon
# Three terms of an odd polynomial. Five rounds of it bring singular values from 0.001 to 1 into the range 0.7 to 1.2.
QUINTIC = 3.4445, -4.7750, 2.0315
ROUNDS = 5
SIZE = 0.2  # of a step: the root mean square of AdamW's, over the learning rate


class Muon(torch.optim.AdamW):
    """AdamW, but for convolution kernels: of their momentum the nearest orthogonal matrix is the step.

    After Keller Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/). A step has the size that it has in
    AdamW (Liu et al. 2025, arXiv:2502.16982), so both kinds of parameters share the learning rate and the weight decay.
    """

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, **options)
        self._step_supports_amp_scaling = (
            False  # a GradScaler has to unscale the gradients before a step
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        kernels = defaultdict(
            list
        )  # by shape, since a product of many small matrices takes the time of a few
        for parameter in self.param_groups[0]["params"]:
            if parameter.ndim == 4 and parameter.grad is not None:
                kernels[parameter.shape].append(parameter)
        for alike in kernels.values():
            self.move(alike)
        super().step()

    def move(self, kernels: Sequence[Tensor]) -> None:
        """Update kernels of one shape (O, I, H, W), and remove their gradients."""
        rate, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        updates = []
        for kernel in kernels:
            state = self.state[kernel]
            if not state:
                state["step"], state["exp_avg"] = (
                    torch.zeros((), device=kernel.device),
                    torch.zeros_like(kernel),
                )
            state["step"] += 1
            gradient, momentum = kernel.grad, state["exp_avg"]
            assert gradient is not None
            momentum.lerp_(gradient, 1 - MOMENTUM)
            updates.append(gradient.lerp(momentum, MOMENTUM).flatten(1))
            kernel.grad = None
        orthogonal = orthogonalise(torch.stack(updates))
        size = SIZE * max(orthogonal.shape[1:]) ** 0.5
        for kernel, update in zip(kernels, orthogonal * (rate * size), strict=True):
            kernel.mul_(1 - rate * decay).sub_(update.view(kernel.shape))


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return the nearest orthogonal matrix of each of some matrices (N, rows, columns), roughly.

    All rounds multiply by polynomials of the products of rows, which commute: small matrices, where a kernel has many
    more columns than rows.
    """
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-20)
    if x.shape[1] > x.shape[2]:
        return orthogonalise(x.mT).mT
    first, third, fifth = QUINTIC
    products = x @ x.mT
    identity = torch.eye(x.shape[1], device=x.device)
    factor = identity.expand_as(products)
    for _ in range(ROUNDS):
        polynomial = torch.baddbmm(
            first * identity + third * products, products, products, alpha=fifth
        )
        factor = polynomial @ factor
        products = polynomial @ products @ polynomial
    nearest: Tensor = factor @ x
    return nearest


def moments_of(optimizer: torch.optim.Optimizer, parameter: Tensor) -> tuple[str, ...]:
    """Return the names of the tensors that an optimiser keeps of a parameter, beside its step."""
    is_kernel = isinstance(optimizer, Muon) and parameter.ndim == 4
    return ("exp_avg",) if is_kernel else ("exp_avg", "exp_avg_sq")


def make_scaler(device: torch.device, precision: Precision) -> torch.amp.GradScaler:
    """Return a scaler that keeps the gradients of fp16 in its range; it does nothing in other precisions."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def make_optimizer(model: ResNet18, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the optimiser of all parameters, as one fused kernel if the device has it."""
    kinds: dict[str, type[torch.optim.Adam]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "muon": Muon,
    }
    fused = model.device.type in ("cpu", "cuda")
    with deferred():  # torch imports modules here, for a second
        return kinds[config.optimizer](
            model.parameters(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=fused or None,
        )


def make_schedule(
    optimizer: torch.optim.Optimizer, config: TrainConfig, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the schedule: one cycle or cosine over all `steps`, lower on plateaus of the loss, or constant."""
    schedules = torch.optim.lr_scheduler
    if config.schedule == "onecycle":
        return schedules.OneCycleLR(
            optimizer, config.learning_rate, total_steps=steps, cycle_momentum=False
        )
    if config.schedule == "cosine":
        return schedules.CosineAnnealingLR(optimizer, steps)
    if config.schedule == "plateau":
        return schedules.ReduceLROnPlateau(optimizer, patience=config.patience // 4)
    return schedules.ConstantLR(optimizer, factor=1.0)
