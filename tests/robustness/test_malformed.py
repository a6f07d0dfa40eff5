"""What a stranger wrote, with the right hashes, is read or refused with one of our own errors.

Nothing is unpickled or run, and no file has another one read.
"""

import ast
import copy
import json
import os
import pickle
import re
import shutil
import zlib
from contextlib import suppress
from functools import partial
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

HARMFUL = st.sampled_from(
    [
        *(-1, 0, 1.5, 2**31, 2**63, 10**30, float("nan"), float("inf"), True, None),
        *("", ".", "..", "../x", "/etc/passwd", "model.safetensors", "digits"),
        *("\0", "\t", "\ud800", "\u202e", "a" * 40_000, [], {}, [[]] * 1000),
    ]
).map(copy.deepcopy)
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
        while isinstance(part, (dict, list)) and part:
            whole, keys = part, list(part) if isinstance(part, dict) else range(len(part))
            key = draw(st.sampled_from(keys))
            part = whole[key]
            if not draw(st.integers(0, 3)):
                break
        way = draw(st.sampled_from(["remove", "add", "replace", "replace", "replace"]))
        if way == "remove":
            del whole[key]
        elif way == "add" and isinstance(whole, list):
            whole.append(draw(VALUES))
        else:
            whole[draw(st.text(max_size=5)) if way == "add" else key] = draw(VALUES)
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

    refusals = []  # a sentence, or None

    @examples(soak, number)
    @given(changed(json.loads(path.read_bytes())))
    def check(document):
        if use is resume:
            shutil.copytree(run, whole / "run", dirs_exist_ok=True)
            amend(whole / "run" / "run.json", finished=None)
        path.write_text(json.dumps(document))
        with suppress(ValueError):  # a document that cannot be UTF-8 has no hash
            path.write_bytes(sealed(document))
        try:
            use(whole)
            refusals.append(None)
        except CaptchaOcrError as error:
            refusals.append(str(error))
            assert "\n" not in refusals[-1]

    check()
    refused = len(refusals) - refusals.count(None)
    figure(f"{len(refusals):,} documents, {refused:,} refused")
    assert refused


def payload(arrays: dict[str, tuple[str, list[int], int]]) -> bytes:
    """Return a safetensors payload of zeros: name -> (type, shape, bytes)."""
    header, end = {}, 0
    for name, (kind, shape, size) in arrays.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


@pytest.mark.parametrize(
    "odd",
    [
        ("F4", [2], 1),
        ("F8_E8M0", [1], 1),
        ("U8", [0, 2**62], 0),
        ("U8", [1] * 70, 1),
        ("U8", [2**63], 0),
    ],
    ids=str,
)
def test_an_odd_array_is_refused_and_in_a_shard_refused_or_read(whole, odd):
    put(whole / "run" / "last" / "optimizer.safetensors", payload({"0.odd": odd}))
    with pytest.raises(DamagedError, match=str(whole / "run" / "last")):
        resume(whole)
    put(whole / "model" / "model.safetensors", payload({"0.odd": odd}))
    with pytest.raises(DamagedError, match=r"model\.safetensors"):
        Recognizer(whole / "model", engine="torch")
    manifest = json.loads((whole / "shards" / "manifest.json").read_bytes())
    shard = manifest["shards"][0]
    count = shard["count"]
    images = ("U8", [count, 1, 16, 48], count * 16 * 48)
    data = payload({"images": images, "labels": ("I16", [count, 2], count * 4), "odd": odd})
    compressed = zlib.compress(data, wbits=31)
    (whole / "shards" / shard["file"]).write_bytes(compressed)
    shard |= {"payload_bytes": len(data), "sha256": sha256(compressed)}
    amend(whole / "shards" / "manifest.json", shards=manifest["shards"])
    with suppress(CaptchaOcrError):
        read_shards(whole / "shards")


@pytest.mark.parametrize(
    "kind", [onnx.TensorProto.STRING, onnx.TensorProto.BOOL, onnx.TensorProto.DOUBLE]
)
def test_a_network_that_gives_no_numbers_is_refused_by_name(whole, kind):
    path = whole / "model" / "model.onnx"
    network = onnx.load(path)
    (logits,), nodes = network.graph.output, network.graph.node
    (last,) = [node for node in nodes if logits.name in node.output]
    last.output[0] = "numbers"
    nodes.append(onnx.helper.make_node("Cast", ["numbers"], [logits.name], to=kind))
    logits.type.tensor_type.elem_type = kind
    put(path, network.SerializeToString())
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


UNSAFE = re.compile(
    r"(from )?(c?[pP]ickle|_pickle|dill|cloudpickle|joblib|shelve|marshal|copyreg|yaml)\b.*"
    r"|torch\.(load|jit\.load|package|hub)|(np|numpy)\.load|pandas\.read_pickle"
    r"|eval|exec|compile|__import__|(allow_pickle|weights_only)=.*"
)


def test_the_code_has_no_way_to_unpickle_or_to_run_what_it_reads():
    named = (ast.alias, ast.ImportFrom, ast.Name, ast.Attribute, ast.keyword)
    for source in Path(captcha_ocr.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            assert not (isinstance(node, named) and UNSAFE.fullmatch(ast.unparse(node))), source


class Trap:
    """An object whose unpickling makes the folder `sprung`."""

    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize(
    ("save", "load"),
    [(pickle.dump, pickle.load), (torch.save, partial(torch.load, weights_only=False))],
    ids=["pickle", "torch"],
)
def test_no_loader_runs_a_pickle(whole, save, load):
    scratch, config = whole / "scratch", PrepareConfig(preset="tiny")
    with scratch.open("wb") as file:
        save(Trap(), file)
    data = scratch.read_bytes()
    loaders = {name.partition(" ")[0]: use for name, (_, use) in USES.items()} | {
        "shards/train-00000.safetensors.gz": USES["shards/manifest.json"][1],
        "images/labels.csv": lambda folder: read_labels(folder / "images" / "labels.csv"),
        "model/model.safetensors": USES["model/config.json by torch"][1],
        "model/model.onnx": USES["model/config.json by onnx"][1],
        "run/last/state.json": resume,
        "run/last/optimizer.safetensors": resume,
        "a.png": lambda _: Recognizer().predict(scratch),
        "a.png in memory": lambda _: Recognizer().predict(data),
        "images/a.png": lambda folder: prepare(
            folder / "images", folder / "out", config, ONE_WORKER
        ),
        "a.ttf": lambda folder: invoke("generate", "--fonts", folder / "a.ttf", "--out", "drawn"),
    }
    for name, use in loaders.items():
        folder = shutil.copytree(whole, Path(name.replace("/", " of ")))
        path, config_file = folder / name, (folder / name).with_name("config.json")
        is_hashed = config_file.exists() and path != config_file
        (put if is_hashed else Path.write_bytes)(path, data)
        with suppress(CaptchaOcrError):
            use(folder)
    assert not Path("sprung").exists()
    with suppress(Exception), scratch.open("rb") as file:
        load(file)
    assert Path("sprung").exists(), "this trap cannot be sprung"
