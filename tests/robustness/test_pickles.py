"""Nothing is unpickled: the code has no way to do it, and no file that a loader reads is run or names another file."""

import ast
import os
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import onnx
import pytest
import torch
from conftest import CAPTCHAS, ONE_WORKER, QUIET, TINY, amend, put, read_shards

import captcha_ocr
from captcha_ocr import Recognizer
from captcha_ocr.cli.app import main
from captcha_ocr.data.labels import read_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.errors import CaptchaOcrError, DamagedError
from captcha_ocr.generation.folder import generate
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.training.train import train

PACKAGE = Path(captcha_ocr.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
UNPICKLERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "copyreg",
    "yaml",
}
LOADERS = {
    "torch.load",
    "torch.jit.load",
    "torch.package",
    "torch.hub",
    "np.load",
    "numpy.load",
    "pandas.read_pickle",
}


@pytest.mark.parametrize(
    "source", SOURCES, ids=[str(path.relative_to(PACKAGE)) for path in SOURCES]
)
def test_the_code_has_no_way_to_unpickle_or_to_run_what_it_reads(source):
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & UNPICKLERS
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in UNPICKLERS
        if isinstance(node, ast.Name):
            assert node.id not in UNPICKLERS | {"eval", "exec", "compile", "__import__"}
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in LOADERS
        if isinstance(node, ast.keyword):
            assert node.arg not in ("allow_pickle", "weights_only")


class Trap:
    """An object whose unpickling makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def trapped(form: str, folder: Path, scratch: Path) -> bytes:
    """Return a pickle that makes `folder`, in one of the forms that are in use."""
    if form == "torch":
        torch.save(Trap(folder), scratch)
        return scratch.read_bytes()
    return pickle.dumps(Trap(folder))


@pytest.fixture
def whole(run, shards, images, exported, tmp_path):
    """A copy of everything that a loader reads."""
    for name, source in (("run", run), ("shards", shards), ("images", images)):
        shutil.copytree(source, tmp_path / name)
    shutil.copytree(exported, tmp_path / "run" / "best", dirs_exist_ok=True)
    return tmp_path


def resume(whole: Path) -> None:
    """Go on with the run in `whole`, from its only checkpoint."""
    amend(whole / "run" / "run.json", finished=None)
    shutil.rmtree(whole / "run" / "previous", ignore_errors=True)
    train([whole / "shards"], whole / "run", TINY.training, QUIET)


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_no_loader_runs_a_pickle(whole, form):
    trap, scratch = whole / "sprung", whole / "scratch"
    data = trapped(form, trap, scratch)
    image, best = whole / "images" / "a.png", whole / "run" / "best"
    image.write_bytes(data)
    loaders = {
        "shards/manifest.json": lambda: read_shards(whole / "shards"),
        "shards/train-00000.safetensors.gz": lambda: read_shards(whole / "shards"),
        "images/labels.csv": lambda: read_labels(whole / "images" / "labels.csv"),
        "images/generator.json": lambda: generate(plan_drawing(CAPTCHAS), whole / "images", 1),
        "run/run.json": lambda: train([whole / "shards"], whole / "run", TINY.training, QUIET),
        "run/best/config.json": lambda: Recognizer(best),
        "run/best/model.safetensors": lambda: Recognizer(best, engine="torch"),
        "run/best/model.onnx": lambda: Recognizer(best, engine="onnx"),
        "run/last/state.json": lambda: resume(whole),
        "run/last/optimizer.safetensors": lambda: resume(whole),
        "a.png": lambda: Recognizer().predict(image),
        "a.png in memory": lambda: Recognizer().predict(data),
        "images/a.png": lambda: prepare(
            whole / "images", whole / "out", PrepareConfig(preset="tiny"), ONE_WORKER
        ),
        "a.ttf": lambda: main(
            ["generate", "--fonts", str(image), "--out", str(whole / "drawn")],
            standalone_mode=False,
        ),
    }
    for name, load in loaders.items():
        path = whole / name
        before = {
            each: each.read_bytes()
            for each in (path, path.with_name("config.json"))
            if each.exists()
        }
        (put if len(before) == 2 else Path.write_bytes)(path, data)
        with suppress(CaptchaOcrError, SystemExit):
            load()
        for each, content in before.items():
            each.write_bytes(content)
    assert not trap.exists()
    with suppress(Exception):
        torch.load(scratch, weights_only=False) if form == "torch" else pickle.loads(data)
    assert trap.exists(), "this trap cannot be sprung"


@pytest.fixture
def stranger(tmp_path) -> Path:
    """A model folder with a network, as a stranger could have sent it."""
    return shutil.copytree(PRETRAINED, tmp_path / "model")


@pytest.mark.parametrize(
    "place", ["secret.bin", "./secret.bin", "../{here}/secret.bin", "{folder}/secret.bin"]
)
def test_no_network_has_another_file_read(stranger, monkeypatch, place):
    network = onnx.load(stranger / "model.onnx")
    tensor = max(network.graph.initializer, key=lambda each: len(each.raw_data))
    (stranger / "secret.bin").write_bytes(
        tensor.raw_data
    )  # a loader that reads it has a whole network
    monkeypatch.chdir(stranger)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(
        key="location", value=place.format(here=stranger.name, folder=stranger)
    )
    tensor.ClearField("raw_data")
    put(stranger / "model.onnx", network.SerializeToString())
    with pytest.raises(DamagedError, match=r"model\.onnx"):
        Recognizer(stranger, engine="onnx")


def test_a_network_in_onnxruntimes_own_format_is_refused(stranger):
    import onnxruntime  # after captcha_ocr.inference.onnx_engine, which switches its telemetry off

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(stranger / "model.ort")
    onnxruntime.InferenceSession(
        stranger / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    put(stranger / "model.onnx", (stranger / "model.ort").read_bytes())
    with pytest.raises(DamagedError, match=r"model\.onnx"):
        Recognizer(stranger, engine="onnx")
