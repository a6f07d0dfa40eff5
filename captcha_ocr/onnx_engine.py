"""Reading without torch: an exported network, which onnxruntime computes on the processor."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from captcha_ocr.files import read_checked
from captcha_ocr.model_folder import ONNX_FILE, read_config, read_model_config
from captcha_ocr.workers import available_workers

if TYPE_CHECKING:
    import onnxruntime


class OnnxEngine:
    """What a Recognizer reads with: numpy in, numpy out.

    Every image is computed by one thread, and several read at once: so no two wait for each other, and the program
    starts none before it needs them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, read_model_config(folder)
        document = read_config(folder)
        self.precision = "int8" if document["facts"].get("exported", {}).get("int8") else "fp32"
        self.session = open_session(read_checked(folder / ONNX_FILE, document["files"][ONNX_FILE]))
        self.readers = available_workers()

    def __reduce__(self) -> tuple[type["OnnxEngine"], tuple[Path]]:
        return OnnxEngine, (self.folder,)  # opened again by the process that it is sent to

    def logits(self, images: np.ndarray) -> np.ndarray:
        """(B, C, H, W) uint8 array to (B, L, K) float32 array."""
        (logits,) = self.session.run(None, {"images": images})
        return np.asarray(logits)

    def __str__(self) -> str:
        return f"cpu (onnxruntime, threads: {self.readers}), {self.precision}"


def open_session(network: bytes) -> "onnxruntime.InferenceSession":
    """A session over the bytes of an ONNX file, with one thread and without telemetry."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # which its builds for Windows have
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
