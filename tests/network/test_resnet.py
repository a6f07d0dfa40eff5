from dataclasses import replace
from itertools import groupby, product
from typing import get_args

import pytest
import torch
from torch.nn import functional

from captcha_ocr.charset import Charset
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.resnet import (
    ResNet18,
    count_columns,
    positions_from_columns,
    standardise,
)
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig, Pool, Stem
from captcha_ocr.options.training import PRESETS

CHARSET = Charset("abcdefghijklmnopqrstuvwxyz0123456789")
SEED = ModelConfig(CHARSET, Lengths(4, 4), PRESETS["seed"].size, PRESETS["seed"].network)
EMPTY = torch.zeros(2, 1, 20, 50, dtype=torch.uint8)


def tiny(shortest: int = 3, **network) -> ResNet18:
    network = NetworkConfig(width=4, **network)
    return ResNet18(
        ModelConfig(Charset("01234"), Lengths(shortest, 3), InputSize(20, 50, 1), network)
    )


def probabilities_by_hand(state: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """Compute the network of the source recipe with plain functions in float64: (B, 4, 36)."""
    state = {name: tensor.double() for name, tensor in state.items()}

    def norm(x, name):
        weight, bias, mean, variance = (
            state[f"{name}.{part}"].view(1, -1, 1, 1)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias

    def block(x, name, stride):
        y = functional.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
        y = norm(y, f"{name}.norm1").clamp_min(0)
        y = norm(functional.conv2d(y, state[f"{name}.conv2.weight"], padding=1), f"{name}.norm2")
        if f"{name}.shortcut.0.weight" in state:
            x = norm(
                functional.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=stride),
                f"{name}.shortcut.1",
            )
        return (y + x).clamp_min(0)

    x = images.double() / 255
    x = norm(functional.conv2d(x, state["stem.0.weight"], padding=1), "stem.1").clamp_min(0)
    for number, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1)):
        x = block(x, f"blocks.{number}", stride)
    x = x.sum((2, 3)) / (x.shape[2] * x.shape[3])
    logits = (x @ state["head.weight"].T + state["head.bias"]).view(-1, 4, 36)
    exponentials = (logits - logits.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def test_the_seed_preset_is_the_network_of_the_recipe():
    torch.manual_seed(0)
    model = ResNet18(SEED)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_242_704
    images = torch.randint(0, 256, (2, 3, 24, 56), dtype=torch.uint8)
    model(images)  # moves the running statistics away from 0 and 1
    model.eval()
    with torch.no_grad():
        model.head.weight.mul_(50)  # so that the probabilities are far from uniform
        read = model(images).softmax(-1)
    expected = probabilities_by_hand(model.state_dict(), images)
    assert expected.amax(-1).mean() > 0.1
    assert (read - expected).abs().max() < 1e-5


@pytest.mark.parametrize("stem", get_args(Stem))
@pytest.mark.parametrize(
    ("pool", "shortest", "classes"),
    [("global", 3, 5), ("global", 1, 6), ("columns", 3, 6), ("slim", 3, 6), ("narrow", 3, 6)],
)
def test_every_network_gives_logits_for_each_place_and_class(stem, pool, shortest, classes):
    model = tiny(shortest, stem=stem, pool=pool)
    logits = model(EMPTY)
    assert (logits.shape, logits.dtype) == ((2, 3, classes), torch.float32)
    assert logits.isfinite().all()
    read = TorchEngine(model, torch.device("cpu")).logits(EMPTY.numpy())
    assert (read.shape, read.dtype) == ((2, 3, classes), "float32")


def test_the_probabilities_of_places_are_sums_over_all_ctc_paths():
    columns = torch.randn(
        2, 5, 4, generator=torch.Generator().manual_seed(0)
    )  # the characters 0, 1, 2 and a blank
    expected = torch.zeros(2, 3, 4)
    for path in product(range(4), repeat=5):
        text = [character for character, _ in groupby(path) if character != 3]
        probability = columns.softmax(-1)[:, range(5), path].prod(1)
        for place in range(3):
            expected[:, place, text[place] if place < len(text) else 3] += probability
    assert torch.allclose(positions_from_columns(columns, 3).exp(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "peak", "tolerance"),
    [
        (257, 0, 2e-3),
        (257, 3, 1e-3),
        (1000, 30, 1e-6),
        (3756, 0, 1e-4),
        (3756, 20, 1e-4),
        (3756, 40, 1e-6),
    ],
)
def test_a_large_alphabet_gets_the_sums_over_all_ctc_paths_too(classes, peak, tolerance):
    generator = torch.Generator().manual_seed(classes + peak)
    path = torch.randint(classes, (3, 5), generator=generator).repeat_interleave(
        2, 1
    )  # each class in two columns
    columns = torch.randn(3, 10, classes, generator=generator) + peak * functional.one_hot(
        path, classes
    )
    slopes = torch.randn(3, 4, classes, generator=generator)
    results = []
    for exact in (False, True):
        leaf = columns.clone().requires_grad_()
        probabilities = positions_from_columns(leaf, 4, exact).exp()
        assert torch.allclose(probabilities.sum(-1), torch.ones(3, 4), atol=1e-4)
        (probabilities * slopes).sum().backward()
        results += [probabilities, leaf.grad]
    assert torch.allclose(results[0], results[2], atol=tolerance)
    assert torch.allclose(results[1], results[3], atol=10 * tolerance)


@pytest.mark.parametrize(("characters", "is_normalised"), [(255, False), (256, True)])
def test_the_head_of_a_large_alphabet_sees_features_without_what_the_columns_share(
    characters, is_normalised
):
    charset = Charset("".join(map(chr, range(0x4E00, 0x4E00 + characters))))
    model = ResNet18(
        ModelConfig(charset, Lengths(2, 2), InputSize(16, 32, 1), NetworkConfig(width=4))
    ).train()
    seen = []
    model.head.register_forward_pre_hook(lambda head, features: seen.append(features[0]))
    model(
        torch.randint(
            0, 256, (8, 1, 16, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
        )
    )
    means = seen[0].mean((0, 1))
    assert (means.abs().max() < 1e-5) == is_normalised
    assert (seen[0].min() < 0) == is_normalised  # they are sums of rectified features


def test_ctc_merges_equal_columns_that_no_blank_separates():
    columns = (
        50 * functional.one_hot(torch.tensor([[0, 0, 1, 3, 1, 2]]), 4).float()
    ).requires_grad_()
    read = positions_from_columns(columns, 5)
    assert read.argmax(-1).tolist() == [[0, 1, 1, 2, 3]]
    read.sum().backward()
    assert read.isfinite().all()
    assert columns.grad.isfinite().all()


def test_an_untrained_network_reads_about_as_many_characters_as_there_are_places():
    torch.manual_seed(0)
    model = ResNet18(
        ModelConfig(CHARSET, Lengths(1, 8), InputSize(60, 160, 1), NetworkConfig(width=8))
    ).eval()
    with torch.no_grad():
        nothing = model(torch.zeros(1, 1, 60, 160, dtype=torch.uint8))[0, :, -1].exp()
    assert 6 < (1 - nothing).sum() < 8


@pytest.mark.parametrize("stem", get_args(Stem))
@pytest.mark.parametrize("pool", get_args(Pool))
def test_the_head_expects_as_many_columns_as_the_blocks_give(stem, pool):
    network = NetworkConfig(width=2, stem=stem, pool=pool)
    for width in (16, 17, 50, 56, 63, 100, 160):
        config = ModelConfig(CHARSET, Lengths(1, 1), InputSize(16, width, 1), network)
        model = ResNet18(config).eval()
        assert model.blocks(model.stem(torch.zeros(1, 1, 16, width))).shape[-1] == count_columns(
            config
        )


def test_new_context_blocks_change_nothing_and_trained_ones_see_the_whole_image():
    torch.manual_seed(0)
    config = ModelConfig(CHARSET, Lengths(1, 3), InputSize(16, 400, 1), NetworkConfig(width=32))
    without = ResNet18(config).eval()
    model = ResNet18(replace(config, network=NetworkConfig(width=32, context=2))).eval()
    model.load_state_dict(without.state_dict(), strict=False)
    images = torch.randint(0, 256, (1, 1, 16, 400), dtype=torch.uint8)
    other = images.clone()
    other[..., 350:] = images[..., 350:].flip(3)  # hundreds of pixels from the first columns
    with torch.no_grad():
        assert torch.equal(model(images, as_columns=True), without(images, as_columns=True))
        for block in model.context:
            block.attended.weight.normal_(std=0.1)
        first, second = (model(each, as_columns=True)[:, :5] for each in (images, other))
    assert (first - second).abs().max() > 1e-3


def test_brightness_and_contrast_hardly_change_the_logits():
    torch.manual_seed(0)
    model = tiny().eval()
    images = torch.randint(0, 100, (2, 1, 20, 50), dtype=torch.uint8)
    brighter, mirrored = (
        (model(images) - model(other)).abs().max() for other in (2 * images + 51, images.flip(3))
    )
    assert brighter < mirrored / 4


def test_each_channel_of_each_image_is_standardised():
    contrast = torch.tensor([0.5, 0.7, 1.0])
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    standard = standardise(images * contrast.view(3, 1, 1, 1) * contrast.view(1, 3, 1, 1) + 0.1)
    assert standard.mean((2, 3)).abs().max() < 1e-5
    assert standard.std((2, 3)).flatten().tolist() == pytest.approx([1] * 9, abs=0.25)
