"""What a stranger wrote, with the right hashes, is read or refused with one of our own errors.

Nothing is unpickled or run, and no file has another one read.
"""

import ast
import copy
import json
import os
import pickle
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

import onnx
import pytest
import torch
from conftest import CAPTCHAS, ONE_WORKER, QUIET, TINY, amend, invoke, put, read_shards
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import captcha_ocr
from captcha_ocr import Recognizer
from captcha_ocr.data.labels import find_labels, read_labels
from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.selection import select_labels
from captcha_ocr.errors import CaptchaOcrError, DamagedError
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256
from captcha_ocr.training.run.folder import check_files
from captcha_ocr.training.train import train

NUMBERS = [-1, 0, 1.5, 2**31, 2**63, 10**30, float("nan"), float("inf"), True, None]
PATHS = ["", ".", "..", "../x", "/etc/passwd", "model.safetensors"]
TEXTS = [*PATHS, "digits", "\0", "\t", "\ud800", "\u202e", "a" * 40_000]
HARMFUL = st.sampled_from([*NUMBERS, *TEXTS, [], {}, [[]] * 1000]).map(copy.deepcopy)
VALUES = HARMFUL | st.recursive(  # half of them harmful
    st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def changed(draw, document):
    """Replace, remove or add one to three parts of a document, wherever they are."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        part = document
        while keys := list(part if isinstance(part, dict) else range(len(part))):
            key = draw(st.sampled_from(keys))
            if isinstance(part[key], (dict, list)) and part[key] and draw(st.integers(0, 3)):
                part = part[key]
                continue
            way = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
            if way == "replace":
                part[key] = draw(VALUES)
            elif way == "remove":
                del part[key]
            elif isinstance(part, dict):
                part[draw(st.text(max_size=5))] = draw(VALUES)
            else:
                part.append(draw(VALUES))
            break
    return document


def examples(soak, number):
    """Return settings for so many examples, or many more with --soak; they are always the same."""
    return settings(
        max_examples=number * (100 if soak else 1),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def check_each(soak, figure, number, document, use):
    """Call `use` with changed documents; any error but one of our own is a failure."""
    refusals = []  # a sentence, or None

    @examples(soak, number)
    @given(changed(document))
    def check(changed_document):
        try:
            use(changed_document)
            refusals.append(None)
        except CaptchaOcrError as error:
            refusals.append(str(error))
            assert "\n" not in refusals[-1]

    check()
    refused = len(refusals) - refusals.count(None)
    figure(f"{len(refusals):,} documents, {refused:,} refused")
    assert refused


def write(path: Path, document) -> None:
    """Write a document with its hash, or without one where it cannot be UTF-8."""
    try:
        path.write_bytes(sealed(document))
    except ValueError:
        path.write_text(json.dumps(document))


def resume(folder: Path) -> None:
    """Go on with the run in `folder` from its only checkpoint."""
    shutil.rmtree(folder / "run" / "previous", ignore_errors=True)
    train([folder / "shards"], folder / "run", TINY.training, QUIET)


def read(folder: Path, engine: str) -> None:
    """Read an image with a model, and check its files."""
    Recognizer(folder / "model", engine=engine).predict(next((folder / "images").glob("*.png")))
    check_files(folder / "model")


USES = {  # the number of examples, and what reads the file
    "shards/manifest.json": (50, lambda whole: read_shards(whole / "shards")),
    "model/config.json by torch": (50, lambda whole: read(whole, "torch")),
    "model/config.json by onnx": (50, lambda whole: read(whole, "onnx")),
    "images/generator.json": (
        50,
        lambda whole: generate(plan_drawing(CAPTCHAS), whole / "images", 1),
    ),
    "run/run.json": (10, resume),
    "run/last/config.json": (10, resume),
}


@pytest.mark.parametrize("file", USES)
def test_any_document_is_read_or_refused(soak, figure, whole, run, file):
    (number, use), path = USES[file], whole / file.partition(" ")[0]

    def use_document(document):
        if use is resume:
            shutil.copytree(run, whole / "run", dirs_exist_ok=True)
            amend(whole / "run" / "run.json", finished=None)
        write(path, document)
        use(whole)

    check_each(soak, figure, number, json.loads(path.read_bytes()), use_document)


def payload(arrays: dict[str, tuple[str, list[int], int]]) -> bytes:
    """Return a safetensors payload of zeros: name -> (type, shape, bytes)."""
    header, end = {}, 0
    for name, (kind, shape, size) in arrays.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


ODD_ARRAYS = [
    ("F4", [2], 1),
    ("F8_E8M0", [1], 1),
    ("U8", [0, 2**62], 0),
    ("U8", [1] * 70, 1),
    ("U8", [2**63], 0),
]


@pytest.mark.parametrize("odd", ODD_ARRAYS, ids=str)
def test_an_odd_array_is_refused_and_in_a_shard_refused_or_read(whole, odd):
    manifest = json.loads((whole / "shards" / "manifest.json").read_bytes())
    shard, size, count = manifest["shards"][0], manifest["size"], manifest["shards"][0]["count"]
    sides = [size["height"], size["width"]]
    images = ("U8", [count, 1, *sides], count * sides[0] * sides[1])
    data = payload({"images": images, "labels": ("I16", [count, 2], count * 4), "odd": odd})
    compressed = zlib.compress(data, wbits=31)
    (whole / "shards" / shard["file"]).write_bytes(compressed)
    shard |= {"payload_bytes": len(data), "sha256": sha256(compressed)}
    write(whole / "shards" / "manifest.json", manifest)
    with suppress(CaptchaOcrError):
        read_shards(whole / "shards")
    put(whole / "model" / "model.safetensors", payload({"0.odd": odd}))
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        Recognizer(whole / "model", engine="torch")


@pytest.mark.parametrize("odd", ODD_ARRAYS, ids=str)
def test_an_odd_array_in_a_checkpoint_is_refused(whole, odd):
    put(whole / "run" / "last" / "optimizer.safetensors", payload({"0.odd": odd}))
    with pytest.raises(DamagedError, match=str(whole / "run" / "last")):
        resume(whole)


@pytest.mark.parametrize(
    "kind", [onnx.TensorProto.STRING, onnx.TensorProto.BOOL, onnx.TensorProto.DOUBLE]
)
def test_a_network_that_gives_no_numbers_is_refused_by_name(whole, kind):
    path, helper = whole / "model" / "model.onnx", onnx.helper
    shape = onnx.load(path).graph.output[0].type.tensor_type.shape
    shape = [1, *(dimension.dim_value for dimension in shape.dim[1:])]
    values = [b"1" if kind == onnx.TensorProto.STRING else 0] * (shape[1] * shape[2])
    tensor = helper.make_tensor("a", kind, shape, values)
    constant = helper.make_node("Constant", [], ["logits"], value=tensor)
    inputs = [helper.make_tensor_value_info("images", onnx.TensorProto.UINT8, [1, 1, 16, 48])]
    outputs = [helper.make_tensor_value_info("logits", kind, shape)]
    graph = helper.make_graph([constant], "odd", inputs, outputs)
    odd = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    put(path, odd.SerializeToString())
    with pytest.raises(DamagedError, match=str(path.parent)):
        read(whole, "onnx")


@pytest.mark.parametrize(
    "place", ["secret.bin", "./secret.bin", "../{here}/secret.bin", "{folder}/secret.bin"]
)
def test_no_network_has_another_file_read(whole, monkeypatch, place):
    folder = whole / "model"
    network = onnx.load(folder / "model.onnx")
    tensor = max(network.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    # A loader that reads it has a whole network.
    (folder / "secret.bin").write_bytes(tensor.raw_data)
    monkeypatch.chdir(folder)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place.format(here=folder.name, folder=folder))
    tensor.ClearField("raw_data")
    put(folder / "model.onnx", network.SerializeToString())
    with pytest.raises(DamagedError, match=r"model\.onnx"):
        Recognizer(folder, engine="onnx")


def test_a_network_in_onnxruntimes_own_format_is_refused(whole):
    import onnxruntime  # after captcha_ocr.inference.onnx_engine, which switches its telemetry off

    path = whole / "model" / "model.onnx"
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(whole / "model.ort")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    put(path, (whole / "model.ort").read_bytes())
    with pytest.raises(DamagedError, match=r"model\.onnx"):
        Recognizer(whole / "model", engine="onnx")


NAMES = ["00000-12.png", "../a.png", "/etc/passwd", "a\0b.png", "C:\\a.png", "train", '"', "=1+1"]
CELLS = st.text(st.characters(exclude_characters="\r"), max_size=6) | st.sampled_from(NAMES)
ROWS = st.lists(st.lists(CELLS, max_size=4), max_size=6)


def test_no_table_of_labels_names_a_file_elsewhere(soak, images, tmp_path):
    table, headers = tmp_path / "table.csv", ["filename", "text", ""]

    @examples(soak, 200)
    @given(ROWS, st.sampled_from(headers), st.sampled_from(",;\t"), st.binary(max_size=4))
    def check(rows, header, separator, noise):
        lines = [separator.join(["filename", header, "split"]), *map(separator.join, rows)]
        table.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + noise)
        with suppress(CaptchaOcrError):
            for label in read_labels(table, images)[0]:
                assert Path(os.path.abspath(images / label.file)).is_relative_to(images)
            select_labels(find_labels(images, table).check().labels, PrepareConfig(preset="tiny"))

    check()


UNPICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNPICKLERS |= {"copyreg", "yaml"}
LOADERS = {"torch.load", "torch.jit.load", "torch.package", "torch.hub", "np.load", "numpy.load"}
LOADERS |= {"pandas.read_pickle"}


def list_names(node: ast.AST) -> set[str]:
    """Return what a part of a program imports, calls or sets by name."""
    match node:
        case ast.Import():
            return {alias.name.split(".")[0] for alias in node.names}
        case ast.ImportFrom():
            return {str(node.module).split(".")[0]}
        case ast.Name():
            return {node.id, f"{node.id}()"}
        case ast.Attribute():
            return {ast.unparse(node)}
        case ast.keyword():
            return {f"{node.arg}="}
    return set()


def test_the_code_has_no_way_to_unpickle_or_to_run_what_it_reads():
    running = {"eval()", "exec()", "compile()", "__import__()", "allow_pickle=", "weights_only="}
    for source in Path(captcha_ocr.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            assert not list_names(node) & (UNPICKLERS | LOADERS | running), source


class Trap:
    """An object whose unpickling makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_no_loader_runs_a_pickle(whole, form):
    scratch, trap = whole / "scratch", Trap(whole / "sprung")
    scratch.write_bytes(pickle.dumps(trap))
    if form == "torch":
        torch.save(trap, scratch)
    data = scratch.read_bytes()
    config = PrepareConfig(preset="tiny")
    loaders = {name.partition(" ")[0]: use for name, (_, use) in USES.items()} | {
        "shards/train-00000.safetensors.gz": USES["shards/manifest.json"][1],
        "images/labels.csv": lambda _: read_labels(whole / "images" / "labels.csv"),
        "model/model.safetensors": USES["model/config.json by torch"][1],
        "model/model.onnx": USES["model/config.json by onnx"][1],
        "run/last/state.json": resume,
        "run/last/optimizer.safetensors": resume,
        "a.png": lambda _: Recognizer().predict(scratch),
        "a.png in memory": lambda _: Recognizer().predict(data),
        "images/a.png": lambda _: prepare(whole / "images", whole / "out", config, ONE_WORKER),
        "a.ttf": lambda _: invoke("generate", "--fonts", whole / "a.ttf", "--out", whole / "drawn"),
    }
    for name, load in loaders.items():
        path = whole / name
        config_file = path.with_name("config.json")
        before = {file: file.read_bytes() for file in (path, config_file) if file.exists()}
        (put if len(before) == 2 else Path.write_bytes)(path, data)
        with suppress(CaptchaOcrError):
            load(whole)
        path.unlink()
        for file, content in before.items():
            file.write_bytes(content)
    assert not trap.folder.exists()
    with suppress(Exception):
        torch.load(scratch, weights_only=False) if form == "torch" else pickle.loads(data)
    assert trap.folder.exists(), "this trap cannot be sprung"
