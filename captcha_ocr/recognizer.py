"""The class Recognizer: what programs import to read captchas."""

import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, overload

import numpy as np

from captcha_ocr.data.images import (
    ImageSource,
    fit_to_input,
    is_file,
    name_source,
    open_image,
    resize_width,
)
from captcha_ocr.errors import (
    Advice,
    Command,
    DamagedError,
    ImageError,
    UsageError,
    check,
)
from captcha_ocr.inference.captcha_package_model import (
    CAPTCHA_PACKAGE_MODEL,
    CERTAIN,
    choose_reading,
    is_alike,
    is_asked,
)
from captcha_ocr.inference.decoding import Decoder, Reading
from captcha_ocr.inference.model_folder import (
    ONNX_FILE,
    PRETRAINED,
    find_model_folder,
    read_config,
    resolve_model_name,
)
from captcha_ocr.inference.traits import Tally, Traits
from captcha_ocr.options.model import EngineName, Lengths, ModelConfig
from captcha_ocr.options.shared import MAX_BYTES, ReadingOptions
from captcha_ocr.system.parallel import map_in_threads

_MAX_FEATURES_AT_ONCE = 2**27  # values of a feature map: half a gigabyte
_SURE = 0.9  # below this confidence, an image is read at another width, too
# Of the confidence before, where all lengths are as frequent (docs/decisions.md, Reading and
# confidence)
_AS_SURE = 0.85
_OTHER_WIDTHS = (1, -1, 2)  # steps of the size: docs/decisions.md, The model in the package
# An image in the size of the model, and in that of the captcha_model
_FittedImage = tuple[np.ndarray, np.ndarray | None]
# So that a list of paths is a list of sources, too
_AnySource = TypeVar("_AnySource", bound=ImageSource)


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

    model: a folder, None or "pretrained" for the model in the package, "chinese" for the one of
    Chinese texts, or an Engine.
    device: where torch computes: auto, cpu, cuda[:N], mps, xpu[:N].
    engine: onnx (on the CPU), torch, or auto: onnx if the folder has an exported network and
    `device` allows the CPU. Both engines read the same texts, unless the network was exported with
    --int8.
    charset: characters or the name of an alphabet, and length: a number of characters or the
    smallest and the largest; only such texts are read, and the model must know them. fold_case:
    read both cases of a letter as one, the lower unless the charset has only the upper. max_bytes:
    larger image files are refused. ink: only characters of this colour count, such as red; a model
    that was trained so knows it.
    threads: how many threads compute, by default one for each processor that this process may use;
    with torch the number holds for the whole process. With onnx a single image takes one.

    UsageError if there is no such model or device, DamagedError if a file of the model is damaged.

    The parameters are more than six, because each is a setting of its own in the one call that
    programs make; a program names those that it needs.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Engine | None = None,
        device: str = "auto",
        engine: EngineName = "auto",
        charset: str | None = None,
        length: int | tuple[int, int] | Lengths | None = None,
        max_bytes: int = MAX_BYTES,
        threads: int | None = None,
        fold_case: bool = False,
        ink: str | None = None,
    ) -> None:
        check(
            model is None or isinstance(model, (str, os.PathLike)) or hasattr(model, "logits"),
            f"model must be a folder or an engine, not {type(model).__name__}",
        )
        lengths, folder = _parse_length(length), PRETRAINED
        options: dict[str, Any] = {
            "device": device,
            "engine": engine,
            "charset": charset,
            "max_bytes": max_bytes,
            "threads": threads,
            "fold_case": fold_case,
            "ink": ink,
        }
        ReadingOptions(**options)  # checks them
        if isinstance(model, (str, os.PathLike)):
            named = resolve_model_name(os.fspath(model))
            folder, model = find_model_folder(named), os.path.abspath(named)
        self.arguments = {"model": model, "length": lengths, **options}
        self.max_bytes, self.place = max_bytes, ""
        self.captcha_model: Recognizer | None = None
        if model is None or isinstance(model, str):
            self.place = f" in {folder}"
            # To open a network takes a tenth of the time of a whole process.
            with ThreadPoolExecutor(1) as pool:
                if folder == PRETRAINED and is_asked(charset, lengths, fold_case):
                    special = {"model": CAPTCHA_PACKAGE_MODEL, "engine": "onnx", "device": "cpu"}
                    opening = pool.submit(Recognizer, **self.arguments | special)
                    model = _open_engine(folder, device, engine, threads)
                    self.captcha_model = opening.result()
                else:
                    model = _open_engine(folder, device, engine, threads)
        self.engine: Engine = model
        self.config = self.engine.config
        self.size = replace(self.config.size, ink=ink or self.config.size.ink)
        self.decoder = Decoder(self.config, charset, lengths, fold_case)

    @classmethod
    def with_options(
        cls, model: str | os.PathLike[str] | Engine, options: ReadingOptions
    ) -> "Recognizer":
        """Return a recognizer with a model that reads as these options say.

        UsageError as for the class.
        """
        return cls(
            model,
            options.device,
            options.engine,
            options.charset,
            options.lengths,
            options.max_bytes,
            options.threads,
            options.fold_case,
            options.ink,
        )

    def limited_to(
        self,
        charset: str | None,
        lengths: Lengths | None,
        fold_case: bool,
        ink: str | None = None,
    ) -> "Recognizer":
        """Return a recognizer with the same engines that reads only such texts.

        Without an ink it keeps its own. UsageError as for the class.
        """
        limits: dict[str, Any] = {"charset": charset, "length": lengths, "fold_case": fold_case}
        limits["ink"] = ink or self.arguments["ink"]
        other = Recognizer(self.engine, max_bytes=self.max_bytes, **limits)
        other.arguments = {**self.arguments, **limits}
        other.place = self.place
        if self.captcha_model is not None and is_asked(charset, lengths, fold_case):
            other.captcha_model = self.captcha_model.limited_to(charset, lengths, False, ink)
        return other

    def fitted_to(self, sources: Iterable[ImageSource]) -> "Recognizer":
        """Return a recognizer that reads only texts such as those of these images, of one design.

        The characters and lengths that this one was told hold. From fewer than 20 images nothing
        follows.
        """
        tally, sources = Tally(self.decoder.characters), list(sources)
        for source, reading in zip(sources, self.read_all(sources), strict=True):
            if isinstance(reading, Reading):
                tally.add(reading, source)
        return self.fitted_by(tally)

    def fitted_by(self, tally: Tally) -> "Recognizer":
        """Return a recognizer that reads only texts such as were counted, or this one if too few
        were.

        A text that is read with a character too many, such as a stroke, is surely read with one
        less: so it shows whether there are texts of the longest length. One that is read with a
        character too few is often read nearly as surely with one more, one that has no more is not:
        so it shows whether there are texts of the shortest length, the more if few are so short.
        """
        traits = tally.find_traits()
        if traits is None:
            return self
        fitted, may_be_longer = self._told(traits), self.arguments["length"] is None
        may_be_shorter = may_be_longer and self.config.reads_columns
        while may_be_shorter and traits.lengths.vary:
            shortest, longest = traits.lengths.shortest, traits.lengths.longest
            traits = replace(traits, lengths=Lengths(shortest, longest - 1))
            shorter, images = self._told(traits), tally.examples[longest]
            may_be_shorter = shorter._sureness(images) > _SURE * len(images)
            fitted = shorter if may_be_shorter else fitted
        traits = replace(traits, lengths=fitted.decoder.lengths)
        while may_be_longer and traits.lengths.vary:
            shortest, longest = traits.lengths.shortest, traits.lengths.longest
            traits = replace(traits, lengths=Lengths(shortest + 1, longest))
            longer, images = self._told(traits), tally.examples[shortest]
            counts = [tally.lengths[length] for length in range(shortest, longest + 1)]
            usual = _AS_SURE * tally.lengths[shortest] * len(counts) / sum(counts)
            may_be_longer = longer._sureness(images) > usual * fitted._sureness(images)
            fitted = longer if may_be_longer else fitted
        return fitted

    def _told(self, traits: Traits) -> "Recognizer":
        """Return a recognizer that is told these traits, but for what this one was told."""
        charset, lengths, fold_case = self.limits
        if charset is None:
            charset, fold_case = traits.charset, fold_case or traits.fold_case
        return self.limited_to(charset, lengths or traits.lengths, fold_case)

    def _sureness(self, images: list[ImageSource]) -> float:
        """Return the sum of the confidences in some images."""
        readings = self.read_all(images)
        return sum(reading.confidence for reading in readings if isinstance(reading, Reading))

    @property
    def limits(self) -> tuple[str | None, Lengths | None, bool]:
        """What it was told, as `limited_to` takes it."""
        told = self.arguments
        return told["charset"], told["length"], told["fold_case"]

    def __reduce__(self) -> tuple["partial[Recognizer]", tuple[()]]:
        return partial(type(self), **self.arguments), ()  # another process opens the model again

    def __repr__(self) -> str:
        model = f"model{self.place}" if self.place else "own model"
        return (
            f"<Recognizer with the {model}: texts of {self.decoder.lengths} of "
            f"{len(self.decoder.characters)} "
            f"characters, {self.config.size}; {self.engine}>"
        )

    @overload
    def predict(self, source: ImageSource) -> Reading: ...
    @overload
    def predict(self, source: list[_AnySource] | tuple[_AnySource, ...]) -> list[Reading]: ...
    @overload
    def predict(self, source: Iterator[ImageSource]) -> Iterator[Reading]: ...

    def predict(
        self,
        source: ImageSource | list[_AnySource] | tuple[_AnySource, ...] | Iterator[ImageSource],
    ) -> Reading | list[Reading] | Iterator[Reading]:
        """Read one image, or a list or an iterator of images in batches.

        ImageError if one cannot be read.

        An image is a path, an open file, its bytes, base64 of these, also as a `data:` URI or
        escaped, a PIL image, or an array (H, W), (H, W, 3) or (H, W, 4) of any size, in the order
        RGB: `cv2.imread` gives BGR, so pass `image[..., ::-1]`. A list gives a list, an iterator
        gives an iterator.

            reading = recognizer.predict(open("image.png", "rb").read())
            print(reading.text, reading.confidence, [c.runner_up for c in reading.characters])
        """
        if isinstance(source, Iterator) and not is_file(source):
            return map(_raise_if_error, self.read_all(source))
        if isinstance(source, (list, tuple)):
            return list(map(_raise_if_error, self.read_all(source)))
        return _raise_if_error(self._read_batch([source])[0])

    def read_all(
        self, sources: Iterable[ImageSource]
    ) -> Generator[Reading | ImageError, None, None]:
        """Yield for each source, in order, its reading or the ImageError.

        Batches of sources are read ahead.
        """
        if isinstance(sources, (str, bytes, os.PathLike)) or is_file(sources):
            raise TypeError(
                "read_all takes many images, such as a list, "
                f"not {type(sources).__name__}; predict takes one"
            )
        return map_in_threads(self._read_batch, sources, self.engine.readers)

    def _read_batch(self, sources: list[ImageSource]) -> list[Reading | ImageError]:
        started = time.perf_counter()
        images = [self._decode(source) for source in sources]
        readings = self._read([image for image in images if not isinstance(image, ImageError)])
        elapsed_s = (time.perf_counter() - started) / len(sources)
        completed = (replace(reading, elapsed_s=elapsed_s) for reading in readings)

        def find_result(image: _FittedImage | ImageError) -> Reading | ImageError:
            return image if isinstance(image, ImageError) else next(completed)

        return list(map(find_result, images))

    def _decode(self, source: ImageSource) -> _FittedImage | ImageError:
        """Return an image in the model's size, and in the captcha model's if it is nearly that."""
        try:
            image = open_image(source, self.max_bytes)
            special = None
            if self.captcha_model and is_alike(image.size, self.captcha_model.size):
                special = fit_to_input(image, self.captcha_model.size)
            return fit_to_input(image, self.size), special
        except ImageError as error:
            name = name_source(source)
            return ImageError(f"{name}: {error}") if name else error

    def _read(self, images: list[_FittedImage]) -> list[Reading]:
        """Read images of one or several widths; keep the surest reading where several were made."""
        arrays = {number: array for number, (array, _) in enumerate(images)}
        readings = self._read_once(arrays)
        if self.captcha_model is not None:
            special = {
                number: image
                for number, (_, image) in enumerate(images)
                if image is not None and readings[number].confidence < CERTAIN
            }
            longest = self.captcha_model.config.lengths.longest
            for number, answer in self.captcha_model._read_once(special).items():
                readings[number] = choose_reading(readings[number], answer, longest)
        size = self.config.size
        for steps in _OTHER_WIDTHS:
            scaled: dict[int, np.ndarray] = {}
            for number, array in arrays.items():
                width = array.shape[-1] + steps * (size.step or 0)
                is_other = width != array.shape[-1] and size.nearest(width) == width
                if is_other and readings[number].confidence < _SURE:
                    scaled[number] = resize_width(array, width)
            for number, other in self._read_once(scaled).items():
                readings[number] = max(readings[number], other, key=attrgetter("confidence"))
        return [readings[number] for number in arrays]

    def _read_once(self, arrays: Mapping[int, np.ndarray]) -> dict[int, Reading]:
        """Read images of one or several widths, by their numbers, those of one width together."""
        at_once = max(1, _MAX_FEATURES_AT_ONCE // self.config.features)
        readings: dict[int, Reading] = {}
        for width in {array.shape[-1] for array in arrays.values()}:
            numbers = [number for number, array in arrays.items() if array.shape[-1] == width]
            for first in range(0, len(numbers), at_once):
                batch = numbers[first : first + at_once]
                logits = self.engine.logits(np.stack([arrays[number] for number in batch]))
                check(
                    self.decoder.fits(logits, len(batch)),
                    f"the model{self.place} gives invalid logits; "
                    "its weights are damaged or not trained",
                    DamagedError,
                )
                readings |= zip(batch, self.decoder.read(logits), strict=True)
        return readings


def _parse_length(length: int | tuple[int, int] | Lengths | None) -> Lengths | None:
    """Return a number of characters, or the smallest and the largest, as Lengths.

    UsageError for anything else.
    """
    if length is None or isinstance(length, Lengths):
        return length
    try:
        return Lengths(*(length if isinstance(length, (tuple, list)) else (length, length)))
    except (TypeError, UsageError):
        raise UsageError(
            "length must be a number of characters, or the smallest and the largest, "
            f"not {length!r}"
        ) from None


def _raise_if_error(result: Reading | ImageError) -> Reading:
    if isinstance(result, ImageError):
        try:
            raise result
        finally:
            # Otherwise the error's traceback refers to the error, and keeps all variables of its
            # callers
            del result
    return result


def _open_engine(folder: Path, device: str, wanted: EngineName, threads: int | None) -> Engine:
    if choose_engine(folder, device, wanted) == "onnx":
        # Here, since a program without torch reads, too; each takes long to import.
        from captcha_ocr.inference.onnx_engine import OnnxEngine

        return OnnxEngine(folder, threads)
    from captcha_ocr.network.device import choose_device, set_threads
    from captcha_ocr.network.torch_engine import TorchEngine
    from captcha_ocr.network.weights import load_model

    set_threads(threads)
    return TorchEngine(load_model(folder), choose_device(device))


def choose_engine(folder: Path, device: str, wanted: EngineName) -> Literal["torch", "onnx"]:
    """Choose the engine.

    For `auto` it is onnx if the network was exported and `device` allows the CPU.
    """
    is_exported = ONNX_FILE in read_config(folder)["files"]
    on_cpu = device in ("auto", "cpu")
    if wanted == "onnx" and not is_exported:
        export = Command("export", ("IMAGES",), {"model_folder": folder})
        raise UsageError(f"{folder} holds no {ONNX_FILE}", Advice("make it with", export))
    check(
        wanted != "onnx" or on_cpu,
        f"engine onnx computes on the CPU, not on {device}; choose `engine` torch",
    )
    if wanted != "torch" and is_exported and on_cpu:
        return "onnx"
    check(
        find_spec("torch") is not None,
        f"reading with {folder} needs torch; install it with: pip install torch",
    )
    return "torch"
