import torch

from captcha_ocr.augment import augment, fade, mix, move


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def crosses(count: int, channels: int = 1) -> torch.Tensor:
    """(count, channels, 60, 160) float32: white, with a dark cross in the middle."""
    images = torch.full((count, channels, 60, 160), 250.0)
    images[..., 20:40, 78:82] = images[..., 28:32, 60:100] = 10
    return images


def test_every_image_is_changed_by_itself_and_keeps_its_shape_and_range():
    changed, targets = augment(crosses(3).to(torch.uint8), torch.tensor([[0, 1], [2, 3], [1, 1]]), 4, chance())
    assert changed.shape == (3, 1, 60, 160)
    assert changed.dtype == torch.float32
    assert changed.min() >= 0
    assert changed.max() <= 255
    assert not torch.allclose(changed[0], changed[1], atol=1)
    assert targets.shape == (3, 2, 4)


def test_the_ink_moves_some_pixels_and_no_more():
    dark = 250 - move(crosses(100), chance())[:, 0]
    rows = (dark.sum(2) * torch.arange(60)).sum(1) / dark.sum((1, 2))
    columns = (dark.sum(1) * torch.arange(160)).sum(1) / dark.sum((1, 2))
    assert (rows - 29.5).abs().max() < 6
    assert (columns - 79.5).abs().max() < 8
    assert rows.std() > 1
    assert columns.std() > 2


def test_fading_keeps_the_darkest_and_the_lightest_and_their_order():
    images = torch.linspace(20, 240, 60 * 160).view(1, 1, 60, 160).repeat(20, 1, 1, 1)
    faded = fade(images, chance())
    assert (faded.flatten(1).diff() >= 0).all()
    assert (faded.amin((1, 2, 3)) - 20).abs().max() < 10
    assert (faded.amax((1, 2, 3)) - 240).abs().max() < 2
    assert faded.mean((1, 2, 3)).std() > 5


def test_what_shines_through_is_the_lesser_part_of_pixels_and_targets():
    images = torch.arange(40.0).view(40, 1, 1, 1).expand(40, 1, 4, 4)
    targets = torch.eye(40)[:, None]
    mixed, shares = mix(images, targets, chance())
    assert shares.sum(-1).allclose(torch.ones(40, 1))
    assert torch.equal(shares.argmax(-1)[:, 0], torch.arange(40))
    assert torch.allclose((shares[:, 0] * torch.arange(40.0)).sum(1), mixed[:, 0, 0, 0], atol=1e-4)
    assert 25 <= (shares.amax(-1) == 1).sum() < 40  # three quarters stay as they are


def test_the_same_chance_changes_alike_and_all_channels_of_an_image_alike():
    labels = torch.zeros(2, 1, dtype=torch.int64)
    one, again = (augment(crosses(2, 3), labels, 2, chance(3))[0] for _ in range(2))
    assert torch.equal(one, again)
    assert torch.equal(one[:, 0], one[:, 2])
