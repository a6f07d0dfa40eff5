"""Compute logits without torch: onnxruntime runs an exported network on the CPU."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from captcha_ocr.errors import DamagedError, check
from captcha_ocr.inference.model_folder import ONNX_FILE, read_config, read_model_config
from captcha_ocr.system.files import read_checked
from captcha_ocr.system.forking import computing
from captcha_ocr.system.processors import available_workers

# Since 1.29 the builds for Linux and macOS store and send telemetry, unless this is set before the
# import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

_EXTERNAL_DATA = b"location"  # the ONNX key for a tensor whose data is in another file


class OnnxEngine:
    """An engine for a Recognizer that needs no torch.

    threads: how many images it reads at once at most.

    onnxruntime computes in the calling thread alone; a Recognizer calls it from several threads at
    once.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        document = read_config(folder)
        self.folder, self.config = folder, read_model_config(folder, document)
        exported = document["facts"].get("exported")
        self.precision = "int8" if isinstance(exported, dict) and exported.get("int8") else "fp32"
        network = read_checked(folder / ONNX_FILE, document["files"][ONNX_FILE])
        with _name_errors(folder / ONNX_FILE):
            self.session = open_session(network)
        self.threads, self.readers = threads, threads or available_workers()

    def __reduce__(self) -> tuple[type["OnnxEngine"], tuple[Path, int | None]]:
        return OnnxEngine, (self.folder, self.threads)  # another process opens the folder again

    def logits(self, images: np.ndarray) -> np.ndarray:
        """Return the logits, (B, L, K) float32, of images, (B, C, H, W) uint8."""
        with _name_errors(self.folder / ONNX_FILE), computing():
            return np.asarray(self.session.run(["logits"], {"images": images})[0])

    def __str__(self) -> str:
        return f"cpu (onnxruntime, threads: {self.readers}), {self.precision}"


@contextmanager
def _name_errors(path: Path) -> Iterator[None]:
    """Turn any error of onnxruntime into a DamagedError that names `path`."""
    try:
        yield
    except Exception as error:  # the errors of onnxruntime have no common class
        reason = str(error).partition("\n")[0][:200]
        if "bad_alloc" in reason or "Failed to allocate memory" in reason:
            raise MemoryError from None
        check(
            not re.search("Unsupported model IR version|till opset", str(error)),
            f"{path} needs onnxruntime 1.18 or newer: pip install --upgrade onnxruntime",
        )
        raise DamagedError(f"{path} does not hold a network that reads images: {reason}") from None


def open_session(network: bytes) -> Any:
    """Open an InferenceSession for the bytes of an ONNX file, with one thread and no telemetry.

    ValueError for a network with data in other files, which onnxruntime would look for in the
    current folder.
    """
    import onnxruntime

    if _EXTERNAL_DATA in network:  # weights contain these eight bytes in one of 10**12 files
        raise ValueError("its data is in another file")
    # For its Windows builds, and if it was imported before this module
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # only fatal errors: the others are also raised
    # Not onnxruntime's own format, which it checks less.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
