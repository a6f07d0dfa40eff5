"""Optimisers, learning-rate schedules and the gradient scaler."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
)

from captcha_ocr.network.device import one_thread
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.options.training import PATIENCE, Precision, Schedule, TrainConfig
from captcha_ocr.system.signals import deferred

_MOMENTUM = 0.95  # of Muon
# Three terms of an odd polynomial. Five rounds of it bring singular values from 0.001 to 1 into the
# range 0.7 to 1.2.
_QUINTIC = 3.4445, -4.7750, 2.0315
_ROUNDS = 5
_AVERAGE = "average"  # the name of the average of a parameter, beside its moments
# The weights of a step count in the average with so high a power of its number, by which they are
# spread over a fifth of the run.
_POWER = 2.5
_STEP_SIZE = 0.2  # the root mean square of a step of AdamW, over the learning rate


class Optimization:
    """The optimiser of a network, its learning-rate schedule, and the gradient scaler of fp16.

    averages: whether it keeps an average of the weights over the steps.
    """

    def __init__(
        self,
        model: ResNet18,
        config: TrainConfig,
        precision: Precision,
        steps: int,
        averages: bool = False,
    ) -> None:
        kinds: dict[str, type[torch.optim.Adam]] = {
            "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW,
            "muon": Muon,
        }
        with deferred():  # torch imports modules here, for a second
            self.optimizer = kinds[config.optimizer](
                model.parameters(),
                lr=config.learning_rate,
                weight_decay=config.weight_decay,
                fused=model.device.type in ("cpu", "cuda") or None,  # one kernel, where there is
            )
        self.schedule = make_schedule(self.optimizer, config, steps)
        self.averages = averages
        # It keeps the gradients of fp16 in its range.
        self.scaler = torch.amp.GradScaler(model.device.type, enabled=precision == "fp16")

    def step(self) -> None:
        """Update the weights by their gradients."""
        # Two threads are hardly faster here, and beside another program four times as slow.
        with one_thread():
            self.scaler.step(self.optimizer)
            if self.averages:
                update_averages(self.optimizer)
        self.scaler.update()

    def average(self, parameter: Tensor) -> Tensor:
        """Return the average of a parameter over the steps, or itself where there is none."""
        average: Tensor = self.optimizer.state.get(parameter, {}).get(_AVERAGE, parameter)
        return average

    def end_step(self) -> None:
        """Set the learning rate of the next step, unless the validation loss decides."""
        if not isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step()

    def end_epoch(self, validation_loss: float) -> None:
        """Set the learning rate of the next epoch where the validation loss decides."""
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(validation_loss)

    def extend(self, config: TrainConfig, steps: int, done: int) -> None:
        """Make the schedule that of a run of so many steps, of which `done` are done."""
        self.optimizer.param_groups[0]["lr"] = config.learning_rate
        self.schedule = make_schedule(self.optimizer, config, steps)
        # torch expects steps of the optimiser in between.
        with warnings.catch_warnings(action="ignore"):
            for _ in range(done):
                self.schedule.step()

    def state(self) -> dict[str, Any]:
        """Return everything but the tensors of the optimiser, as JSON types."""
        return {
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Invert `state`."""
        self.optimizer.param_groups[0]["lr"] = state["learning_rate"]
        self.schedule.load_state_dict(state["schedule"])
        if state["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])


class Muon(torch.optim.AdamW):
    """AdamW, but a convolution kernel moves by the orthogonal matrix nearest to its momentum.

    After Keller Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/). A step has the
    size that it has in AdamW (Liu et al. 2025, arXiv:2502.16982), so both kinds of parameters share
    the learning rate and the weight decay.
    """

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, **options)
        # A GradScaler has to unscale the gradients before a step.
        self._step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        # By shape, since a product of many small matrices takes the time of a few.
        kernels = defaultdict(list)
        for parameter in self.param_groups[0]["params"]:
            if parameter.ndim == 4 and parameter.grad is not None:
                kernels[parameter.shape].append(parameter)
        for kernels_of_one_shape in kernels.values():
            self._move(kernels_of_one_shape)
        super().step()

    def _move(self, kernels: Sequence[Tensor]) -> None:
        """Update kernels of one shape (O, I, H, W), and remove their gradients."""
        rate, decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        updates = []
        for kernel in kernels:
            state = self.state[kernel]
            if not state:
                state["step"] = torch.zeros((), device=kernel.device)
                state["exp_avg"] = torch.zeros_like(kernel)
            state["step"] += 1
            gradient, momentum = kernel.grad, state["exp_avg"]
            assert gradient is not None
            momentum.lerp_(gradient, 1 - _MOMENTUM)
            updates.append(gradient.lerp(momentum, _MOMENTUM).flatten(1))
            kernel.grad = None
        orthogonal = orthogonalise(torch.stack(updates))
        size = _STEP_SIZE * max(orthogonal.shape[1:]) ** 0.5
        for kernel, update in zip(kernels, orthogonal * (rate * size), strict=True):
            kernel.mul_(1 - rate * decay).sub_(update.view(kernel.shape))


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return the nearest orthogonal matrix of each of some matrices (N, rows, columns), roughly.

    All rounds multiply by polynomials of the products of rows, which commute: small matrices, where
    a kernel has many more columns than rows.
    """
    x = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-20)
    if x.shape[1] > x.shape[2]:
        return orthogonalise(x.mT).mT
    first, third, fifth = _QUINTIC
    products = x @ x.mT
    identity = torch.eye(x.shape[1], device=x.device)
    factor = identity.expand_as(products)
    for _ in range(_ROUNDS):
        polynomial = torch.baddbmm(
            first * identity + third * products, products, products, alpha=fifth
        )
        factor = polynomial @ factor
        products = polynomial @ products @ polynomial
    nearest: Tensor = factor @ x
    return nearest


def make_schedule(optimizer: torch.optim.Optimizer, config: TrainConfig, steps: int) -> LRScheduler:
    """Return the schedule of the learning rate.

    One cycle or cosine over all `steps`, lower on plateaus of the validation loss, or constant.
    """
    rate, patience = config.learning_rate, (config.patience or PATIENCE) // 4
    schedules: dict[Schedule, Callable[..., LRScheduler]] = {
        "onecycle": partial(OneCycleLR, max_lr=rate, total_steps=steps, cycle_momentum=False),
        "cosine": partial(CosineAnnealingLR, T_max=steps),
        "plateau": partial(ReduceLROnPlateau, patience=patience),
        "constant": partial(ConstantLR, factor=1.0),
    }
    return schedules[config.schedule](optimizer)


@torch.no_grad()
def update_averages(optimizer: torch.optim.Optimizer) -> None:
    """Move the average of each parameter towards the parameter (Karras et al. 2024,
    arXiv:2312.02696).
    """
    # One step counts for all parameters: a tensor of its own for each takes ten times as long. The
    # last, of the head, learns from the first step, but not in one of fp16 that overflows.
    newest = optimizer.state.get(optimizer.param_groups[0]["params"][-1])
    if newest is None:
        return
    weight = 1 - (1 - 1 / newest["step"]) ** (_POWER + 1)
    for parameter, state in optimizer.state.items():
        if _AVERAGE not in state:
            state[_AVERAGE] = parameter.detach().clone()
        state[_AVERAGE].lerp_(parameter, weight)


def name_moments(optimizer: torch.optim.Optimizer, parameter: Tensor) -> tuple[str, ...]:
    """Return the names of the tensors that an optimiser keeps of a parameter, beside its step."""
    is_kernel = isinstance(optimizer, Muon) and parameter.ndim == 4
    moments = ("exp_avg",) if is_kernel else ("exp_avg", "exp_avg_sq")
    return (*moments, _AVERAGE) if _AVERAGE in optimizer.state[parameter] else moments
