import copy
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from conftest import naming, put

from captcha_ocr import Recognizer
from captcha_ocr.data.images import to_array
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.model_folder import ONNX_FILE
from captcha_ocr.inference.onnx_engine import OnnxEngine
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.network.weights import load_model


def test_both_engines_read_any_number_of_images_to_the_same_logits_and_codes(exported, images):
    paths = sorted(images.glob("*.png"))
    onnx_engine = OnnxEngine(exported)
    torch_engine = TorchEngine(load_model(exported), torch.device("cpu"))
    arrays = np.stack([to_array(path, onnx_engine.config.size) for path in paths])
    for some in (arrays[:1], arrays[:7], arrays):
        assert onnx_engine.logits(some) == pytest.approx(torch_engine.logits(some), abs=1e-3)
    texts = [reading.text for reading in Recognizer(torch_engine).predict(paths)]
    assert [reading.text for reading in Recognizer(onnx_engine).predict(paths)] == texts


@pytest.mark.parametrize(("ir_version", "opset"), [(99, 20), (10, 99)])
def test_a_network_that_is_too_new_names_the_onnxruntime_it_needs(
    exported, tmp_path, ir_version, opset
):
    file = shutil.copytree(exported, tmp_path / "model") / ONNX_FILE
    network = onnx.load(file)
    network.ir_version, network.opset_import[0].version = ir_version, opset
    put(file, network.SerializeToString())
    with pytest.raises(UsageError, match=naming(str(file), "onnxruntime 1.18")):
        OnnxEngine(file.parent)


def test_an_exported_model_is_read_without_torch_and_can_be_copied(exported, images):
    path = next(images.glob("*.png"))
    code = (
        "import sys; from captcha_ocr import Recognizer\n"
        f"print(Recognizer({str(exported)!r}).predict({str(path)!r}).text, 'torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"{Recognizer(exported, engine='torch').predict(path).text} False\n"
    recognizer = Recognizer(exported, engine="onnx", charset="01234")
    assert copy.deepcopy(recognizer).predict(path) == recognizer.predict(path)
