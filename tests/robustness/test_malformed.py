"""Documents that a stranger wrote, with the right hashes, are read or refused with one of our own errors."""

import copy
import json
import os
import shutil
import zlib
from contextlib import suppress
from pathlib import Path

import onnx
import pytest
from conftest import CAPTCHAS, QUIET, TINY, amend, put, read_shards
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from captcha_ocr import Recognizer
from captcha_ocr.data.labels import find_labels, read_labels
from captcha_ocr.data.selection import select_labels
from captcha_ocr.errors import CaptchaOcrError, DamagedError
from captcha_ocr.generation.folder import generate
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256
from captcha_ocr.training.run.checkpoint import check_files
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
    """A document with one to three of its parts, wherever they are, replaced, removed or added."""
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
    """Return settings for so many examples, or fifty times as many with --soak; they are always the same."""
    how = {
        "derandomize": True,
        "database": None,
        "deadline": None,
        "suppress_health_check": list(HealthCheck),
    }
    return settings(max_examples=number * (50 if soak else 1), **how)


def check_each(soak, figure, number, document, use):
    """Call `use` with changed documents; any error but one of our own is a failure."""
    outcomes = []  # the sentence of a refusal, or None

    @examples(soak, number)
    @given(changed(document))
    def check(changed_document):
        try:
            use(changed_document)
            outcomes.append(None)
        except CaptchaOcrError as error:
            outcomes.append(str(error))

    check()
    refused = [sentence for sentence in outcomes if sentence is not None]
    figure(f"{len(outcomes):,} documents, {len(refused):,} refused")
    assert refused
    assert not [sentence for sentence in refused if "\n" in sentence]


def write(path: Path, document) -> None:
    """Write a document with its hash, or without one where it cannot be UTF-8."""
    try:
        path.write_bytes(sealed(document))
    except ValueError:
        path.write_text(json.dumps(document))


USES = {
    "shards/manifest.json": lambda folder, _: read_shards(folder),
    "torch/config.json": lambda folder, image: (
        Recognizer(folder, engine="torch").predict(image) and check_files(folder)
    ),
    "onnx/config.json": lambda folder, image: (
        Recognizer(folder, engine="onnx").predict(image) and check_files(folder)
    ),
    "images/generator.json": lambda folder, _: generate(plan_drawing(CAPTCHAS), folder, 1),
}


@pytest.mark.parametrize("file", USES)
def test_manifests_models_and_options(soak, figure, shards, run, exported, images, tmp_path, file):
    path, image = tmp_path / file, next(images.glob("*.png"))
    for name, source in {
        "shards": shards,
        "torch": run / "best",
        "onnx": exported,
        "images": images,
    }.items():
        shutil.copytree(source, tmp_path / name)

    def use(document):
        path.write_text(json.dumps(document)) if path.name == "generator.json" else write(
            path, document
        )
        USES[file](path.parent, image)

    check_each(soak, figure, 100, json.loads(path.read_bytes()), use)


@pytest.mark.parametrize("file", ["run.json", "last/config.json"])
def test_runs_to_go_on_with(soak, figure, run, shards, tmp_path, file):
    document = json.loads((run / file).read_bytes())
    unfinished = json.loads((run / "run.json").read_bytes()) | {"finished": None}
    if file == "run.json":
        document = unfinished

    def use(changed_document):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        write(folder / "run.json", unfinished)
        shutil.rmtree(folder / "previous", ignore_errors=True)
        write(folder / file, changed_document)
        train([shards], folder, TINY.training, QUIET)

    check_each(soak, figure, 20, document, use)


def payload(arrays: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A safetensors payload of zeros: name -> (type, shape, bytes)."""
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
def test_a_shard_with_an_odd_array_is_refused_or_read(shards, tmp_path, odd):
    folder = shutil.copytree(shards, tmp_path / "shards")
    document = json.loads((folder / "manifest.json").read_bytes())
    shard, (height, width) = (
        document["shards"][0],
        (document["size"][side] for side in ("height", "width")),
    )
    count = shard["count"]
    arrays = {
        "images": ("U8", [count, 1, height, width], count * height * width),
        "labels": ("I16", [count, 2], count * 4),
    }
    data = payload({**arrays, "odd": odd})
    compressed = zlib.compress(data, wbits=31)
    (folder / shard["file"]).write_bytes(compressed)
    shard |= {"payload_bytes": len(data), "sha256": sha256(compressed)}
    write(folder / "manifest.json", document)
    with suppress(CaptchaOcrError):
        read_shards(folder)


@pytest.mark.parametrize("odd", ODD_ARRAYS, ids=str)
@pytest.mark.parametrize("file", ["best/model.safetensors", "last/optimizer.safetensors"])
def test_an_odd_array_among_weights_is_refused(run, shards, tmp_path, file, odd):
    folder = shutil.copytree(run, tmp_path / "run")
    amend(folder / "run.json", finished=None)
    shutil.rmtree(folder / "previous")
    put(folder / file, payload({"0.odd": odd}))
    if file.startswith("best"):
        with pytest.raises(DamagedError, match=Path(file).name):
            Recognizer(folder, engine="torch")
    else:
        with pytest.raises(DamagedError, match=str(folder / "last")):
            train([shards], folder, TINY.training, QUIET)


@pytest.mark.parametrize(
    "kind", [onnx.TensorProto.STRING, onnx.TensorProto.BOOL, onnx.TensorProto.DOUBLE]
)
def test_a_network_that_gives_no_numbers_is_refused_by_name(exported, images, tmp_path, kind):
    folder, helper = shutil.copytree(exported, tmp_path / "model"), onnx.helper
    shape = onnx.load(folder / "model.onnx").graph.output[0].type.tensor_type.shape
    shape = [1, *(dimension.dim_value for dimension in shape.dim[1:])]
    values = [b"1" if kind == onnx.TensorProto.STRING else 0] * (shape[1] * shape[2])
    constant = helper.make_node(
        "Constant", [], ["logits"], value=helper.make_tensor("a", kind, shape, values)
    )
    inputs = [helper.make_tensor_value_info("images", onnx.TensorProto.UINT8, [1, 1, 16, 48])]
    outputs = [helper.make_tensor_value_info("logits", kind, shape)]
    graph = helper.make_graph([constant], "odd", inputs, outputs)
    odd = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    put(folder / "model.onnx", odd.SerializeToString())
    with pytest.raises(DamagedError, match=str(folder)):
        Recognizer(folder, engine="onnx").predict(next(images.glob("*.png")))


CELLS = st.text(st.characters(exclude_characters="\r"), max_size=6) | st.sampled_from(
    [
        "00000-12.png",
        "../a.png",
        "/etc/passwd",
        "a\0b.png",
        "C:\\a.png",
        "train",
        "tset",
        '"',
        "=1+1",
        "é",
        "\ufeff",
    ]
)
ROWS = st.lists(st.lists(CELLS, max_size=4), max_size=6)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_labels_files(soak, figure, images, tmp_path, separator):
    table = tmp_path / "table.csv"

    @examples(soak, 100)
    @given(ROWS, st.sampled_from(["filename", "text", ""]), st.binary(max_size=4))
    def check(rows, header, noise):
        lines = [separator.join(["filename", header, "split"]), *map(separator.join, rows)]
        table.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass") + noise)
        with suppress(CaptchaOcrError):
            labels, _ = read_labels(table, images)
            for label in labels:
                assert Path(os.path.abspath(images / label.file)).is_relative_to(images)
            select_labels(find_labels(images, table).check().labels, PrepareConfig(preset="tiny"))

    check()
