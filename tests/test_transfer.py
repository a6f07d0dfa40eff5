import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig
from captcha_ocr.errors import UsageError
from captcha_ocr.model import ResNet18
from captcha_ocr.transfer import take_over


def model(characters="abc", lengths=(2, 2), width=48, channels=1, seed=0, **network) -> ResNet18:
    torch.manual_seed(seed)
    network = NetworkConfig(**{"width": 4, "stem": "3x3", **network})
    return ResNet18(ModelConfig(Charset(characters), Lengths(*lengths), InputSize(16, width, channels), network)).eval()


def images(channels=1, width=48) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    grey = torch.randint(0, 256, (3, 1, 16, width), dtype=torch.uint8, generator=generator)
    return grey.expand(-1, channels, -1, -1)


@pytest.mark.parametrize("pool", ["attention", "global"])
def test_a_model_of_the_same_kind_reads_the_same(pool):
    source, target = model(pool=pool), model(pool=pool, seed=1)
    take_over(source, target)
    assert torch.equal(source(images()), target(images()))


@pytest.mark.parametrize("pool", ["attention", "global"])
def test_characters_that_both_know_are_taken_over_in_either_case(pool):
    source, target = model("abc", pool=pool), model("xBca", seed=1, pool=pool)
    take_over(source, target)
    before, after = source(images()), target(images())
    assert torch.allclose(before, after[..., [3, 1, 2]])


def test_nothing_is_taken_over_where_both_have_it():
    source, target = model(lengths=(1, 3)), model("cd", lengths=(2, 3), seed=1)
    take_over(source, target)
    assert torch.allclose(source(images())[..., [2, 3]], target(images())[..., [0, 2]])


def test_grey_images_are_seen_in_colour_as_they_were_in_grey_and_back():
    source, coloured, grey = model(), model(channels=3, seed=1), model(seed=2)
    take_over(source, coloured)
    assert torch.allclose(source(images()), coloured(images(3)), atol=1e-4)
    take_over(coloured, grey)
    assert torch.allclose(source(images()), grey(images()), atol=1e-4)


def test_places_keep_their_order_for_other_lengths_and_sizes():
    source, target = model(lengths=(2, 2), width=48), model(lengths=(4, 4), width=96, seed=1)
    take_over(source, target)
    assert target.attention.bias.shape == (4, 48)
    assert (target.attention.bias.argmax(1).diff() > 0).all()
    assert torch.equal(target.attention.key.weight[[0, -1]], source.attention.key.weight[[0, -1]])


def test_another_kind_of_network_is_refused():
    with pytest.raises(UsageError, match=r"is of another network \(width: 8 -> 4\)"):
        take_over(model_of_width_8(), model())


def model_of_width_8() -> ResNet18:
    config = model().config
    return ResNet18(ModelConfig(config.charset, config.lengths, config.size, NetworkConfig(width=8, stem="3x3")))
