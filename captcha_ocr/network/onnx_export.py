"""A trained network as one ONNX file, which is compared with the network on real images before it is kept.

Images go in as `images`, (B, C, H, W) uint8, any B; `logits` (B, L, K) float32 come out: their softmax is the
probability of every class in every place of the text, the last class being nothing where lengths vary or columns are
read. What the classes are is in its metadata: `alphabet`, and the model's configuration as JSON in `captcha-ocr`.
"""

import json
import logging
import random
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from captcha_ocr.config import MAX_BYTES, ModelConfig
from captcha_ocr.data.images import to_array
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import CaptchaOcrError, ImageError, check
from captcha_ocr.inference.decoding import allowed_classes, read_logits
from captcha_ocr.inference.model_folder import CONFIG_FILE, ONNX_FILE, WEIGHTS_FILE, read_config
from captcha_ocr.inference.onnx_engine import open_session
from captcha_ocr.metrics import score_texts
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.torch_engine import TorchEngine, fuse_norms
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256, write_in_turn, writing_to
from captcha_ocr.system.signals import deferred

if TYPE_CHECKING:
    import onnx

NEEDED = ("onnx", "onnxscript", "onnxruntime")
MOST_OFF = 1e-3  # of a probability, which float32 in another order stays far below
COMPARED, CALIBRATED = 1000, 200  # images at most, of which the latter tell int8 how large its numbers get
LEAST = 2 * CALIBRATED  # images, for int8: fewer tell nothing of its loss
BATCH = 64


@dataclass(frozen=True)
class Exported:
    """An exported network, and how it read images that torch read, too.

    largest_difference: of the probabilities; texts_changed: how many of the images are read otherwise; exact, and
    exact_before by torch: how many are right.
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
        before, now = (count / self.images for count in (self.exact_before, self.exact))
        return (
            f"{self.file}: {self.bytes / 1e6:.1f} MB{', int8' if self.int8 else ''}; of {self.images:,} images "
            f"{self.texts_changed:,} are read otherwise than by torch, probabilities differ by "
            f"{self.largest_difference:.1g} at most; exact match {now:.2%}, by torch {before:.2%}"
        )


def export(
    folder: Path, images: Path, labels: Sequence[Label], int8: bool = False, max_bytes: int = MAX_BYTES
) -> Exported:
    """Write model.onnx into a model folder, its sha256 into config.json, if it reads as the model does.

    labels: of images below the folder `images`, of which up to 1,000 are compared. int8 computes in whole numbers: a
    smaller file, which reads a little otherwise. max_bytes: larger image files are passed over. UsageError where a
    package is missing or there are too few images, CaptchaOcrError where the file reads otherwise.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    check(not missing, f"export needs {', '.join(missing)}; install with: pip install {' '.join(NEEDED)}")
    weights_sha256 = read_config(folder)["files"][WEIGHTS_FILE]
    model = load_model(folder)
    with writing_to(folder):
        data, exported = exported_and_compared(model, folder, images, labels, int8, max_bytes)
        keep(folder, weights_sha256, data, exported)
    return exported


def exported_and_compared(
    model: ResNet18, folder: Path, images: Path, labels: Sequence[Label], int8: bool, max_bytes: int
) -> tuple[bytes, Exported]:
    """The ONNX file of a model, and how it reads; errors as `export`."""
    arrays, texts = read_images(images, labels, model.config, max_bytes)
    check(len(arrays) > 0, f"no labelled image below {images} can be read; name a folder of images to compare with")
    few = f"--int8 needs at least {LEAST} labelled images, and {images} has {len(arrays)}"
    check(len(arrays) >= LEAST or not int8, few)
    network = to_onnx(model)
    if int8:
        network = quantized(network, arrays[:CALIBRATED])
        arrays, texts = arrays[CALIBRATED:], texts[CALIBRATED:]
    data = network.SerializeToString()
    exported = compare(model, data, arrays, texts, int8, str(folder / ONNX_FILE))
    if not int8 and (exported.texts_changed or exported.largest_difference > MOST_OFF):
        raise CaptchaOcrError(f"the exported network does not read as the model does, and is not kept: {exported}")
    return data, exported


def read_images(
    folder: Path, labels: Sequence[Label], config: ModelConfig, max_bytes: int
) -> tuple[np.ndarray, list[str]]:
    """Some of the images that can be read, drawn by chance, (N, C, H, W) uint8, and their texts."""
    arrays, texts = [], []
    for label in random.Random(0).sample(list(labels), len(labels)):
        try:
            arrays.append(to_array(folder / label.file, config.size, max_bytes))
            texts.append(config.charset.normalize(label.text))
        except ImageError:  # which prepare names
            continue
        if len(texts) == COMPARED + CALIBRATED:
            break
    return np.array(arrays), texts


def to_onnx(model: ResNet18) -> "onnx.ModelProto":
    """The network as ONNX, its norms worked into its convolutions; the number of images is left open."""
    size = model.config.size
    example = torch.zeros((2, size.channels, size.height, size.width), dtype=torch.uint8)
    with quiet(), deferred():
        program = torch.onnx.export(
            fuse_norms(model),
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
        )
        assert program is not None
        network: onnx.ModelProto = program.model_proto
    describe(network, model.config)
    return network


@contextmanager
def quiet() -> Iterator[None]:
    """Within it the exporter and the quantizer, which have much to say of themselves, say nothing but errors."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def describe(network: "onnx.ModelProto", config: ModelConfig) -> None:
    """Write into an ONNX file what its numbers mean, and leave out what the exporter wrote of this machine."""
    del network.metadata_props[:]
    for part in (*network.graph.node, *network.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    for key, value in (
        ("alphabet", config.charset.characters),
        ("captcha-ocr", json.dumps(config.to_dict(), ensure_ascii=False)),
    ):
        network.metadata_props.add(key=key, value=value)


def quantized(network: "onnx.ModelProto", images: np.ndarray) -> "onnx.ModelProto":
    """The network in 8-bit whole numbers, their scales taken from (N, C, H, W) uint8 images."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Images(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter(np.array_split(images, -(-len(images) // BATCH)))

        def get_next(self) -> dict[str, np.ndarray] | None:
            batch = next(self.batches, None)
            return None if batch is None else {"images": batch}

    with tempfile.TemporaryDirectory() as folder, quiet():
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(network, source)
        quantize_static(
            source,
            target,
            Images(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(target)


def compare(
    model: ResNet18, network: bytes, images: np.ndarray, texts: Sequence[str], int8: bool, file: str
) -> Exported:
    """How an exported network reads images (N, C, H, W) uint8, and how torch does."""
    config, session = model.config, open_session(network)
    allowed = allowed_classes(config)
    engine = TorchEngine(model, torch.device("cpu"))
    codes: tuple[list[str], list[str]] = [], []
    largest = 0.0
    for at in range(0, len(images), BATCH):
        batch = images[at : at + BATCH]
        both = engine.logits(batch), session.run(None, {"images": batch})[0]
        for read, logits in zip(codes, both, strict=True):
            read += [reading.text for reading in read_logits(logits, config, allowed)]
        largest = max(largest, float(np.abs(np.subtract(*map(softmax, both))).max()))
    before, now = (score_texts(texts, read).exact for read in codes)
    changed = sum(one != other for one, other in zip(*codes, strict=True))
    return Exported(file, len(network), int8, len(texts), largest, changed, now, before)


def softmax(logits: np.ndarray) -> np.ndarray:
    """The probabilities (…, K) of logits (…, K)."""
    odds: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    odds /= odds.sum(-1, keepdims=True)
    return odds


def keep(folder: Path, weights_sha256: str, network: bytes, exported: Exported) -> None:
    """Put the exported network beside the weights; config.json names it only while it is whole there."""
    document = read_config(folder)
    if document["files"][WEIGHTS_FILE] != weights_sha256:
        raise CaptchaOcrError(f"the model in {folder} was replaced by another one meanwhile; export that one")
    files = {name: known for name, known in document["files"].items() if name != ONNX_FILE}
    facts: dict[str, Any] = {key: value for key, value in document["facts"].items() if key != "exported"}
    without = {**document, "facts": facts, "files": files}
    facts = {**facts, "exported": {key: value for key, value in asdict(exported).items() if key != "file"}}
    within = {**document, "facts": facts, "files": {**files, ONNX_FILE: sha256(network)}}
    config = folder / CONFIG_FILE
    write_in_turn([(config, sealed(without)), (folder / ONNX_FILE, network), (config, sealed(within))])
