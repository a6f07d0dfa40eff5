import torch

from captcha_ocr.augment import bend


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_cross() -> torch.Tensor:
    """(1, 1, 60, 160) uint8: white, with a dark cross in the middle."""
    image = torch.full((1, 1, 60, 160), 250, dtype=torch.uint8)
    image[..., 20:40, 78:82] = image[..., 28:32, 60:100] = 10
    return image


def test_without_strength_nothing_moves():
    image = a_cross()
    assert torch.allclose(bend(image, 0.0, chance()), image.float(), atol=0.1)


def test_every_image_is_bent_by_itself_and_keeps_its_shape_and_range():
    images = a_cross().repeat(3, 1, 1, 1)
    bent = bend(images, 1.0, chance())
    assert bent.shape == images.shape
    assert bent.dtype == torch.float32
    assert bent.min() >= 0
    assert bent.max() <= 255
    assert not torch.allclose(bent[0], bent[1], atol=1)


def test_the_ink_stays_within_some_pixels_of_its_place():
    bent = bend(a_cross().repeat(50, 1, 1, 1), 1.0, chance())
    dark = 250 - bent[:, 0]
    rows = (dark.sum(2) * torch.arange(60)).sum(1) / dark.sum((1, 2))
    columns = (dark.sum(1) * torch.arange(160)).sum(1) / dark.sum((1, 2))
    assert (rows - 29.5).abs().max() < 6
    assert (columns - 79.5).abs().max() < 6
    assert rows.std() > 0.3
    assert columns.std() > 0.3


def test_the_same_chance_bends_alike():
    assert torch.equal(bend(a_cross(), 1.0, chance(3)), bend(a_cross(), 1.0, chance(3)))


def test_all_channels_of_an_image_are_bent_alike():
    bent = bend(a_cross().repeat(1, 3, 1, 1), 1.0, chance())
    assert torch.equal(bent[:, 0], bent[:, 2])
