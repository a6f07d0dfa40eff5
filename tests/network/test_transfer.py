import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.transfer import copy_matching_weights
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig


def model(characters="abc", lengths=(2, 2), width=48, channels=1, seed=0, **network) -> ResNet18:
    torch.manual_seed(seed)
    network = NetworkConfig(**{"width": 4, "stem": "3x3", **network})
    return ResNet18(
        ModelConfig(Charset(characters), Lengths(*lengths), InputSize(16, width, channels), network)
    ).eval()


def images(channels=1, width=48) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    grey = torch.randint(0, 256, (3, 1, 16, width), dtype=torch.uint8, generator=generator)
    return grey.expand(-1, channels, -1, -1)


@pytest.mark.parametrize("pool", ["columns", "global"])
def test_a_model_of_the_same_kind_reads_the_same_without_the_temperature(pool):
    source, target = model(pool=pool), model(pool=pool, seed=1)
    source.temperature.mul_(2)
    copy_matching_weights(source, target)
    assert target.temperature == 1
    source.temperature.fill_(1)
    assert torch.equal(source(images()), target(images()))


def classifier(network: ResNet18, names: list[str]) -> list[torch.Tensor]:
    """The weights and the biases of some classes, for every place that has its own."""
    ids = [network.config.class_names.index(name) for name in names]
    weight, bias = network.head.weight, network.head.bias
    return [tensor.unflatten(0, (-1, network.config.classes))[:, ids] for tensor in (weight, bias)]


@pytest.mark.parametrize("pool", ["columns", "global"])
@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        ({"characters": "abc"}, {"characters": "xBca"}, ("abc", "aBc")),  # in either case
        (
            {"lengths": (1, 3)},
            {"characters": "cd", "lengths": (2, 3)},
            (["c", ""], ["c", ""]),
        ),  # "" is the blank
    ],
)
def test_the_classes_that_both_know_are_taken_over(pool, source, target, names):
    source, target = model(**source, pool=pool), model(**target, pool=pool, seed=1)
    copy_matching_weights(source, target)
    for before, after in zip(
        classifier(source, names[0]), classifier(target, names[1]), strict=True
    ):
        assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("before", "after", "same_head"),
    [
        ("abc", "bcd", True),
        ("abc", "large", False),
        ("large", "abc", False),
        ("large", "larger", True),
    ],
)
def test_a_head_is_taken_over_if_both_or_neither_normalise_its_features(before, after, same_head):
    large = "".join(map(chr, range(0x4E00, 0x4F00)))
    texts = {"large": large + "c", "larger": "c" + large}
    source, target, fresh = (
        model(texts.get(name, name), seed=seed) for name, seed in ((before, 0), *2 * [(after, 1)])
    )
    source.norm.load_state_dict(
        {name: tensor + 1 for name, tensor in source.norm.state_dict().items()}
    )
    copy_matching_weights(source, target)
    expected = classifier(source if same_head else fresh, ["c", ""])
    assert all(map(torch.equal, expected, classifier(target, ["c", ""])))
    kept = (source if same_head else fresh).norm.state_dict()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in target.norm.state_dict().items())
    assert torch.equal(source.stem[0].weight, target.stem[0].weight)


def test_grey_images_give_the_same_logits_in_colour_and_back():
    source, coloured, grey = model(), model(channels=3, seed=1), model(seed=2)
    copy_matching_weights(source, coloured)
    assert torch.allclose(source(images()), coloured(images(3)), atol=1e-4)
    copy_matching_weights(coloured, grey)
    assert torch.allclose(source(images()), grey(images()), atol=1e-4)


def test_columns_give_the_same_logits_for_other_lengths_and_widths():
    source, target = model(lengths=(2, 2), width=48), model(lengths=(1, 4), width=96, seed=1)
    copy_matching_weights(source, target)
    assert torch.allclose(source(images(width=64)), target(images(width=64))[:, :2])
