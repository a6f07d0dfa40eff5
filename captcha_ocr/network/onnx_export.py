"""Export a trained network as one ONNX file, which is kept only if it gives the network's
predictions on real images.

Input `images`: (B, C, H, W) uint8, any B. Output `logits`: (B, L, K) float32; their softmax is the
probability of every class at every position of the text. With CTC or varying lengths the last class
is the end of the text. A network that keeps the aspect of images takes any W; its logits are of
columns, (B, columns, K), with the blank of CTC as the last class. The metadata describe the
classes: `alphabet`, and the model's configuration as JSON in `captcha-ocr`.
"""

import json
import logging
import math
import random
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from captcha_ocr.data.images import to_array
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import CaptchaOcrError, ImageError, check
from captcha_ocr.inference.decoding import Decoder, softmax
from captcha_ocr.inference.model_folder import (
    CONFIG_FILE,
    IN_PACKAGE,
    ONNX_FILE,
    WEIGHTS_FILE,
    find_model_folder,
    read_config,
)
from captcha_ocr.inference.onnx_engine import open_session
from captcha_ocr.input_size import MAX_INPUT_SIDE, MIN_INPUT_SIDE
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.torch_engine import TorchEngine, fuse_norms
from captcha_ocr.network.weights import load_model
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.options.shared import MAX_BYTES, NEWEST_OPSET
from captcha_ocr.scores import score_texts
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256, write_in_turn, writing_to
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    import onnx

_REQUIRED_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_MAX_DIFFERENCE = 1e-3  # of a probability; float32 in another order stays far below
_MAX_COMPARED = 1000  # images
_CALIBRATION_IMAGES = 200  # from which int8 takes its scales
_MIN_INT8_IMAGES = 2 * _CALIBRATION_IMAGES  # fewer cannot show how many exact matches int8 loses
_LARGE = 4096  # weights: those of fewer stay whole
_BATCH = 64
_Sample = tuple[np.ndarray, str]  # an image (C, H, W) uint8, and its text


@dataclass(frozen=True)
class Exported:
    """An exported network, and its predictions on images against torch's.

    The field names are keys in config.json.

    largest_difference: of the probabilities. texts_changed: texts that differ. exact, exact_before:
    the exact matches of the exported network and of torch.
    """

    file: str
    bytes: int
    int8: bool
    images: int
    largest_difference: float
    texts_changed: int
    exact: int
    exact_before: int

    def __str__(self) -> str:
        before, after = self.exact_before / self.images, self.exact / self.images
        precision = ", int8" if self.int8 else ""
        return (
            f"{self.file}: {self.bytes / 1e6:.1f} MB{precision}; against torch the texts of "
            f"{self.texts_changed:,} of {self.images:,} images differ, the probabilities by at "
            f"most {self.largest_difference:.1g}; exact match {after:.2%}, with torch {before:.2%}"
        )


def export_onnx(
    folder: Path,
    images: Path,
    labels: Sequence[Label],
    int8: bool = False,
    max_bytes: int = MAX_BYTES,
    opset: int = NEWEST_OPSET,
) -> Exported:
    """Write model.onnx into a model folder, and its sha256 into config.json.

    It is kept if its predictions are those of the model.
    labels: of images below the folder `images`, of which up to 1,000 are compared. int8: compute in
    8-bit integers; a smaller file with slightly other predictions. max_bytes: larger image files
    are skipped. opset: of ONNX, older for an older onnxruntime. UsageError if a package is missing,
    there are too few images, or it would replace the network in the package; CaptchaOcrError if
    predictions differ.
    """
    missing = ", ".join(name for name in _REQUIRED_PACKAGES if find_spec(name) is None)
    check(
        not missing,
        f"export needs {missing}; install with: pip install {' '.join(_REQUIRED_PACKAGES)}",
    )
    files = read_config(folder)["files"]
    check(
        ONNX_FILE not in files or find_model_folder(folder) not in IN_PACKAGE.values(),
        f"{folder} is in the package, and exported already; "
        "copy it, and export the copy (`model_folder`)",
    )
    model = load_model(folder)
    with writing_to(folder):
        samples = _read_samples(images, labels, model.config, max_bytes)
        check(
            len(samples) > 0,
            f"no labelled image below {images} can be read; "
            "name a folder of images to compare with",
        )
        check(
            len(samples) >= _MIN_INT8_IMAGES or not int8,
            f"`int8` needs at least {_MIN_INT8_IMAGES} labelled images; "
            f"{images} has {len(samples)}",
        )
        network = to_onnx(model, opset)
        if int8:
            network = _quantize(network, samples[:_CALIBRATION_IMAGES])
            samples = samples[_CALIBRATION_IMAGES:]
        data = network.SerializeToString()
        comparison = _compare(model, data, samples)
        exported = Exported(str(folder / ONNX_FILE), len(data), int8, len(samples), *comparison)
        is_same = exported.texts_changed == 0 and exported.largest_difference <= _MAX_DIFFERENCE
        check(
            int8 or is_same,
            f"the predictions of the exported network differ, so it is not kept: {exported}",
            CaptchaOcrError,
        )
        document = read_config(folder)
        check(
            document["files"][WEIGHTS_FILE] == files[WEIGHTS_FILE],
            f"the model in {folder} was replaced during the export; export it again",
            CaptchaOcrError,
        )
        _add_to_model(folder, document, data, exported)
    return exported


def _read_samples(
    folder: Path, labels: Sequence[Label], config: ModelConfig, max_bytes: int
) -> list[_Sample]:
    """Read some of the images at random, with their texts; skip those that cannot be read."""
    samples: list[_Sample] = []
    for label in random.Random(0).sample(list(labels), len(labels)):
        if len(samples) == _MAX_COMPARED + _CALIBRATION_IMAGES:
            break
        with suppress(ImageError):
            image = to_array(folder / label.file, config.size, max_bytes)
            samples.append((image, config.charset.normalize(label.text)))
    return samples


def _split_batches(samples: Sequence[_Sample]) -> Iterator[tuple[np.ndarray, list[str]]]:
    """Yield the images in batches of one width, (B, C, H, W), with their texts."""
    for width in sorted({image.shape[-1] for image, _ in samples}):
        alike = [sample for sample in samples if sample[0].shape[-1] == width]
        for first in range(0, len(alike), _BATCH):
            images, texts = zip(*alike[first : first + _BATCH], strict=True)
            yield np.stack(images), list(texts)


def to_onnx(model: ResNet18, opset: int = NEWEST_OPSET) -> "onnx.ModelProto":
    """Return the network as ONNX for any batch size, its norms fused into its convolutions.

    If it keeps the aspect of images, it is one for any width.
    """
    from onnx import helper  # which a program without the extra `export` lacks

    config, size = model.config, model.config.size
    sides = {0: torch.export.Dim("batch")}
    if config.reads_columns:
        sides[3] = torch.export.Dim("width", min=MIN_INPUT_SIDE, max=MAX_INPUT_SIDE)
    example = torch.zeros((2, size.channels, size.height, size.width), dtype=torch.uint8)
    with _silence_libraries(), deferred():
        program = torch.onnx.export(
            fuse_norms(model),
            (example, config.reads_columns),
            dynamo=True,
            opset_version=opset,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes={"images": sides, "as_columns": None},
        )
        assert program is not None
        network: onnx.ModelProto = program.model_proto
    network.ir_version = helper.find_min_ir_version_for(network.opset_import)
    del network.metadata_props[:]
    # The exporter notes paths of this machine
    for part in (*network.graph.node, *network.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    network.metadata_props.add(key="alphabet", value=config.charset.characters)
    network.metadata_props.add(
        key="captcha-ocr", value=json.dumps(config.to_dict(), ensure_ascii=False)
    )
    return network


@contextmanager
def _silence_libraries() -> Iterator[None]:
    """Suppress the warnings of the exporter and the quantizer, which no user can act on."""
    with warnings.catch_warnings(action="ignore"), ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.WARNING)
        yield


def _quantize(network: "onnx.ModelProto", samples: Sequence[_Sample]) -> "onnx.ModelProto":
    """Return the network in 8-bit integers, their scales taken from some images."""
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    inputs = ({"images": batch} for batch, _ in _split_batches(samples))
    reader = SimpleNamespace(get_next=lambda: next(inputs, None))  # a CalibrationDataReader
    with tempfile.TemporaryDirectory() as folder, _silence_libraries():
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(network, source)
        quantize_static(
            source,
            target,
            reader,
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        quantized = onnx.load(target)
    _halve_weights(quantized.graph)
    return quantized


def _halve_weights(graph: "onnx.GraphProto") -> None:
    """Keep large weights in half precision; onnxruntime makes them whole when it opens the file."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = list(graph.node)
    for tensor in list(graph.initializer):
        if tensor.data_type == TensorProto.FLOAT and math.prod(tensor.dims) >= _LARGE:
            half, name = tensor.name + "_half", tensor.name
            weights = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(weights, half))
            nodes.insert(0, helper.make_node("Cast", [half], [name], to=TensorProto.FLOAT))
    del graph.node[:]
    graph.node.extend(nodes)


def _compare(
    model: ResNet18, network: bytes, samples: Sequence[_Sample]
) -> tuple[float, int, int, int]:
    """Compare the predictions of an exported network with torch's.

    Return the fields of `Exported` from `largest_difference` on.
    """
    decoder, session = Decoder(model.config), open_session(network)
    engine = TorchEngine(model, torch.device("cpu"))
    changed = exact_before = exact = 0
    largest = 0.0
    for batch, truths in _split_batches(samples):
        both = engine.logits(batch), session.run(None, {"images": batch})[0]
        before = [reading.text for reading in decoder.read(both[0])]
        after = [reading.text for reading in decoder.read(both[1])]
        changed += len(batch) - score_texts(before, after).exact
        exact_before += score_texts(truths, before).exact
        exact += score_texts(truths, after).exact
        first, second = map(softmax, both)
        largest = max(largest, float(np.abs(first - second).max()))
    return largest, changed, exact, exact_before


def _add_to_model(folder: Path, document: dict[str, Any], network: bytes, export: Exported) -> None:
    """Write model.onnx into a model folder; config.json lists it only while it is whole.

    document: the content of config.json.
    """
    files, facts = dict(document["files"]), dict(document["facts"])
    files.pop(ONNX_FILE, None)
    facts.pop("exported", None)
    without = sealed({**document, "facts": facts, "files": files})
    facts["exported"] = {key: value for key, value in asdict(export).items() if key != "file"}
    files[ONNX_FILE] = sha256(network)
    complete = sealed({**document, "facts": facts, "files": files})
    config = folder / CONFIG_FILE
    write_in_turn([(config, without), (folder / ONNX_FILE, network), (config, complete)])
