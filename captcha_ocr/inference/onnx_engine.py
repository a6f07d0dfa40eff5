"""Reading without torch: an exported network, which onnxruntime computes on the processor."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from captcha_ocr.errors import DamagedError
from captcha_ocr.inference.model_folder import ONNX_FILE, model_config_in, read_config
from captcha_ocr.system.files import read_checked
from captcha_ocr.system.parallel import available_workers

if TYPE_CHECKING:
    import onnxruntime

# From 1.29 on its builds for Linux and macOS keep events in ~/.cache and send them, unless told this before the import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

EXTERNAL_DATA = b"location"  # the key, in ONNX, of the file that a tensor's data are in


class OnnxEngine:
    """What a Recognizer reads with: numpy in, numpy out.

    Every image is computed by one thread, and several read at once: so no two wait for each other, and the program
    starts none before it needs them.
    """

    def __init__(self, folder: Path) -> None:
        document = read_config(folder)
        self.folder, self.config = folder, model_config_in(folder, document)
        exported = document["facts"].get("exported")
        self.precision = "int8" if isinstance(exported, dict) and exported.get("int8") else "fp32"
        network = read_checked(folder / ONNX_FILE, document["files"][ONNX_FILE])
        with errors_named(folder / ONNX_FILE):
            self.session = open_session(network)
        self.readers = available_workers()

    def __reduce__(self) -> tuple[type["OnnxEngine"], tuple[Path]]:
        return OnnxEngine, (self.folder,)  # opened again by the process that it is sent to

    def logits(self, images: np.ndarray) -> np.ndarray:
        """(B, C, H, W) uint8 array to (B, L, K) float32 array."""
        with errors_named(self.folder / ONNX_FILE):
            return np.asarray(self.session.run(["logits"], {"images": images})[0])

    def __str__(self) -> str:
        return f"cpu (onnxruntime, threads: {self.readers}), {self.precision}"


@contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Within it what onnxruntime raises is a DamagedError: `path` holds no network of ours."""
    try:
        yield
    except Exception as error:  # onnxruntime's have no class in common, and nothing else is done here
        reason = str(error).partition("\n")[0][:200]
        if "bad_alloc" in reason or "Failed to allocate memory" in reason:
            raise MemoryError from None
        raise DamagedError(f"{path} holds no network that reads images: {reason}") from None


def open_session(network: bytes) -> "onnxruntime.InferenceSession":
    """A session over the bytes of an ONNX file, with one thread and without telemetry, that reads nothing but them.

    ValueError for a network with data in other files: onnxruntime would look for them from the current folder on.
    """
    import onnxruntime

    # Eight such bytes in a row among weights, by chance, are in one of a million million files.
    if EXTERNAL_DATA in network:
        raise ValueError("its data are in another file")
    onnxruntime.disable_telemetry_events()  # those of its builds for Windows, and where it was imported before us
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what is fatal: errors are raised, too
    options.add_session_config_entry(
        "session.load_model_format", "ONNX"
    )  # not onnxruntime's own, which is less checked
    return onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
