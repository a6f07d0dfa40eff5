"""Random changes to training images, computed on the images' device.

No change alters the width of one stroke against another, which alone distinguishes O from 0:
elastic distortion and unequal scaling made exactly that worse (docs/decisions.md, Augmentation).
"""

import torch
from torch import Tensor
from torch.nn import functional

_MAX_ROTATION, _MAX_ZOOM = 0.05, 0.08  # radians, and share of the size
_MAX_SHIFT_X, _MAX_SHIFT_Y = 0.0375, 0.07  # of the width and of the height
_MAX_LOG_GAMMA = 0.4
_MIXUP_SHARE = 0.25  # of the images


def augment(
    images: Tensor, labels: Tensor, classes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Change every image by random numbers of its own, from a generator on the images' device.

    images (B, C, H, W) uint8 and labels (B, L) become images float32 in [0, 255] and targets
    (B, L, K) float32, which sum to 1 and are largest for the label.
    """
    targets = functional.one_hot(labels, classes).float()
    return mixup(change_views(images, generator), targets, generator)


def change_views(images: Tensor, generator: torch.Generator) -> Tensor:
    """Change how images (B, C, H, W) uint8 look, without mixing them.

    Returns float32 in [0, 255].
    """
    return random_gamma(random_affine(images.float(), generator), generator)


def _uniform(images: Tensor, reach: float, generator: torch.Generator) -> Tensor:
    """Return a random number in [-reach, reach] for each image, (B, 1, 1)."""
    random = torch.rand((len(images), 1, 1), generator=generator, device=images.device)
    return (random * 2 - 1) * reach


def random_affine(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, zoom and shift images, and fill the outside with the border's pixels.

    Reflection would show a letter at the border twice, with one label (docs/decisions.md,
    Augmentation).
    """
    height, width = images.shape[2:]
    y = torch.linspace(-height / 2, height / 2, height, device=images.device)[None, :, None]
    x = torch.linspace(-width / 2, width / 2, width, device=images.device)[None, None, :]
    angle, zoom = (
        _uniform(images, _MAX_ROTATION, generator),
        1 + _uniform(images, _MAX_ZOOM, generator),
    )
    # The angle is so small that it is its sine.
    source_x = zoom * x + angle * y + _uniform(images, _MAX_SHIFT_X * width, generator)
    source_y = zoom * y - angle * x + _uniform(images, _MAX_SHIFT_Y * height, generator)
    grid = torch.stack([source_x / (width / 2), source_y / (height / 2)], -1)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=True)


def random_gamma(images: Tensor, generator: torch.Generator) -> Tensor:
    """Apply a random gamma between each image's darkest and lightest value, which stay."""
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    exponent = _uniform(images, _MAX_LOG_GAMMA, generator).exp()[..., None]
    return (high - low) * ((images - low) / (high - low + 1)).clamp_min(1e-4) ** exponent + low


def mixup(images: Tensor, targets: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Blend some images and their targets with others of the batch, at most half and half.

    Zhang et al. 2017, arXiv:1710.09412.
    """
    random = torch.rand((2, len(images)), generator=generator, device=images.device)
    share = torch.where(random[0] < _MIXUP_SHARE, random[1] / 2, torch.zeros_like(random[1]))
    share = share[:, None, None]
    images = (1 - share[..., None]) * images + share[..., None] * images.flip(0)
    return images, (1 - share) * targets + share * targets.flip(0)
