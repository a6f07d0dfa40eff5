import copy
import json
import shutil

import pytest
import torch
from conftest import amend

from captcha_ocr.errors import DamagedError
from captcha_ocr.network.weights import load_model, save_model


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
