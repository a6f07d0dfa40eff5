import copy
import json
import shutil

import pytest
import torch
from conftest import amend

from captcha_ocr.errors import DamagedError
from captcha_ocr.inference.model_folder import backup_path, find_model_folder, restore_backup, swap_in
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
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert not again.training
    assert half.head.weight.dtype == torch.float32
    assert half.head.weight.detach() == pytest.approx(model.head.weight.detach(), rel=1e-3, abs=1e-4)


def test_a_configuration_that_cannot_be_or_other_weights_are_refused_without_allocating_them(folder):
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


def test_a_best_model_that_stepped_aside_is_found_and_comes_back_unless_its_successor_is_there(run, tmp_path):
    assert find_model_folder(run) == find_model_folder(run / "best") == run / "best"
    stepped_aside = shutil.copytree(run / "best", backup_path(tmp_path / "best"))
    assert find_model_folder(tmp_path) == stepped_aside
    assert list(tmp_path.iterdir()) == [stepped_aside]  # a reader leaves it there
    restore_backup(tmp_path / "best")
    assert list(tmp_path.iterdir()) == [tmp_path / "best"]
    (tmp_path / "best" / "new").touch()
    backup_path(tmp_path / "best").mkdir()
    restore_backup(tmp_path / "best")
    assert (tmp_path / "best" / "new").exists()


def test_a_folder_that_is_put_in_place_replaces_a_folder_or_a_link_and_nothing_else(tmp_path):
    for name in ("elsewhere", "new", "newer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    for name in ("best", backup_path(tmp_path / "best").name):
        (tmp_path / name).symlink_to("elsewhere")
    swap_in(tmp_path / "new", tmp_path / "best")
    assert (tmp_path / "best" / "new").exists()
    swap_in(tmp_path / "newer", tmp_path / "best")
    assert list((tmp_path / "best").iterdir()) == [tmp_path / "best" / "newer"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "elsewhere"]
    assert (tmp_path / "elsewhere" / "elsewhere").exists()
