import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import draw

from captcha_ocr import Recognizer, export
from captcha_ocr.checkpoint import load_model, save_model
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.export import to_onnx
from captcha_ocr.images import to_array
from captcha_ocr.labels import labels_from_names
from captcha_ocr.model import ResNet18, TorchEngine
from captcha_ocr.onnx_engine import OnnxEngine


def labels_in(folder):
    return labels_from_names(sorted(path.name for path in folder.glob("*.png")))[0]


@pytest.fixture
def network(exported, monkeypatch):
    """The network that every export gets, for to make one takes long: where the test is of what is done with it."""
    made = onnx.load(exported / "model.onnx")
    monkeypatch.setattr(export, "to_onnx", lambda _: made)
    return made


def test_both_engines_give_the_same_logits_for_any_number_of_images(exported, images):
    onnx_engine, torch_engine = OnnxEngine(exported), TorchEngine(load_model(exported), torch.device("cpu"))
    arrays = np.stack([to_array(path, onnx_engine.config.size) for path in sorted(images.glob("*.png"))])
    for some in (arrays[:1], arrays[:7], arrays):
        assert onnx_engine.logits(some).shape == torch_engine.logits(some).shape
        assert onnx_engine.logits(some) == pytest.approx(torch_engine.logits(some), abs=1e-3)


def test_both_engines_read_the_same_codes(exported, images):
    paths = sorted(images.glob("*.png"))
    by_engine = [Recognizer(exported, engine=engine).predict(paths) for engine in ("onnx", "torch")]
    assert [reading.code for reading in by_engine[0]] == [reading.code for reading in by_engine[1]]


def test_the_file_says_what_it_reads_and_nothing_of_where_it_was_made(exported):
    network = onnx.load(exported / "model.onnx")
    said = {entry.key: entry.value for entry in network.metadata_props}
    assert said["alphabet"] == "0123456789"
    assert json.loads(said["captcha-ocr"]) == load_model(exported).config.to_dict()
    assert b".py" not in network.SerializeToString()


def test_the_weights_and_the_card_stay_as_they_were(exported, run):
    for name in ("model.safetensors", "README.md"):
        assert (exported / name).read_bytes() == (run / "best" / name).read_bytes()


def test_an_exported_model_is_read_without_torch(exported, images):
    path = next(images.glob("*.png"))
    code = (
        "import sys; from captcha_ocr import Recognizer\n"
        f"print(Recognizer({str(exported)!r}).predict({str(path)!r}).code, 'torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == f"{Recognizer(exported, engine='torch').predict(path).code} False\n"


def test_one_flipped_bit_in_it_is_refused(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "flipped")
    data = bytearray((folder / "model.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "model.onnx").write_bytes(data)
    with pytest.raises(DamagedError, match=r"model\.onnx"):
        Recognizer(folder)


def test_a_file_that_reads_otherwise_is_not_kept(run, images, network, tmp_path):
    folder = shutil.copytree(run / "best", tmp_path / "model")
    for weights in network.graph.initializer:
        if weights.data_type == onnx.TensorProto.FLOAT:
            weights.raw_data = bytes(len(weights.raw_data))
    before = sorted((path.name, path.read_bytes()) for path in folder.iterdir())
    with pytest.raises(CaptchaOcrError, match=r"model\.onnx"):
        export.export(folder, images, labels_in(images))
    assert before == sorted((path.name, path.read_bytes()) for path in folder.iterdir())


def test_a_lost_file_is_made_again_and_what_else_lies_there_stays(exported, images, tmp_path, monkeypatch):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "model.onnx").unlink()
    (folder / "notes.txt").write_text("mine")
    monkeypatch.chdir(folder)
    export.export(Path("."), images, labels_in(images))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "notes.txt": b"mine",
        **{path.name: path.read_bytes() for path in exported.iterdir() if path.name != "config.json"},
        "config.json": (folder / "config.json").read_bytes(),
    }
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert Recognizer(folder, engine="onnx").predict(next(images.glob("*.png"))).code


@pytest.mark.parametrize("replaced", [1, 2])
@pytest.mark.usefixtures("network")
def test_who_is_killed_while_it_is_kept_leaves_a_model_that_reads(exported, images, tmp_path, monkeypatch, replaced):
    folder = shutil.copytree(exported, tmp_path / "model")
    replace, done = os.replace, []

    def killed(source, target):
        if len(done) == replaced:
            raise KeyboardInterrupt
        done.append(replace(source, target))

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        export.export(folder, images, labels_in(images))
    assert isinstance(Recognizer(folder, device="cpu").engine, TorchEngine)


def test_a_model_that_was_replaced_meanwhile_does_not_get_another_ones_file(
    run, images, network, tmp_path, monkeypatch
):
    folder = shutil.copytree(run / "best", tmp_path / "model")

    def slow(model):
        save_model(folder, ResNet18(model.config), {})
        return network

    monkeypatch.setattr(export, "to_onnx", slow)
    with pytest.raises(CaptchaOcrError, match=re.escape(str(folder))):
        export.export(folder, images, labels_in(images))
    assert not (folder / "model.onnx").exists()


def test_a_recognizer_can_be_copied(exported, images):
    path = next(images.glob("*.png"))
    recognizer = Recognizer(exported, engine="onnx", charset="01234")
    assert copy.deepcopy(recognizer).predict(path) == recognizer.predict(path)


@pytest.mark.usefixtures("network")
def test_int8_says_what_it_costs(run, images, tmp_path):
    folder = shutil.copytree(run / "best", tmp_path / "model")
    many = draw(tmp_path / "many", seed=2, count=450)
    result = export.export(folder, many, labels_in(many), int8=True)
    assert (result.int8, result.images) == (True, 250)
    assert result.bytes < 0.6 * (run / "best" / "model.safetensors").stat().st_size
    recognizer = Recognizer(folder, engine="onnx")
    assert len(recognizer.predict(next(images.glob("*.png"))).code) == 2
    assert str(recognizer.engine).endswith(", int8")


def test_int8_needs_images_to_judge_it_by(run, images):
    with pytest.raises(UsageError, match=r"(?=.*--int8).*\b400\b"):
        export.export(run / "best", images, labels_in(images), int8=True)


def test_nothing_to_compare_with_is_refused(run, tmp_path):
    with pytest.raises(UsageError, match=re.escape(str(tmp_path))):
        export.export(run / "best", tmp_path, [])


def test_a_missing_package_is_named(run, images, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else True)
    with pytest.raises(UsageError, match="pip install onnx onnxscript onnxruntime"):
        export.export(run / "best", images, labels_in(images))


def test_an_engine_without_its_file_is_refused(run):
    with pytest.raises(UsageError, match="captcha-ocr export --model"):
        Recognizer(run, engine="onnx")


def test_onnx_on_another_device_is_refused(exported):
    with pytest.raises(UsageError, match="cuda"):
        Recognizer(exported, device="cuda", engine="onnx")


def test_what_is_not_installed_is_said(exported, run, monkeypatch):
    monkeypatch.setattr("captcha_ocr.recognizer.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="onnxruntime"):
        Recognizer(exported, engine="onnx")
    with pytest.raises(UsageError, match="torch"):
        Recognizer(run)


def test_a_signal_waits_until_the_network_is_exported(run, monkeypatch):
    ended = []

    def exporter(*_, **__):
        signal.raise_signal(signal.SIGINT)
        ended.append(True)
        raise CaptchaOcrError("exported")

    monkeypatch.setattr(torch.onnx, "export", exporter)
    with pytest.raises(KeyboardInterrupt):
        to_onnx(load_model(run / "best"))
    assert ended
