"""Training images changed a little each time they are shown, on whatever device they lie.

Nothing here changes how wide a stroke is against another, which is all that tells O from 0: local bending and unequal
scaling made just that worse (docs/lab-notebook.md, 2026-11-21).
"""

import torch
from torch import Tensor
from torch.nn import functional

TURN, ZOOM = 0.05, 0.08  # at most: radians, and share of the size
SHIFT_X, SHIFT_Y = 0.0375, 0.07  # at most, of the width and of the height
FADE = 0.4  # at most, of the logarithm of the exponent
MIXED = 0.25  # the share of images with another one shining through


def augment(images: Tensor, labels: Tensor, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Move, fade and mix images, each by chance of its own; the generator is one of their device.

    images (B, C, H, W) uint8 and labels (B, L) in; out images float32 in [0, 255] and targets
    (B, L, K) float32, which sum to 1 and are largest for the label.
    """
    targets = functional.one_hot(labels, classes).float()
    return mix(fade(move(images.float(), generator), generator), targets, generator)


def uniform(images: Tensor, reach: float, generator: torch.Generator) -> Tensor:
    """A number in [-reach, reach] for each image, (B, 1, 1)."""
    return (torch.rand((len(images), 1, 1), generator=generator, device=images.device) * 2 - 1) * reach


def move(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, zoom and shift; what comes in from outside is the border drawn out.

    Mirrored at it, a letter beside it would stand there twice, and be labelled once (docs/lab-notebook.md, 2026-11-23).
    """
    height, width = images.shape[2:]
    y = torch.linspace(-height / 2, height / 2, height, device=images.device)[None, :, None]
    x = torch.linspace(-width / 2, width / 2, width, device=images.device)[None, None, :]
    angle, zoom = uniform(images, TURN, generator), 1 + uniform(images, ZOOM, generator)
    source_x = zoom * x + angle * y + uniform(images, SHIFT_X * width, generator)  # small: the sine is the angle
    source_y = zoom * y - angle * x + uniform(images, SHIFT_Y * height, generator)
    grid = torch.stack([source_x / (width / 2), source_y / (height / 2)], -1)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=True)


def fade(images: Tensor, generator: torch.Generator) -> Tensor:
    """Bring what lies between an image's darkest and lightest pixel nearer to one of them."""
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    exponent = uniform(images, FADE, generator).exp()[..., None]
    return (high - low) * ((images - low) / (high - low + 1)).clamp_min(1e-4) ** exponent + low


def mix(images: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Let a part of the batch shine through the rest, in the targets as in the pixels (mixup, arXiv:1710.09412)."""
    chance = torch.rand((2, len(images)), generator=generator, device=images.device)
    other = torch.where(chance[0] < MIXED, chance[1] / 2, torch.zeros_like(chance[1]))  # at most a half
    by_image, by_target = other[:, None, None, None], other[:, None, None]
    return (
        (1 - by_image) * images + by_image * images.flip(0),
        (1 - by_target) * targets + by_target * targets.flip(0),
    )
