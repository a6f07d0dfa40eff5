import base64
import contextlib
import gc
import io
import os
import pickle
import re
import shutil
import tempfile
import weakref
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
from conftest import naming
from PIL import Image, ImageOps

from captcha_ocr import Reading, Recognizer
from captcha_ocr.charset import NAMED_ALPHABETS, Charset
from captcha_ocr.errors import ImageError, UsageError
from captcha_ocr.inference.decoding import Character
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
CONFIG = ModelConfig(
    Charset("ABC"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(pool="global")
)


class BrightnessEngine:
    """Logits that depend on the image: a brighter one gets more confidence for BC, then AA."""

    readers = 2

    def __init__(self, config: ModelConfig = CONFIG) -> None:
        self.config = config

    def logits(self, images: np.ndarray) -> np.ndarray:
        brightness = images.mean((1, 2, 3)) / 255
        table = np.array([[1, 2, 0], [1, 0, 2]], dtype=np.float32)  # (L, K)
        return brightness[:, None, None].astype(np.float32) * table


def grey(level: int) -> np.ndarray:
    return np.full((8, 16), level, dtype=np.uint8)


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return Recognizer()


@pytest.fixture(scope="module")
def path(images) -> Path:
    return next(images.glob("*.png"))


def test_a_list_gives_a_list_and_an_iterator_gives_an_iterator_in_the_same_order(run, images):
    recognizer, paths = Recognizer(run, device="cpu"), sorted(images.glob("*.png"))
    texts = [recognizer.predict(path).text for path in paths]
    assert [reading.text for reading in recognizer.predict(paths)] == texts
    repeated = [reading.text for reading in islice(recognizer.predict(cycle(paths)), 150)]
    assert repeated == (texts * 3)[:150]
    assert recognizer.predict([]) == []


def test_a_reading_has_the_confidence_and_the_next_character_of_every_place():
    reading = Recognizer(BrightnessEngine()).predict(grey(255))
    odds = np.exp([1, 2, 0]) / np.exp([1, 2, 0]).sum()
    sure, less = pytest.approx(odds[1]), pytest.approx(odds[0])
    assert reading.characters == (Character("B", sure, "A", less), Character("C", sure, "A", less))
    assert (reading.text, reading.confidence) == ("BC", pytest.approx(odds[1] ** 2))
    assert reading.elapsed_s > 0


def test_reading_in_a_narrower_alphabet_shares_the_probability_among_its_characters():
    reading = Recognizer(BrightnessEngine(), charset="AB").predict(grey(255))
    odds = 1 / (1 + np.exp(-1))
    assert (reading.text, reading.confidence) == ("BA", pytest.approx(odds * odds))
    single = Recognizer(BrightnessEngine(), charset="A").predict(grey(255))
    assert [(c.character, c.confidence, c.runner_up) for c in single.characters] == [
        ("A", 1.0, "")
    ] * 2
    folding = ModelConfig(Charset("abc", "lower"), Lengths(2, 2), CONFIG.size, CONFIG.network)
    assert Recognizer(BrightnessEngine(folding), charset="AB").predict(grey(255)).text == "ba"


NO_LENGTHS = ("4", "4-6", 0, 65, True, 2.0, (4,), (6, 4), (1, 2, 3), (None, 4), {})
NO_LIMITS = (0, -1, 2e6, "10", None, True)
NO_MODELS = (3, b"runs/default", object())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"charset": "ABX"}, "X"),
        ({"charset": ""}, "ABC"),
        ({"charset": " "}, naming("' '", "ABC")),
        ({"charset": ["A", "B"]}, naming("charset", "['A', 'B']")),
        *(({"length": length}, naming("length", repr(length))) for length in NO_LENGTHS),
        *(({"max_bytes": limit}, naming("max_bytes", repr(limit))) for limit in NO_LIMITS),
        *(({"model": model}, type(model).__name__) for model in NO_MODELS),
        ({"device": None}, naming("device", "None")),
        ({"length": 5}, r"\b5\b"),
        ({"length": (1, 2)}, "1-2"),
        ({"model": None, "engine": "tensorflow"}, "'tensorflow'"),
        ({"threads": 0}, "not 0"),
        ({"threads": 1.5}, r"not 1\.5"),
        ({"threads": "2"}, "not '2'"),
    ],
)
def test_what_no_model_reads_is_refused_by_name(options, named):
    with pytest.raises(UsageError, match=named):
        Recognizer(**{"model": BrightnessEngine(), **options})


@pytest.mark.parametrize(
    ("engine", "threads", "readers", "told"),
    [
        ("onnx", 1, 1, "threads: 1"),
        ("onnx", 3, 3, "threads: 3"),
        ("torch", 1, 1, "1 thread"),
        ("torch", 3, 2, "3 threads"),
    ],
)
def test_a_recognizer_computes_with_the_wanted_threads(
    path, torch_threads, engine, threads, readers, told
):
    recognizer = Recognizer(engine=engine, threads=threads)
    assert recognizer.engine.readers == readers
    assert told in str(recognizer.engine)
    texts = [reading.text for reading in recognizer.predict([path] * 3)]
    assert texts == [Recognizer(engine=engine).predict(path).text] * 3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"engine": "torch", "device": "cpu"},
        {"charset": "digits", "length": 4},
        {"length": (4, 5), "max_bytes": 1_000_000},
        {"threads": 2},
    ],
)
def test_a_pickled_recognizer_reads_the_same(path, torch_threads, options):
    recognizer = Recognizer(**options)
    sent = pickle.dumps(recognizer)
    assert len(sent) < 1000
    received = pickle.loads(sent)
    assert received.predict(path) == recognizer.predict(path)
    assert received.max_bytes == recognizer.max_bytes
    assert str(received.engine) == str(recognizer.engine)


def test_a_model_at_a_relative_path_is_pickled_with_its_folder(path, monkeypatch, tmp_path):
    shutil.copytree(PRETRAINED, "model")
    recognizer = Recognizer("model")
    sent, expected = pickle.dumps(recognizer), recognizer.predict(path)
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(sent).predict(path) == expected


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ({}, None),
        ({"charset": "0ZLA"}, None),
        ({"charset": "digits", "length": 4}, Lengths(4, 4)),
        ({"fold_case": True}, None),
        ({"length": (7, 9)}, Lengths(7, 9)),
    ],
    ids=str,
)
def test_a_recognizer_limited_to_other_texts_reads_as_one_opened_for_them(path, options, lengths):
    whole, opened = Recognizer(threads=1), Recognizer(threads=1, **options)
    limited = whole.limited_to(options.get("charset"), lengths, options.get("fold_case", False))
    reading, expected = limited.predict(path), opened.predict(path)
    assert (reading.text, reading.confidence) == (expected.text, expected.confidence)
    assert (limited.engine is whole.engine, repr(limited)) == (True, repr(opened))
    assert pickle.loads(pickle.dumps(limited)).predict(path).text == expected.text


@pytest.mark.parametrize(
    ("options", "lengths", "fold_case"),
    [
        ({}, Lengths(4, 4), False),
        ({"charset": "upper-alnum", "fold_case": True}, Lengths(4, 4), True),
        ({"length": (3, 6)}, Lengths(3, 6), False),
    ],
)
def test_a_recognizer_is_fitted_to_what_images_have_in_common(options, lengths, fold_case):
    recognizer, samples = Recognizer(threads=1, **options), list(SAMPLES.glob("*.png"))
    fitted = recognizer.fitted_to([*samples * 3, b"no image"])
    assert fitted.decoder.lengths == lengths
    assert fitted.decoder.fold_case == fold_case
    assert fitted.decoder.characters == set(NAMED_ALPHABETS["upper-alnum"])
    assert recognizer.fitted_to(samples) is recognizer  # too few


@pytest.mark.parametrize(
    ("end", "lengths"), [([0.0, 1.9, 0.0, 2.0], "2"), ([0.0, 0.0, 0.0, 4.0], "1-2")]
)
def test_texts_that_may_as_well_be_longer_are_taken_for_misread(tmp_path, end, lengths):
    """Of bright images AA, AB or AC is read, of dark ones A and perhaps something more."""

    class Engine(BrightnessEngine):
        def logits(self, images: np.ndarray) -> np.ndarray:
            second = np.eye(4)[images[:, 0, 0, 0] % 3] * 9
            second[images[:, 0, 0, 0] < 128] = end
            first = np.tile([9.0, 0, 0, 0], (len(images), 1))
            return np.stack([first, second], 1).astype(np.float32)

    config = replace(CONFIG, lengths=Lengths(1, 2))
    paths = [tmp_path / f"{level}.png" for level in (*range(20), *range(200, 220))]
    for path in paths:
        Image.fromarray(grey(int(path.stem))).save(path)
    fitted = Recognizer(Engine(config)).fitted_to(paths)
    assert fitted.decoder.lengths == Lengths.parse(lengths)
    told = Recognizer(Engine(config), length=(1, 2)).fitted_to(paths)
    assert told.decoder.lengths == Lengths(1, 2)


@pytest.mark.parametrize(("last", "lengths"), [(1.0, "2"), (9.0, "2-3")])
def test_texts_that_are_surely_read_with_less_are_taken_for_misread(tmp_path, last, lengths):
    """Of bright images AB is read, of dark ones ABC, the C perhaps a stroke."""

    class Engine(BrightnessEngine):
        def logits(self, images: np.ndarray) -> np.ndarray:
            columns = np.tile(9 * np.eye(4)[[0, 3, 1, 3, 3]], (len(images), 1, 1))
            columns[images[:, 0, 0, 0] < 128, 4] = [0, 0, last, 0]
            return columns.astype(np.float32)

    size = InputSize(8, 40, 1, step=8)
    config = replace(CONFIG, lengths=Lengths(1, 3), size=size, network=NetworkConfig())
    paths = [tmp_path / f"{level}.png" for level in (*range(20), *range(200, 220))]
    for path in paths:
        Image.fromarray(np.full((8, 40), int(path.stem), dtype=np.uint8)).save(path)
    fitted = Recognizer(Engine(config)).fitted_to(paths)
    assert fitted.decoder.lengths == Lengths.parse(lengths)


@pytest.mark.parametrize("name", ["pretrained", PRETRAINED, "link"])
def test_the_model_in_the_package_is_the_same_by_any_name(path, name):
    Path("link").symlink_to(PRETRAINED)
    recognizer, expected = Recognizer(name), Recognizer().predict(path)
    assert (
        recognizer.predict(path) == pickle.loads(pickle.dumps(recognizer)).predict(path) == expected
    )


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("folder/no-such.png", r"no-such\.png"),
        ("x" * 5000, r"\bx{200}…"),  # and no more of it
        (base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 500).decode(), r"^.{,99}$"),
        # Text that is no image in base64 is a path.
        *((name, re.escape(name)) for name in ("iVBORw0KGgo" * 9 + ".png", "Qk12")),
        ("/9j/" + "nothing-there-but-a-long-name" * 2 + ".png", "/9j/nothing-there"),
    ],
)
def test_a_source_that_is_no_image_is_an_error_with_a_short_name(recognizer, source, named):
    with pytest.raises(ImageError, match=named):
        recognizer.predict(source)


def test_of_several_sources_the_one_that_is_no_image_is_named(recognizer, path):
    Path("bad.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"bad\.png"):
        recognizer.predict([path, "bad.png"])
    with open("bad.png", "rb") as file, pytest.raises(ImageError, match=r"bad\.png"):
        recognizer.predict(file)
    with pytest.raises(ImageError, match="no-such"):
        list(recognizer.predict(iter([path, "no-such.png"])))


@pytest.mark.parametrize(
    "source", [None, 5, {"a": 1}, io.StringIO("text"), io.TextIOWrapper(io.BytesIO(b"\xff"))]
)
def test_a_value_of_another_type_is_refused_by_its_type(recognizer, source):
    with pytest.raises(TypeError, match=type(source).__name__):
        recognizer.predict(source)


@pytest.mark.parametrize(
    "kind", [bytes, io.BytesIO, base64.b64encode, None], ids=["bytes", "file", "base64", "path"]
)
def test_an_image_larger_than_is_admitted_is_refused_from_every_source(path, kind):
    def source():
        return kind(path.read_bytes()) if kind else path

    size = path.stat().st_size
    assert Recognizer(BrightnessEngine(), max_bytes=size).predict(source()).text
    with pytest.raises(ImageError, match=naming(f"{size - 1:,}", "max_bytes")):
        Recognizer(BrightnessEngine(), max_bytes=size - 1).predict(source())


def test_read_all_goes_on_after_a_bad_or_too_large_image(recognizer, path):
    large = base64.b64encode(path.read_bytes() + bytes(4_000_000)).decode()
    results = list(recognizer.read_all(iter([path, b"no image", large, path])))
    assert [type(result) for result in results] == [Reading, ImageError, ImageError, Reading]


def test_an_error_does_not_keep_what_its_caller_holds(recognizer):
    def holds_an_array_and_catches_an_error():
        array = np.zeros(1)
        with contextlib.suppress(ImageError):
            recognizer.predict("no-such.png")
        return weakref.ref(array)

    gc.disable()  # counting references has to be enough
    try:
        assert holds_an_array_and_catches_an_error()() is None
    finally:
        gc.enable()


def test_a_recognizer_and_its_results_tell_what_they_are(run, recognizer, path):
    assert repr(Recognizer(BrightnessEngine())).startswith(
        "<Recognizer with the own model: texts of 2 of 3 characters"
    )
    assert all(
        word in repr(recognizer)
        for word in ("pretrained", "1-12", "75", "up to 384x64, colour", "cpu")
    )
    assert str(run) in repr(Recognizer(run, device="cpu"))
    assert repr(Recognizer("pretrained")) == repr(recognizer)
    narrowed = repr(Recognizer(charset="digits", length=5))
    assert narrowed == repr(recognizer).replace("1-12 of 75", "5 of 10")
    reading = recognizer.predict(path)
    assert repr(reading) == f"<Reading {reading.text!r}, confidence {reading.confidence:.4f}>"
    first = reading.characters[0]
    assert repr(first).startswith(
        f"<Character {first.character!r}, confidence {first.confidence:.4f}; runner-up "
    )
    assert repr(Character("7", 1.0, "", 0.0)) == "<Character '7', confidence 1.0000>"


@pytest.mark.parametrize("left", [0, 1])
def test_a_file_that_was_read_to_its_end_is_no_empty_file(recognizer, images, tmp_path, left):
    path = next(images.glob("*.png"))
    with (
        open(path, "rb") as file,
        io.BytesIO(path.read_bytes()) as buffer,
        tempfile.SpooledTemporaryFile() as spooled,
    ):
        spooled.write(path.read_bytes())
        for stream in (file, buffer, spooled):
            stream.seek(-left, io.SEEK_END)
            with pytest.raises(ImageError, match=r"not a PNG" if left else r"seek\(0\)"):
                recognizer.predict(stream)
            stream.seek(0)
            assert recognizer.predict(stream).text
    with pytest.raises(ImageError, match="empty"):
        recognizer.predict(io.BytesIO())
    reader, writer = os.pipe()  # cannot tell how much was read
    os.close(writer)
    with open(reader, "rb") as pipe, pytest.raises(ImageError, match="empty"):
        recognizer.predict(pipe)


@pytest.mark.parametrize("sources", ["image.png", b"bytes", Path("image.png"), io.BytesIO()])
def test_read_all_takes_many_images(recognizer, sources):
    with pytest.raises(TypeError, match=naming("read_all", type(sources).__name__, "predict")):
        next(recognizer.read_all(sources))


class WidthEngine:
    """Logits of columns that read an `A` or a `b` for every 16 pixels, by their brightness."""

    readers = 1
    config = ModelConfig(
        Charset("ABab"), Lengths(1, 4), InputSize(16, 64, 1, step=16), NetworkConfig()
    )

    def logits(self, images: np.ndarray) -> np.ndarray:
        count, _, _, width = images.shape
        columns = np.zeros((count, width // 8, 5), dtype=np.float32)
        columns[:, ::2, 4] = 9
        columns[:, 1::2, 0] = 9 * (images.mean((1, 2, 3)) < 128)[:, None]
        columns[:, 1::2, 3] = 9 * (images.mean((1, 2, 3)) >= 128)[:, None]
        return columns


class HesitantEngine(WidthEngine):
    """Says only at a width of 48 what it is sure of."""

    def logits(self, images: np.ndarray) -> np.ndarray:
        return super().logits(images) / (1 if images.shape[-1] == 48 else 4)


@pytest.mark.parametrize("width", [16, 32, 48, 64])
def test_an_image_that_is_not_read_surely_is_read_at_other_widths(width):
    dark, light = np.zeros((16, width), np.uint8), np.full((16, 48), 255, np.uint8)
    readings = Recognizer(HesitantEngine()).predict([dark, dark, light])
    assert [reading.text for reading in readings] == ["AAA", "AAA", "bbb"]
    assert readings[0].confidence > 0.9


def test_images_of_several_widths_are_read_in_their_order():
    sides = ((32, 0), (64, 255), (32, 200), (48, 0))
    images = [np.full((16, width), level, np.uint8) for width, level in sides]
    recognizer, texts = Recognizer(WidthEngine()), ["AA", "bbbb", "bb", "AAA"]
    assert [reading.text for reading in recognizer.predict(images)] == texts
    assert [recognizer.predict(image).text for image in images] == texts
    assert Recognizer(WidthEngine(), length=3).predict(images[1]).text == "bbb"
    assert Recognizer(WidthEngine(), charset="AB", fold_case=True).predict(images[1]).text == "BBBB"


def test_an_ink_holds_for_recognizers_that_follow_from_one(images):
    image = Image.open(next(images.glob("*.png"))).convert("L")
    red = ImageOps.colorize(image, "red", "white")
    recognizer = Recognizer(ink="red")
    for other in (
        recognizer,
        recognizer.limited_to("digits", None, False),
        pickle.loads(pickle.dumps(recognizer)),
    ):
        assert other.size.ink == "red"
        assert other.predict(red).confidence < 1
        with pytest.raises(ImageError, match="red"):
            other.predict(image)
    assert Recognizer().size.ink is None
