"""A second reader, which learnt from other images and so errs otherwise: that of RapidOCR.

The package `rapidocr` holds the network, PP-OCRv6 small (Apache-2.0), and is not imported. Of the
18,708 characters that it knows, letters, digits and the signs of sums are read: it takes noise for
others.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from captcha_ocr.charset import NAMED_ALPHABETS, Charset
from captcha_ocr.inference.model_folder import PRETRAINED, read_model_config
from captcha_ocr.inference.onnx_engine import open_session
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import ModelConfig
from captcha_ocr.system.forking import computing
from captcha_ocr.system.processors import available_workers

_CHARSET = Charset(NAMED_ALPHABETS["alnum"] + "+-*/=?")
_SIZE = InputSize(height=48, width=640, channels=3, step=16)
_NARROWEST = 320  # pixels; narrower images are padded, as those were that it learnt from
_FLOOR = 1e-30  # of a probability, so that it has a logarithm


def find_network() -> Path | None:
    """Return the file of RapidOCR's network; None if no version that has it is installed."""
    spec = find_spec("rapidocr")
    if spec is None or spec.origin is None:
        return None
    network = Path(spec.origin).parent / "models" / "PP-OCRv6_rec_small.onnx"
    return network if network.exists() else None


class RapidOcrEngine:
    """RapidOCR's network as an engine for a `Recognizer`.

    network: its file, of `find_network`. threads: how many images it reads at once at most.
    """

    def __init__(self, network: Path, threads: int | None = None) -> None:
        self.network, self.threads = network, threads
        self.readers = threads or available_workers()
        model = read_model_config(PRETRAINED)
        self.config = ModelConfig(_CHARSET, model.lengths, _SIZE, model.network)
        self.session = open_session(network.read_bytes())
        self.input = self.session.get_inputs()[0].name
        names = self.session.get_modelmeta().custom_metadata_map["character"].split("\n")
        # Class 0 is the blank, which comes last in ours.
        self.classes = [*(1 + names.index(symbol) for symbol in _CHARSET.symbols), 0]

    def __reduce__(self) -> tuple[type["RapidOcrEngine"], tuple[Path, int | None]]:
        return RapidOcrEngine, (self.network, self.threads)

    def logits(self, images: np.ndarray) -> np.ndarray:
        """Return the logits of columns, (B, columns, K) float32, of images (B, C, H, W) uint8."""
        padding = max(0, _NARROWEST - images.shape[-1])
        pixels = images[:, ::-1].astype(np.float32) / 127.5 - 1  # blue comes first
        pixels = np.pad(pixels, ((0, 0), (0, 0), (0, 0), (0, padding)))
        columns = []
        for number in range(len(pixels)):  # of all characters, one image has 3 MB
            with computing():
                (found,) = self.session.run(None, {self.input: pixels[number : number + 1]})
            columns.append(found[0][:, self.classes])
        logits: np.ndarray = np.log(np.maximum(columns, _FLOOR))
        return logits

    def __str__(self) -> str:
        return f"RapidOCR (onnxruntime, threads: {self.readers})"
