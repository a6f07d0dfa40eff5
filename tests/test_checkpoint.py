import copy
import json
import shutil

import pytest
import torch
from conftest import naming

from captcha_ocr.checkpoint import load_into, load_model, save_model
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.files import seal, sha256, to_json
from captcha_ocr.model import ResNet18
from captcha_ocr.model_folder import aside, find_model_folder, put_in_place, recover


@pytest.fixture
def folder(run, tmp_path):
    """A copy of a trained model folder."""
    return shutil.copytree(run / "best", tmp_path / "copied")


def flip_bit(path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def reseal(folder, **changes) -> None:
    document = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_bytes(to_json(seal({**document, **changes})))


def test_a_saved_model_comes_back_with_every_tensor(folder, tmp_path):
    model = load_model(folder)
    save_model(tmp_path / "again", model, {})
    again = load_model(tmp_path / "again")
    assert again.config == model.config
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert not again.training


def test_weights_kept_in_half_precision_come_back_as_float32(folder, tmp_path):
    model = load_model(folder)
    save_model(tmp_path / "half", copy.deepcopy(model).half(), {})
    again = load_model(tmp_path / "half")
    assert again.head.weight.dtype == torch.float32
    assert again.head.weight.detach() == pytest.approx(model.head.weight.detach(), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_one_flipped_bit_anywhere_is_refused(folder, name, share):
    size = (folder / name).stat().st_size
    flip_bit(folder / name, int(share * size))
    with pytest.raises(DamagedError, match=name):
        load_model(folder)


def test_cut_weights_are_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(DamagedError):
        load_model(folder)


def test_missing_weights_are_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        load_model(folder)


def test_a_folder_without_a_model_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=tmp_path.name):
        load_model(tmp_path)


def test_a_newer_version_is_refused_by_name(folder):
    reseal(folder, version=99)
    with pytest.raises(DamagedError, match=naming("config.json", "99")):
        load_model(folder)


def test_weights_that_do_not_fit_the_configuration_are_refused_without_allocating_it(folder):
    document = json.loads((folder / "config.json").read_bytes())
    reseal(folder, model={**document["model"], "network": {**document["model"]["network"], "width": 512}})
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
    document = json.loads((folder / "config.json").read_bytes())
    reseal(folder, model={**document["model"], **change})
    with pytest.raises(DamagedError, match=r"config\.json"):
        load_model(folder)


def test_weights_that_are_a_pickle_are_refused_unopened(folder, tmp_path):
    import pickle

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trapped"), "w"))

    data = pickle.dumps(Trap())
    (folder / "model.safetensors").write_bytes(data)
    reseal(folder, files={"model.safetensors": sha256(data)})
    with pytest.raises(DamagedError):
        load_model(folder)
    assert not (tmp_path / "trapped").exists()


def test_the_card_can_be_edited(folder):
    (folder / "README.md").write_text("mine")
    load_model(folder)


def test_a_folder_that_had_stepped_aside_is_brought_back(tmp_path):
    aside(tmp_path / "best").mkdir()
    recover(tmp_path / "best")
    assert (tmp_path / "best").is_dir()


def test_a_reader_finds_a_model_that_stepped_aside_and_leaves_it_there(run, tmp_path):
    aside_folder = aside(shutil.copytree(run / "best", tmp_path / "best"))
    (tmp_path / "best").rename(aside_folder)
    assert find_model_folder(tmp_path) == aside_folder
    assert [path.name for path in tmp_path.iterdir()] == [aside_folder.name]


def test_a_folder_in_place_is_not_replaced_by_one_that_stepped_aside(tmp_path):
    for folder in (tmp_path / "best", aside(tmp_path / "best")):
        folder.mkdir()
    (tmp_path / "best" / "new").touch()
    recover(tmp_path / "best")
    assert (tmp_path / "best" / "new").exists()


def test_put_in_place_replaces_the_folder_and_leaves_nothing_beside_it(tmp_path):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "old").touch()
    (tmp_path / "best.tmp").mkdir()
    put_in_place(tmp_path / "best.tmp", tmp_path / "best")
    assert list(tmp_path.rglob("*")) == [tmp_path / "best"]


def test_a_link_to_a_folder_elsewhere_gives_way_and_what_it_leads_to_stays(tmp_path):
    for name in ("elsewhere", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    for name in ("best", aside(tmp_path / "best").name):
        (tmp_path / name).symlink_to("elsewhere")
    put_in_place(tmp_path / "new", tmp_path / "best")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "elsewhere"]
    assert (tmp_path / "best" / "new").exists()
    assert (tmp_path / "elsewhere" / "elsewhere").exists()


def test_a_run_folder_means_its_best_model(run):
    assert find_model_folder(run) == run / "best"
    assert find_model_folder(run / "best") == run / "best"


def test_weights_of_another_alphabet_are_not_taken_over(folder):
    from dataclasses import replace

    from captcha_ocr.charset import Charset

    other = ResNet18(replace(load_model(folder).config, charset=Charset("abc")))
    with pytest.raises(UsageError, match="characters"):
        load_into(other, folder)
