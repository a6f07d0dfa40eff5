import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig
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


@pytest.mark.parametrize("pool", ["columns", "global"])
def test_a_model_of_the_same_kind_reads_the_same(pool):
    source, target = model(pool=pool), model(pool=pool, seed=1)
    take_over(source, target)
    assert torch.equal(source(images()), target(images()))


def classifier(network: ResNet18, names: list[str]) -> list[torch.Tensor]:
    """The weights and the biases of some classes, for every place that has its own."""
    ids = [network.config.class_names.index(name) for name in names]
    weight, bias = network.head.weight, network.head.bias
    return [tensor.unflatten(0, (-1, network.config.classes))[:, ids] for tensor in (weight, bias)]


@pytest.mark.parametrize("pool", ["columns", "global"])
def test_characters_that_both_know_are_taken_over_in_either_case(pool):
    source, target = model("abc", pool=pool), model("xBca", seed=1, pool=pool)
    take_over(source, target)
    for before, after in zip(classifier(source, ["a", "b", "c"]), classifier(target, ["a", "B", "c"]), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("pool", ["columns", "global"])
def test_nothing_is_taken_over_where_both_have_it(pool):
    source, target = model(lengths=(1, 3), pool=pool), model("cd", lengths=(2, 3), seed=1, pool=pool)
    take_over(source, target)
    for before, after in zip(classifier(source, ["c", ""]), classifier(target, ["c", ""]), strict=True):
        assert torch.equal(before, after)


def test_grey_images_are_seen_in_colour_as_they_were_in_grey_and_back():
    source, coloured, grey = model(), model(channels=3, seed=1), model(seed=2)
    take_over(source, coloured)
    assert torch.allclose(source(images()), coloured(images(3)), atol=1e-4)
    take_over(coloured, grey)
    assert torch.allclose(source(images()), grey(images()), atol=1e-4)


def test_columns_are_read_alike_whatever_the_length_of_texts_and_the_width_of_images():
    source, target = model(lengths=(2, 2), width=48), model(lengths=(1, 4), width=96, seed=1)
    take_over(source, target)
    assert torch.allclose(source(images(width=64)), target(images(width=64))[:, :2])


def test_a_model_starts_as_sure_as_its_weights_make_it():
    source, target = model(), model(seed=1)
    source.temperature.mul_(2)
    take_over(source, target)
    assert target.temperature == 1
