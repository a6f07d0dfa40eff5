"""Reading captchas: what programs import."""

import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Protocol, overload

import numpy as np

from captcha_ocr.config import Lengths, ModelConfig
from captcha_ocr.errors import ImageError
from captcha_ocr.images import Source, to_array
from captcha_ocr.reading import Reading, allowed_classes, read_logits
from captcha_ocr.workers import map_in_threads

READERS = 2  # threads: while one decodes, for which Python has one lock, the network computes for the other


class Engine(Protocol):
    """What computes: (B, C, H, W) uint8 images to (B, L, K) float32 logits; several threads may ask at once."""

    def logits(self, images: np.ndarray) -> np.ndarray:
        """The logits of a batch."""


class Recognizer:
    """Reads text captchas with a trained model.

        recognizer = Recognizer.load("runs/default/best")
        recognizer.predict("image.png").code

    charset: characters, or the name of an alphabet, and length: the number of characters, or the least and the most,
    to which reading is narrowed; the model must know them.
    """

    def __init__(
        self,
        engine: Engine,
        config: ModelConfig,
        charset: str | None = None,
        length: int | tuple[int, int] | None = None,
    ) -> None:
        self.engine = engine
        self.config = config
        ends = (length, length) if isinstance(length, int) else length
        self.allowed = allowed_classes(config, charset, None if ends is None else Lengths(*ends))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        device: str = "auto",
        charset: str | None = None,
        length: int | tuple[int, int] | None = None,
    ) -> "Recognizer":
        """Load a model folder, or the best model of a run folder, onto a device.

        UsageError where there is no model or no such device, DamagedError where a file is not whole.
        """
        from captcha_ocr.checkpoint import load_model
        from captcha_ocr.device import choose_device
        from captcha_ocr.model import TorchEngine
        from captcha_ocr.model_folder import find_model_folder

        model = load_model(find_model_folder(Path(folder)))
        return cls(TorchEngine(model, choose_device(device)), model.config, charset, length)

    @overload
    def predict(self, source: Source) -> Reading: ...
    @overload
    def predict(self, source: list[Source] | tuple[Source, ...]) -> list[Reading]: ...

    def predict(self, source: Source | list[Source] | tuple[Source, ...]) -> Reading | list[Reading]:
        """Read one image (path, bytes, PIL image, array), or a list of them; ImageError if one is none.

        Arrays are (H, W), (H, W, 3) or (H, W, 4) uint8, of any size.
        """
        readings = []
        for result in self.read_all(source if isinstance(source, (list, tuple)) else [source]):
            if isinstance(result, ImageError):
                raise result
            readings.append(result)
        return readings if isinstance(source, (list, tuple)) else readings[0]

    def read_all(self, sources: Iterable[Source]) -> Generator[Reading | ImageError, None, None]:
        """For each source, in order and in batches, its reading or why there is none; some are read ahead."""
        return map_in_threads(self._read_batch, sources, READERS)

    def _read_batch(self, sources: list[Source]) -> list[Reading | ImageError]:
        arrays = [self._decode(source) for source in sources]
        readings = iter(self._read([a for a in arrays if not isinstance(a, ImageError)]))
        return [a if isinstance(a, ImageError) else next(readings) for a in arrays]

    def _decode(self, source: Source) -> np.ndarray | ImageError:
        try:
            return to_array(source, self.config.size)
        except ImageError as error:
            return ImageError(f"{source}: {error}") if isinstance(source, (str, os.PathLike)) else error

    def _read(self, arrays: list[np.ndarray]) -> list[Reading]:
        if not arrays:
            return []
        return read_logits(self.engine.logits(np.stack(arrays)), self.config, self.allowed)
