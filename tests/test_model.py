from itertools import groupby, product
from typing import get_args

import pytest
import torch
from torch.nn import functional

from captcha_ocr.charset import Charset
from captcha_ocr.config import PRESETS, InputSize, Lengths, ModelConfig, NetworkConfig, Pool
from captcha_ocr.model import (
    ResNet18,
    TorchEngine,
    columns_of,
    count_parameters,
    fuse_norms,
    places_from_columns,
    standardise,
)

CHARSET = Charset("abcdefghijklmnopqrstuvwxyz0123456789")
SEED = ModelConfig(CHARSET, Lengths(4, 4), PRESETS["seed"].size, PRESETS["seed"].network)


def tiny(shortest: int = 3, **network) -> ModelConfig:
    return ModelConfig(Charset("01234"), Lengths(shortest, 3), InputSize(20, 50, 1), NetworkConfig(width=4, **network))


def probabilities_by_hand(state: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """The source recipe's network written out with plain functions, in float64: (B, 4, 36)."""
    state = {name: tensor.double() for name, tensor in state.items()}

    def norm(x, name):
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        shape = (1, -1, 1, 1)
        x = (x - mean.view(shape)) / (variance.view(shape) + 1e-5).sqrt()
        return x * weight.view(shape) + bias.view(shape)

    def block(x, name, stride):
        y = functional.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
        y = norm(y, f"{name}.norm1").clamp_min(0)
        y = norm(functional.conv2d(y, state[f"{name}.conv2.weight"], padding=1), f"{name}.norm2")
        if f"{name}.shortcut.0.weight" in state:
            x = norm(functional.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=stride), f"{name}.shortcut.1")
        return (y + x).clamp_min(0)

    x = images.double() / 255
    x = norm(functional.conv2d(x, state["stem.0.weight"], padding=1), "stem.1").clamp_min(0)
    for number, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1)):
        x = block(x, f"blocks.{number}", stride)
    x = x.sum((2, 3)) / (x.shape[2] * x.shape[3])
    logits = (x @ state["head.weight"].T + state["head.bias"]).view(-1, 4, 36)
    exponentials = (logits - logits.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def test_the_seed_preset_has_the_recipes_parameter_count():
    assert count_parameters(ResNet18(SEED)) == 11_242_704


def test_the_seed_preset_computes_the_recipes_probabilities():
    torch.manual_seed(0)
    model = ResNet18(SEED)
    images = torch.randint(0, 256, (4, 3, 24, 56), dtype=torch.uint8)
    model.train()
    model(images)  # moves the running statistics away from 0 and 1
    model.eval()
    with torch.no_grad():
        model.head.weight.mul_(50)  # so that the probabilities are far from uniform
        read = model(images).softmax(-1)
    expected = probabilities_by_hand(model.state_dict(), images)
    assert expected.amax(-1).mean() > 0.1
    assert (read - expected).abs().max() < 1e-5


@pytest.mark.parametrize("stem", ["3x3", "strided"])
@pytest.mark.parametrize(("pool", "classes"), [("global", 5), ("columns", 6), ("narrow", 6)])
def test_every_stem_and_pool_gives_logits_for_each_place_and_character(stem, pool, classes):
    logits = ResNet18(tiny(stem=stem, pool=pool))(torch.zeros(2, 1, 20, 50, dtype=torch.uint8))
    assert logits.shape == (2, 3, classes)
    assert logits.dtype == torch.float32


@pytest.mark.parametrize("pool", get_args(Pool))
def test_where_lengths_vary_there_is_a_logit_for_nothing(pool):
    logits = ResNet18(tiny(shortest=1, pool=pool))(torch.zeros(2, 1, 20, 50, dtype=torch.uint8))
    assert logits.shape == (2, 3, 6)


def test_what_columns_say_of_places_is_the_sum_over_all_that_could_be_drawn():
    columns = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))  # the characters 0, 1, 2 and a blank
    expected = torch.zeros(2, 3, 4)
    for drawn in product(range(4), repeat=5):
        text = [character for character, _ in groupby(drawn) if character != 3]
        probability = columns.softmax(-1)[:, range(5), drawn].prod(1)
        for place in range(3):
            expected[:, place, text[place] if place < len(text) else 3] += probability
    assert torch.allclose(places_from_columns(columns, 3).exp(), expected, atol=1e-6)


def test_a_character_over_several_columns_is_one_and_behind_a_blank_another():
    columns = 50 * functional.one_hot(torch.tensor([[0, 0, 1, 3, 1, 2]]), 4).float()
    read = places_from_columns(columns, 5)
    assert read.argmax(-1).tolist() == [[0, 1, 1, 2, 3]]
    assert read.isfinite().all()


def test_what_no_column_draws_has_a_gradient_that_can_be_reckoned_with():
    columns = (1000 * torch.eye(4)[None]).requires_grad_()
    places_from_columns(columns, 3).sum().backward()
    assert columns.grad.isfinite().all()


def test_at_first_about_as_many_characters_are_drawn_as_there_are_places():
    torch.manual_seed(0)
    model = ResNet18(ModelConfig(CHARSET, Lengths(1, 8), InputSize(60, 160, 1), NetworkConfig(width=8))).eval()
    with torch.no_grad():
        nothing = model(torch.zeros(1, 1, 60, 160, dtype=torch.uint8))[0, :, -1].exp()
    assert 6 < (1 - nothing).sum() < 8


@pytest.mark.parametrize("width", [16, 17, 50, 56, 63, 100, 160])
@pytest.mark.parametrize("stem", ["3x3", "strided"])
@pytest.mark.parametrize("pool", get_args(Pool))
def test_the_columns_that_the_head_expects_are_those_the_blocks_give(width, stem, pool):
    config = ModelConfig(CHARSET, Lengths(1, 1), InputSize(16, width, 1), NetworkConfig(width=2, stem=stem, pool=pool))
    model = ResNet18(config).eval()
    features = model.blocks(model.stem(torch.zeros(1, 1, 16, width)))
    assert features.shape[-1] == columns_of(config)


def test_brightness_and_contrast_tell_nothing():
    torch.manual_seed(0)
    model = ResNet18(tiny()).eval()
    images = torch.randint(0, 100, (2, 1, 20, 50), dtype=torch.uint8)
    brighter, mirrored = ((model(images) - model(other)).abs().max() for other in (2 * images + 51, images.flip(3)))
    assert brighter < mirrored / 4


def test_images_are_standardised_one_by_one_and_every_channel_by_itself():
    contrast = torch.tensor([0.5, 0.7, 1.0])
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images = images * contrast.view(3, 1, 1, 1) * contrast.view(1, 3, 1, 1) + 0.1
    standard = standardise(images)
    assert standard.mean((2, 3)).abs().max() < 1e-5
    assert standard.std((2, 3)).flatten().tolist() == pytest.approx([1] * 9, abs=0.25)


def test_an_empty_image_is_no_division_by_zero():
    assert ResNet18(tiny()).eval()(torch.full((1, 1, 20, 50), 200, dtype=torch.uint8)).isfinite().all()


def test_columns_keep_the_place_of_a_character():
    model = ResNet18(tiny(pool="columns")).eval()
    left = torch.zeros(1, 1, 20, 50, dtype=torch.uint8)
    right = left.clone()
    left[..., :10], right[..., -10:] = 255, 255
    assert not torch.allclose(model(left), model(right))


@pytest.mark.parametrize("stem", ["3x3", "strided"])
def test_a_network_without_its_norms_gives_the_same_logits(stem):
    torch.manual_seed(0)
    model = ResNet18(tiny(stem=stem))
    images = torch.randint(0, 256, (8, 1, 20, 50), dtype=torch.uint8)
    model(images)  # moves the running statistics away from 0 and 1
    fused = fuse_norms(model.eval())
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in fused.modules())
    assert torch.allclose(fused(images), model(images), atol=1e-5)
    assert any(isinstance(part, torch.nn.BatchNorm2d) for part in model.modules())


def test_the_engine_takes_and_gives_numpy():
    engine = TorchEngine(ResNet18(tiny()), torch.device("cpu"))
    logits = engine.logits(torch.zeros(2, 1, 20, 50, dtype=torch.uint8).numpy())
    assert logits.shape == (2, 3, 6)
    assert logits.dtype == "float32"
