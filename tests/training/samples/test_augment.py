import torch

from captcha_ocr.training.samples.augment import augment, mixup, random_affine, random_gamma


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def crosses(count: int, channels: int = 1) -> torch.Tensor:
    """Draw white images with a dark cross in the middle: (count, channels, 60, 160) float32."""
    images = torch.full((count, channels, 60, 160), 250.0)
    images[..., 20:40, 78:82] = images[..., 28:32, 60:100] = 10
    return images


def test_each_image_changes_in_its_own_way_and_a_seed_repeats_it():
    images, labels = crosses(3, channels=3).to(torch.uint8), torch.tensor([[0, 1], [2, 3], [1, 1]])
    (changed, targets), (again, _) = (augment(images, labels, 4, generator()) for _ in range(2))
    assert (changed.shape, changed.dtype, targets.shape) == (images.shape, torch.float32, (3, 2, 4))
    assert changed.min() >= 0
    assert changed.max() <= 255
    assert not torch.allclose(changed[0], changed[1], atol=1)
    assert torch.equal(changed[:, 0], changed[:, 2])
    assert torch.equal(changed, again)


def test_the_text_moves_by_a_few_pixels():
    dark = 250 - random_affine(crosses(100), generator())[:, 0]
    rows = (dark.sum(2) * torch.arange(60)).sum(1) / dark.sum((1, 2))
    columns = (dark.sum(1) * torch.arange(160)).sum(1) / dark.sum((1, 2))
    assert (rows - 29.5).abs().max() < 6
    assert (columns - 79.5).abs().max() < 8
    assert rows.std() > 1
    assert columns.std() > 2


def test_fading_keeps_the_darkest_and_the_lightest_pixel_and_the_order():
    images = torch.linspace(20, 240, 60 * 160).view(1, 1, 60, 160).repeat(20, 1, 1, 1)
    faded = random_gamma(images, generator())
    assert (faded.flatten(1).diff() >= 0).all()
    assert (faded.amin((1, 2, 3)) - 20).abs().max() < 10
    assert (faded.amax((1, 2, 3)) - 240).abs().max() < 2
    assert faded.mean((1, 2, 3)).std() > 5


def test_the_other_image_has_the_smaller_share_of_the_pixels_and_of_the_targets():
    images = torch.arange(40.0).view(40, 1, 1, 1).expand(40, 1, 4, 4)
    mixed, shares = mixup(images, torch.eye(40)[:, None], generator())
    assert shares.sum(-1).allclose(torch.ones(40, 1))
    assert torch.equal(shares.argmax(-1)[:, 0], torch.arange(40))
    assert torch.allclose((shares[:, 0] * torch.arange(40.0)).sum(1), mixed[:, 0, 0, 0], atol=1e-4)
    assert 25 <= (shares.amax(-1) == 1).sum() < 40  # three quarters stay unmixed
