import copy
import json
import shutil

import pytest
import torch
from conftest import amend

from captcha_ocr.charset import Charset
from captcha_ocr.errors import DamagedError
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.weights import (
    copy_matching_weights,
    load_model,
    mean_model,
    save_model,
)
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig


@pytest.fixture
def folder(run, tmp_path):
    """A copy of a trained model folder."""
    return shutil.copytree(run / "best", tmp_path / "copied")


def test_a_saved_model_comes_back_with_every_tensor_in_float32(folder, tmp_path):
    (folder / "README.md").write_text("mine")  # a user may edit the card
    model = load_model(folder)
    save_model(tmp_path / "again", model, {})
    save_model(tmp_path / "half", copy.deepcopy(model).half(), {})
    again, half = load_model(tmp_path / "again"), load_model(tmp_path / "half")
    assert again.config == model.config
    assert all(
        torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items()
    )
    assert not again.training
    assert half.head.weight.dtype == torch.float32
    assert half.head.weight.detach() == pytest.approx(
        model.head.weight.detach(), rel=1e-3, abs=1e-4
    )


def test_the_mean_of_models_has_the_mean_of_each_weight(folder, tmp_path):
    folders = [tmp_path / str(factor) for factor in (1, 2, 6)]
    for path in folders:
        model = load_model(folder)
        model.head.weight.data *= int(path.name)
        save_model(path, model, {})
    mean = mean_model(folders).head.weight.detach()
    assert mean == pytest.approx(3 * load_model(folder).head.weight.detach(), rel=1e-5, abs=1e-6)


def test_a_configuration_that_cannot_be_or_other_weights_are_refused_without_allocating_them(
    folder,
):
    model = json.loads((folder / "config.json").read_bytes())["model"]
    for change, named in (
        ({"lengths": {"shortest": 1, "longest": 10**9}}, "config.json"),
        ({"lengths": "4"}, "config.json"),
        ({"size": {"height": 10**6, "width": 10, "channels": 1}}, "config.json"),
        ({"charset": None}, "config.json"),
        ({"network": {**model["network"], "width": 512}}, "model.safetensors"),
    ):
        amend(folder / "config.json", model={**model, **change})
        with pytest.raises(DamagedError, match=str(folder / named)):
            load_model(folder)


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
