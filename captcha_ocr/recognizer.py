"""The class Recognizer: what programs import to read captchas."""

import os
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args, overload

import numpy as np

from captcha_ocr.config import (
    MAX_BYTES,
    MAX_LENGTH,
    MAX_THREADS,
    EngineName,
    Lengths,
    ModelConfig,
    check_max_bytes,
)
from captcha_ocr.data.images import Source, fit, is_file, name_of, of_width, open_image
from captcha_ocr.errors import DamagedError, ImageError, check, is_int
from captcha_ocr.inference.decoding import Decoder, Reading
from captcha_ocr.inference.model_folder import (
    ONNX_FILE,
    PRETRAINED,
    find_model_folder,
    folder_named,
    read_config,
)
from captcha_ocr.inference.specialist import CERTAIN, NAMES, SPECIALIST, better_of, is_asked
from captcha_ocr.system.console import command_line
from captcha_ocr.system.parallel import map_in_threads

MAX_FEATURES_AT_ONCE = 2**27  # values of a feature map: half a gigabyte
SURE = 0.9  # below this confidence, an image is read at another width, too
OTHER_WIDTHS = (1, -1, 2)  # steps of the size; in the lab notebook: 2026-11-26
Decoded = tuple[
    np.ndarray, np.ndarray | None
]  # an image in the size of the model, and in that of the specialist
AnySource = TypeVar("AnySource", bound=Source)  # so that a list of paths is a list of sources, too


class Engine(Protocol):
    """A network that several threads may use; `readers`: how many threads make it fastest."""

    config: ModelConfig
    readers: int

    def logits(self, images: np.ndarray) -> np.ndarray:
        """Return the logits (B, L, K) float32 of images (B, C, H, W) uint8.

        They are of columns, (B, columns, K), if `config.reads_columns`.
        """


class Recognizer:
    """Read text captchas; several threads may share a recognizer.

        recognizer = Recognizer()                       # the model in the package
        recognizer = Recognizer("runs/default")         # your own: a model folder or a run folder
        recognizer.predict("image.png").text
        for reading in recognizer.predict(Path("images").glob("*.png")): ...

    model: a folder, None or "pretrained" for the model in the package, or an Engine.
    device: where torch computes: auto, cpu, cuda[:N], mps, xpu[:N].
    engine: onnx (on the CPU), torch, or auto: onnx if the folder has an exported network and `device` allows the CPU.
    Both engines read the same texts, unless the network was exported with --int8.
    charset: characters or the name of an alphabet, and length: a number of characters or the smallest and the largest;
    only such texts are read, and the model must know them. fold_case: read both cases of a letter as one, the lower
    unless the charset has only the upper. max_bytes: larger image files are refused.
    threads: how many threads compute, by default one for each processor that this process may use; with torch the
    number holds for the whole process. With onnx a single image takes one.

    UsageError if there is no such model or device, DamagedError if a file of the model is damaged.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Engine | None = None,
        device: str = "auto",
        engine: EngineName = "auto",
        charset: str | None = None,
        length: int | tuple[int, int] | None = None,
        max_bytes: int = MAX_BYTES,
        threads: int | None = None,
        fold_case: bool = False,
    ) -> None:
        is_model = (
            model is None or isinstance(model, (str, os.PathLike)) or hasattr(model, "logits")
        )
        check(is_model, f"model must be a folder or an engine, not {type(model).__name__}")
        check(isinstance(device, str), f"device must be a text such as auto or cpu, not {device!r}")
        are_characters = charset is None or isinstance(charset, str)
        check(are_characters, f"charset must be a text such as 0123 or digits, not {charset!r}")
        check_max_bytes(max_bytes)
        is_valid = threads is None or is_int(threads, 1, MAX_THREADS)
        check(
            is_valid, f"threads must be a whole number from 1 to {MAX_THREADS:,}, not {threads!r}"
        )
        place = (
            os.path.abspath(folder_named(os.fspath(model)))
            if isinstance(model, (str, os.PathLike))
            else model
        )
        check(isinstance(fold_case, bool), f"fold_case must be true or false, not {fold_case!r}")
        self.arguments = place, device, engine, charset, length, max_bytes, threads, fold_case
        self.max_bytes, self.place, self.model_name = max_bytes, "", ""
        self.specialist: Recognizer | None = None
        lengths = lengths_of(length)
        if model is None or isinstance(model, (str, os.PathLike)):
            folder = (
                PRETRAINED if model is None else find_model_folder(folder_named(os.fspath(model)))
            )
            self.place, self.model_name = f" in {folder}", NAMES.get(folder, "")
            with ThreadPoolExecutor(
                1
            ) as pool:  # to open a network takes a tenth of the time of a whole process
                beside = None
                if folder == PRETRAINED and is_asked(charset, lengths, fold_case):
                    beside = pool.submit(
                        Recognizer, SPECIALIST, device, engine, charset, length, threads=threads
                    )
                model = open_engine(folder, device, engine, threads)
            self.specialist = None if beside is None else beside.result()
        self.engine = model
        self.config = model.config
        self.decoder = Decoder(self.config, charset, lengths, fold_case)

    def limited_to(
        self, charset: str | None, lengths: Lengths | None, fold_case: bool
    ) -> "Recognizer":
        """Return a recognizer with the same engines that reads only such texts; UsageError as for the class."""
        other = self._with_the_same_engine()
        length = None if lengths is None else (lengths.shortest, lengths.longest)
        other.arguments = (*self.arguments[:3], charset, length, *self.arguments[5:7], fold_case)
        other.decoder = Decoder(self.config, charset, lengths, fold_case)
        other.specialist = None
        if self.specialist is not None and is_asked(charset, lengths, fold_case):
            other.specialist = self.specialist._with_the_same_engine()
            other.specialist.decoder = Decoder(self.specialist.config, charset, lengths)
        return other

    def _with_the_same_engine(self) -> "Recognizer":
        other = object.__new__(
            type(self)
        )  # copy.copy would open the model again, as unpickling does
        other.__dict__ |= self.__dict__
        return other

    def __reduce__(self) -> tuple[type["Recognizer"], tuple[Any, ...]]:
        return type(self), self.arguments  # another process opens the model again

    def __repr__(self) -> str:
        model = f"model{self.place}" if self.place else "own model"
        characters = self.decoder.allowed[:, : len(self.config.charset)].any(0).sum()
        texts = f"texts of {self.decoder.lengths} of {characters} characters"
        return f"<Recognizer with the {model}: {texts}, {self.config.size}; {self.engine}>"

    @overload
    def predict(self, source: Source) -> Reading: ...
    @overload
    def predict(self, source: list[AnySource] | tuple[AnySource, ...]) -> list[Reading]: ...
    @overload
    def predict(self, source: Iterator[Source]) -> Iterator[Reading]: ...

    def predict(
        self, source: Source | list[AnySource] | tuple[AnySource, ...] | Iterator[Source]
    ) -> Reading | list[Reading] | Iterator[Reading]:
        """Read one image, or a list or an iterator of images in batches; ImageError if one cannot be read.

        An image is a path, an open file, its bytes, base64 of these, also as a `data:` URI or escaped, a PIL image, or
        an array (H, W), (H, W, 3) or (H, W, 4) uint8, of any size. A list gives a list, an iterator gives an iterator.

            reading = recognizer.predict(open("image.png", "rb").read())
            print(reading.text, reading.confidence, [c.runner_up for c in reading.characters])
        """
        if isinstance(source, Iterator) and not is_file(source):
            return map(_raise_if_error, self.read_all(source))
        if isinstance(source, (list, tuple)):
            return list(map(_raise_if_error, self.read_all(source)))
        return _raise_if_error(self._read_batch([source])[0])

    def read_all(self, sources: Iterable[Source]) -> Generator[Reading | ImageError, None, None]:
        """Yield for each source, in order, its reading or the ImageError; batches of sources are read ahead."""
        if isinstance(sources, (str, bytes, os.PathLike)) or is_file(sources):
            raise TypeError(
                f"read_all takes many images, such as a list, not {type(sources).__name__}; predict takes one"
            )
        return map_in_threads(self._read_batch, sources, self.engine.readers)

    def _read_batch(self, sources: list[Source]) -> list[Reading | ImageError]:
        started = time.perf_counter()
        decoded = [self._decode(source) for source in sources]
        read = self._read([images for images in decoded if not isinstance(images, ImageError)])
        elapsed_s = (time.perf_counter() - started) / len(sources)
        readings = (
            replace(reading, elapsed_s=elapsed_s, model=reading.model or self.model_name)
            for reading in read
        )
        return [images if isinstance(images, ImageError) else next(readings) for images in decoded]

    def _decode(self, source: Source) -> Decoded | ImageError:
        """Return an image in the size of the model, and also in that of the specialist if it has it already."""
        try:
            image = open_image(source, self.max_bytes)
            beside = None
            if self.specialist is not None:
                size = self.specialist.config.size
                beside = fit(image, size) if image.size == (size.width, size.height) else None
            return fit(image, self.config.size), beside
        except ImageError as error:
            name = name_of(source)
            return ImageError(f"{name}: {error}") if name else error

    def _read(self, decoded: list[Decoded]) -> list[Reading]:
        """Read images of one or several widths; keep the surest reading where several were needed."""
        arrays = [array for array, _ in decoded]
        readings = self._read_once(arrays)
        if self.specialist is not None:
            special = {
                number: beside
                for number, (_, beside) in enumerate(decoded)
                if beside is not None and readings[number].confidence < CERTAIN
            }
            for number, other in zip(
                special, self.specialist._read_once(list(special.values())), strict=True
            ):
                named = replace(other, model=self.specialist.model_name)
                readings[number] = better_of(
                    readings[number], named, self.specialist.config.lengths.longest
                )
        size = self.config.size
        for change in [steps * size.step for steps in OTHER_WIDTHS] if size.step else []:
            unsure = [
                number for number, reading in enumerate(readings) if reading.confidence < SURE
            ]
            widths = {number: arrays[number].shape[-1] + change for number in unsure}
            others = {
                n: of_width(arrays[n], width)
                for n, width in widths.items()
                if size.nearest(width) == width
            }
            for number, other in zip(others, self._read_once(list(others.values())), strict=True):
                readings[number] = max(readings[number], other, key=attrgetter("confidence"))
        return readings

    def _read_once(self, arrays: list[np.ndarray]) -> list[Reading]:
        """Read images of one or several widths, those of one width together."""
        at_once = max(1, MAX_FEATURES_AT_ONCE // self.config.features)
        by_width: dict[int, list[int]] = {}
        for number, array in enumerate(arrays):
            by_width.setdefault(array.shape[-1], []).append(number)
        readings: dict[int, Reading] = {}
        for numbers in by_width.values():
            for first in range(0, len(numbers), at_once):
                some = numbers[first : first + at_once]
                read = self._read_batch_of_one_width(np.stack([arrays[number] for number in some]))
                readings |= zip(some, read, strict=True)
        return [readings[number] for number in range(len(arrays))]

    def _read_batch_of_one_width(self, images: np.ndarray) -> list[Reading]:
        logits = self.engine.logits(images)
        fits = (
            len(logits) == len(images)
            and logits.shape == self.decoder.shape(logits)
            and logits.dtype == np.float32
        )
        if not fits or not np.isfinite(logits).all():
            raise DamagedError(
                f"the model{self.place} gives invalid logits; its weights are damaged or not trained"
            )
        return self.decoder.read(logits)


def lengths_of(length: int | tuple[int, int] | None) -> Lengths | None:
    """Return a number of characters, or the smallest and the largest, as Lengths; UsageError for anything else."""
    if length is None:
        return None
    ends = tuple(length) if isinstance(length, (tuple, list)) else (length, length)
    fine = len(ends) == 2 and all(is_int(end, 1, MAX_LENGTH) for end in ends) and ends[0] <= ends[1]
    check(
        fine,
        f"length must be a number of characters, or the smallest and the largest, not {length!r}",
    )
    return Lengths(*ends)


def _raise_if_error(result: Reading | ImageError) -> Reading:
    if isinstance(result, ImageError):
        try:
            raise result
        finally:
            del result  # otherwise the error's traceback refers to the error, and keeps all variables of its callers
    return result


def open_engine(
    folder: Path, device: str = "auto", wanted: EngineName = "auto", threads: int | None = None
) -> Engine:
    """Return the engine for the model in `folder`; errors as for `Recognizer`."""
    if choose_engine(folder, device, wanted) == "onnx":
        from captcha_ocr.inference.onnx_engine import OnnxEngine

        return OnnxEngine(folder, threads)
    from captcha_ocr.network.device import choose_device, set_threads
    from captcha_ocr.network.torch_engine import TorchEngine
    from captcha_ocr.network.weights import load_model

    set_threads(threads)
    return TorchEngine(load_model(folder), choose_device(device))


def choose_engine(folder: Path, device: str, wanted: EngineName) -> Literal["torch", "onnx"]:
    """Choose onnx for `auto` if the network was exported, onnxruntime is installed and `device` allows the CPU."""
    check(
        wanted in get_args(EngineName),
        f"unknown engine {wanted!r}; choose one of {', '.join(get_args(EngineName))}",
    )
    is_exported = ONNX_FILE in read_config(folder)["files"]
    is_installed = find_spec("onnxruntime") is not None
    on_cpu = device in ("auto", "cpu")
    if wanted == "onnx":
        command = command_line("export", "IMAGES", "--model", str(folder))
        check(is_exported, f"{folder} holds no {ONNX_FILE}; make it with: {command}")
        check(
            on_cpu,
            f"engine onnx computes on the CPU, not on {device}; choose engine torch (--engine torch)",
        )
        check(
            is_installed,
            "the engine onnx needs onnxruntime; install it with: pip install onnxruntime",
        )
    if wanted == "onnx" or (wanted == "auto" and is_exported and on_cpu and is_installed):
        return "onnx"
    check(
        find_spec("torch") is not None,
        f"reading with {folder} needs torch; install it with: pip install torch",
    )
    return "torch"
