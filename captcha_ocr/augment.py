"""Training images bent a little anew each time they are shown, on whatever device they lie."""

import torch
from torch import Tensor
from torch.nn import functional

ROTATION, SCALE = 0.05, 0.08  # at most: radians, and share of the side
BEND = 3.0  # pixels, at most, that a knot moves
KNOTS = (4, 9)  # rows and columns of the grid of knots: about two for a character


def bend(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Turn, shear, scale and bend each image by itself; (B, C, H, W) uint8 in, float32 in [0, 255] out.

    A smooth field of random shifts (after Simard et al. 2003, "Best practices for convolutional
    neural networks", elastic distortions) on top of a random affine map. `strength` 1 is what was
    measured (docs/lab-notebook.md); the generator is one of the images' device.
    """
    count, _, height, width = images.shape

    def uniform(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator, device=images.device) * 2 - 1) * strength

    y = torch.linspace(-height / 2, height / 2, height, device=images.device)[None, :, None]
    x = torch.linspace(-width / 2, width / 2, width, device=images.device)[None, None, :]
    angle, shear = uniform(count, 1, 1) * ROTATION, uniform(count, 1, 1) * ROTATION
    scale_x, scale_y = 1 + uniform(count, 1, 1) * SCALE, 1 + uniform(count, 1, 1) * SCALE
    rows, columns = spread(KNOTS[0], height, images.device), spread(KNOTS[1], width, images.device)
    shifts = rows @ (uniform(count, 2, *KNOTS) * BEND) @ columns.T  # (B, 2, H, W)
    source_x = scale_x * x + (angle + shear) * y + shifts[:, 0]  # small angles: the sine is the angle
    source_y = scale_y * y - angle * x + shifts[:, 1]
    grid = torch.stack([source_x / (width / 2), source_y / (height / 2)], -1)
    return functional.grid_sample(images.float(), grid, padding_mode="reflection", align_corners=True)


def spread(knots: int, pixels: int, device: torch.device) -> Tensor:
    """What each knot along a side adds to each pixel, (pixels, knots): smooth interpolation as a matrix."""
    unit = torch.eye(knots, device=device)[None, None]
    return functional.interpolate(unit, (pixels, knots), mode="bicubic", align_corners=True)[0, 0]
