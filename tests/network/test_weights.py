import copy
import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import amend, naming, put

from captcha_ocr.charset import Charset
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.inference.model_folder import backup_path, find_model_folder, restore_backup, swap_in
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.weights import load_into, load_model, save_model


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


def test_weights_that_do_not_fit_the_configuration_are_refused_without_allocating_it(folder):
    model = json.loads((folder / "config.json").read_bytes())["model"]
    amend(folder / "config.json", model={**model, "network": {**model["network"], "width": 512}})
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        load_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": {"shortest": 1, "longest": 10**9}},
        {"lengths": "4"},
        {"size": {"height": 10**6, "width": 10, "channels": 1}},
        {"charset": None},
    ],
)
def test_a_configuration_out_of_bounds_is_refused(folder, change):
    amend(folder / "config.json", model={**json.loads((folder / "config.json").read_bytes())["model"], **change})
    with pytest.raises(DamagedError, match=r"config\.json"):
        load_model(folder)


def test_weights_that_are_no_tensors_are_refused(folder):
    put(folder / "model.safetensors", b"no tensors")
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        load_model(folder)


def test_weights_of_another_alphabet_are_not_taken_over(folder):
    other = ResNet18(replace(load_model(folder).config, charset=Charset("abc")))
    with pytest.raises(UsageError, match=naming(folder, "characters")):
        load_into(other, folder)


def test_a_reader_finds_the_best_model_of_a_run_even_where_it_stepped_aside(run, tmp_path):
    assert find_model_folder(run) == find_model_folder(run / "best") == run / "best"
    stepped_aside = shutil.copytree(run / "best", backup_path(tmp_path / "best"))
    assert find_model_folder(tmp_path) == stepped_aside
    assert list(tmp_path.iterdir()) == [stepped_aside]


def test_a_folder_that_stepped_aside_comes_back_unless_its_successor_is_there(tmp_path):
    backup_path(tmp_path / "best").mkdir()
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
