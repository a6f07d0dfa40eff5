import json
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import contents, naming

from captcha_ocr import Recognizer
from captcha_ocr.charset import Charset
from captcha_ocr.data.labels import labels_from_names
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.inference.model_folder import ONNX_FILE
from captcha_ocr.inference.onnx_engine import open_session
from captcha_ocr.input_size import InputSize
from captcha_ocr.network import onnx_export as export
from captcha_ocr.network.onnx_export import to_onnx
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.network.weights import load_model, save_model
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig


@pytest.fixture(scope="module")
def labels(images):
    return labels_from_names(sorted(path.name for path in images.glob("*.png"))).labels


@pytest.fixture
def network(exported, monkeypatch):
    """The network that every export of a test gives, because the exporter takes seconds."""
    made = onnx.load(exported / "model.onnx")
    monkeypatch.setattr(export, "to_onnx", lambda *_: made)
    return made


def test_the_file_holds_the_configuration_and_nothing_of_this_machine(exported, run):
    network = onnx.load(exported / "model.onnx")
    facts = {entry.key: entry.value for entry in network.metadata_props}
    assert facts["alphabet"] == "0123456789"
    assert json.loads(facts["captcha-ocr"]) == load_model(exported).config.to_dict()
    assert b".py" not in network.SerializeToString()
    for name in ("model.safetensors", "README.md"):
        assert (exported / name).read_bytes() == (run / "best" / name).read_bytes()


def test_what_the_package_has_is_not_replaced(
    exported, images, labels, network, tmp_path, monkeypatch
):
    folder = shutil.copytree(exported, tmp_path / "package")
    monkeypatch.setattr(export, "IN_PACKAGE", {"pretrained": folder})
    before = contents(folder)
    with pytest.raises(UsageError, match=naming(folder, "`model_folder`")):
        export.export_onnx(folder, images, labels)
    assert contents(folder) == before
    save_model(folder, load_model(folder), {})  # as benchmarks/pretrained.py does
    export.export_onnx(folder, images, labels)
    assert (folder / ONNX_FILE).exists()


def test_the_network_holds_nothing_that_opencv_4_cannot_run(exported):
    assert unknown_to_opencv(onnx.load(exported / ONNX_FILE)) == []


@pytest.mark.parametrize(
    ("pool", "lengths", "channels", "characters"),
    [
        ("global", (1, 3), 3, 2),
        ("columns", (1, 1), 1, 2),
        ("columns", (2, 2), 1, 300),
    ],
)
def test_no_kind_of_network_holds_anything_that_opencv_4_cannot_run(
    pool, lengths, channels, characters
):
    shape = NetworkConfig(width=4, stem="3x3" if pool == "global" else "strided", pool=pool)
    charset = Charset("".join(map(chr, range(0x4E00, 0x4E00 + characters))))
    config = ModelConfig(charset, Lengths(*lengths), InputSize(8, 16, channels), shape)
    assert unknown_to_opencv(to_onnx(ResNet18(config).eval())) == []


def unknown_to_opencv(network: onnx.ModelProto) -> list[str]:
    """What the dnn module of OpenCV 4.10 to 4.14 was seen to fail at."""
    constants = {tensor.name for tensor in network.graph.initializer}
    boolean = [
        tensor.name
        for tensor in network.graph.initializer
        if tensor.data_type == onnx.TensorProto.BOOL
    ]
    nodes = [
        node.op_type
        for node in network.graph.node
        if node.op_type in ("Where", "Equal", "Expand")
        or (node.op_type == "MatMul" and node.input[0] in constants)
    ]
    return boolean + nodes


def test_a_network_that_reads_other_codes_is_not_kept(run, images, labels, network, tmp_path):
    folder = shutil.copytree(run / "best", tmp_path / "model")
    for weights in network.graph.initializer:
        if weights.data_type == onnx.TensorProto.FLOAT:
            weights.raw_data = bytes(len(weights.raw_data))
    before = contents(folder)
    with pytest.raises(CaptchaOcrError, match=r"model\.onnx"):
        export.export_onnx(folder, images, labels)
    assert contents(folder) == before


@pytest.mark.usefixtures("network")
def test_a_lost_file_is_made_again_and_other_files_stay(
    exported, images, labels, tmp_path, monkeypatch
):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "model.onnx").unlink()
    (folder / "notes.txt").write_text("mine")
    monkeypatch.chdir(folder)
    export.export_onnx(Path("."), images, labels)
    made = contents(folder)
    assert made == {**contents(exported), "notes.txt": b"mine", "config.json": made["config.json"]}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert Recognizer(folder, engine="onnx").predict(next(images.glob("*.png"))).text


@pytest.mark.parametrize("replaced", [1, 2])
@pytest.mark.usefixtures("network")
def test_a_kill_between_two_files_leaves_a_model_that_reads(
    exported, images, labels, tmp_path, monkeypatch, replaced
):
    folder = shutil.copytree(exported, tmp_path / "model")
    replace, done = os.replace, []

    def killed(source, target):
        if len(done) == replaced:
            raise KeyboardInterrupt
        done.append(replace(source, target))

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        export.export_onnx(folder, images, labels)
    assert isinstance(Recognizer(folder, device="cpu").engine, TorchEngine)


def test_a_model_that_is_replaced_meanwhile_does_not_get_the_network_of_the_old_one(
    run, images, labels, network, tmp_path, monkeypatch
):
    folder = shutil.copytree(run / "best", tmp_path / "model")

    def slow(model, _):
        save_model(folder, ResNet18(model.config), {})
        return network

    monkeypatch.setattr(export, "to_onnx", slow)
    with pytest.raises(CaptchaOcrError, match=re.escape(str(folder))):
        export.export_onnx(folder, images, labels)
    assert not (folder / "model.onnx").exists()


@pytest.mark.usefixtures("network")
def test_int8_makes_a_smaller_file_and_is_judged_by_other_images(
    run, images, labels, tmp_path, monkeypatch
):
    monkeypatch.setattr(export, "_CALIBRATION_IMAGES", 20)
    monkeypatch.setattr(export, "_MIN_INT8_IMAGES", 60)
    folder = shutil.copytree(run / "best", tmp_path / "model")
    result = export.export_onnx(folder, images, labels, int8=True)
    assert (result.int8, result.images) == (True, 40)
    assert result.bytes < 0.6 * (run / "best" / "model.safetensors").stat().st_size
    recognizer = Recognizer(folder, engine="onnx")
    assert len(recognizer.predict(next(images.glob("*.png"))).text) == 2
    assert str(recognizer.engine).endswith(", int8")


def test_large_weights_are_kept_in_half_precision():
    weights = np.linspace(-1, 1, 128 * 64, dtype=np.float32).reshape(128, 64)
    of_input, of_output = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])
        for name, size in (("x", 128), ("y", 64))
    )
    node = onnx.helper.make_node("MatMul", ["x", "weights"], ["y"])
    tensors = [onnx.numpy_helper.from_array(weights, "weights")]
    graph = onnx.helper.make_graph([node], "graph", [of_input], [of_output], tensors)
    network = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    network.ir_version = 9
    whole = len(network.SerializeToString())
    export._halve_weights(network.graph)
    x = np.ones((1, 128), np.float32)
    (y,) = export.open_session(network.SerializeToString()).run(None, {"x": x})
    assert y == pytest.approx(x @ weights, abs=1e-3 * 128)
    assert len(network.SerializeToString()) < 0.6 * whole


def test_missing_images_and_packages_are_refused_by_name(
    run, images, labels, tmp_path, monkeypatch
):
    with pytest.raises(UsageError, match=re.escape(str(tmp_path))):
        export.export_onnx(run / "best", tmp_path, [])
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else True)
    with pytest.raises(UsageError, match="pip install onnx onnxscript onnxruntime"):
        export.export_onnx(run / "best", images, labels)
    monkeypatch.setattr("captcha_ocr.recognizer.find_spec", lambda _: None)
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


@pytest.mark.parametrize(("opset", "ir_version"), [(18, 8), (19, 9), (20, 9)])
def test_a_network_that_keeps_the_aspect_is_exported_for_any_width_and_opset(opset, ir_version):
    size = InputSize(height=16, width=96, channels=1, step=16)
    model = ResNet18(
        ModelConfig(Charset("01"), Lengths(1, 3), size, NetworkConfig(width=4, pool="narrow"))
    ).eval()
    network, engine = to_onnx(model, opset), TorchEngine(model, torch.device("cpu"))
    assert (network.opset_import[0].version, network.ir_version) == (opset, ir_version)
    assert unknown_to_opencv(network) == []
    session = open_session(network.SerializeToString())
    for count, width in ((1, 96), (3, 32)):
        images = torch.randint(0, 256, (count, 1, 16, width), dtype=torch.uint8).numpy()
        (logits,) = session.run(None, {"images": images})
        assert logits.shape == (count, width // 4, 3)
        assert logits == pytest.approx(engine.logits(images), abs=1e-4)
