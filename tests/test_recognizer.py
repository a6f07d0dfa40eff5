import base64
import contextlib
import gc
import io
import re
import shutil
import weakref
from itertools import cycle, islice

import numpy as np
import pytest
from PIL import Image

from captcha_ocr import Reading, Recognizer
from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig
from captcha_ocr.errors import ImageError, UsageError

CONFIG = ModelConfig(Charset("ABC"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(pool="global"))


class BrightnessEngine:
    """Logits that depend on the image: the brighter it is, the surer of BC, and next likeliest AA."""

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
def recognizer(run) -> Recognizer:
    return Recognizer.load(run, device="cpu")


def test_every_kind_of_source_is_read_alike(recognizer, images):
    path = next(images.glob("*.png"))
    in_base64 = base64.b64encode(path.read_bytes())
    texts = [in_base64, in_base64.decode(), base64.encodebytes(path.read_bytes()).decode()]
    texts += [base64.urlsafe_b64encode(path.read_bytes()).decode(), b"data:image/png;base64," + in_base64]
    texts += [b"\n" + in_base64.rstrip(b"="), "DATA:image/png;base64," + in_base64.decode()]
    with Image.open(path) as image, path.open("rb") as file:
        sources = [str(path), path, path.read_bytes(), image.copy(), np.asarray(image.convert("RGB")), *texts]
        sources += [f"data:image/png;base64,{in_base64.decode()}", file, io.BytesIO(path.read_bytes())]
        expected = recognizer.predict(path)
        for source in sources:
            assert recognizer.predict(source) == expected


def test_a_list_gives_a_list_in_its_order(recognizer, images):
    paths = sorted(images.glob("*.png"))[:5]
    together = recognizer.predict(paths)
    assert [reading.code for reading in together] == [recognizer.predict(path).code for path in paths]


def test_an_empty_list_gives_an_empty_list(recognizer):
    assert recognizer.predict([]) == []


def test_a_copied_model_folder_reads_the_same_with_nothing_beside_it(recognizer, run, images, tmp_path):
    copied = Recognizer.load(shutil.copytree(run / "best", tmp_path / "anywhere"), device="cpu")
    paths = sorted(images.glob("*.png"))
    assert copied.predict(paths) == recognizer.predict(paths)


def test_more_images_than_a_batch_are_read_in_order():
    levels = list(range(0, 256)) * 2
    readings = Recognizer(BrightnessEngine()).predict([grey(level) for level in levels])
    assert len(readings) == 512
    assert [reading.confidence for reading in readings[:256]] == sorted(r.confidence for r in readings[:256])


def test_the_confidence_is_the_product_of_the_characters_probabilities():
    odds = np.exp([1, 2, 0])
    expected = (odds.max() / odds.sum()) ** 2
    reading = Recognizer(BrightnessEngine()).predict(grey(255))
    assert (reading.code, reading.confidence) == ("BC", pytest.approx(expected))
    assert reading.confidence == pytest.approx(np.prod([character.confidence for character in reading.characters]))


def test_a_narrower_alphabet_is_all_that_is_read_and_shares_the_probability():
    reading = Recognizer(BrightnessEngine(), charset="AB").predict(grey(255))
    odds = 1 / (1 + np.exp(-1))
    assert (reading.code, reading.confidence) == ("BA", pytest.approx(odds * odds))


@pytest.mark.parametrize("charset", ["ABX", "digits", ""])
def test_an_alphabet_that_the_model_does_not_know_is_refused(charset):
    with pytest.raises(UsageError, match="ABC"):
        Recognizer(BrightnessEngine(), charset=charset)


def test_a_length_that_the_model_does_not_read_is_refused():
    assert Recognizer(BrightnessEngine(), length=2)
    with pytest.raises(UsageError, match=r"\b5\b"):
        Recognizer(BrightnessEngine(), length=5)
    with pytest.raises(UsageError, match="1-2"):
        Recognizer(BrightnessEngine(), length=(1, 2))


def test_a_folding_models_alphabet_is_narrowed_in_any_case():
    config = ModelConfig(Charset("abc", "lower"), Lengths(2, 2), CONFIG.size, CONFIG.network)
    assert Recognizer(BrightnessEngine(config), charset="AB").predict(grey(255)).code == "ba"


def test_a_bad_image_in_a_list_is_an_error_that_names_it(recognizer, images, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"bad\.png"):
        recognizer.predict([next(images.glob("*.png")), tmp_path / "bad.png"])


def test_read_all_goes_on_after_a_bad_image(recognizer, images):
    path = next(images.glob("*.png"))
    results = list(recognizer.read_all(iter([path, b"no image", path])))
    assert [type(result) for result in results] == [Reading, ImageError, Reading]


def test_bytes_of_another_format_and_size_are_read(recognizer):
    stream = io.BytesIO()
    Image.new("RGB", (300, 100), "white").save(stream, "JPEG")
    assert len(recognizer.predict(stream.getvalue()).code) == 2


@pytest.mark.parametrize("way", ["bytes", "open file", "base64", "path"])
def test_an_image_larger_than_is_admitted_is_refused_by_every_way_in(images, way):
    path = next(images.glob("*.png"))
    data = path.read_bytes()
    source = {"bytes": data, "open file": io.BytesIO(data), "base64": base64.b64encode(data).decode(), "path": path}[
        way
    ]
    assert Recognizer(BrightnessEngine(), max_bytes=len(data)).predict(source).code
    if way == "open file":
        source.seek(0)
    with pytest.raises(ImageError, match=f"{len(data) - 1:,}"):
        Recognizer(BrightnessEngine(), max_bytes=len(data) - 1).predict(source)


def test_base64_of_too_large_an_image_is_an_error_among_others(images):
    path = next(images.glob("*.png"))
    large = base64.b64encode(path.read_bytes() + bytes(4_000_000)).decode()
    results = list(Recognizer(BrightnessEngine()).read_all([path, large, path]))
    assert [type(result) for result in results] == [Reading, ImageError, Reading]


def test_a_model_of_another_device_is_refused(run):
    with pytest.raises(UsageError, match="cuda:99"):
        Recognizer.load(run, device="cuda:99")


def test_an_iterator_is_read_in_batches_as_its_readings_are_asked_for(recognizer, images):
    paths = sorted(images.glob("*.png"))
    endless = recognizer.predict(cycle(paths))
    assert list(islice(endless, 150)) == (recognizer.predict(paths) * 3)[:150]
    with pytest.raises(ImageError, match="no-such"):
        list(recognizer.predict(iter([paths[0], "no-such.png"])))


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


def test_text_that_is_no_base64_image_is_a_path(recognizer, tmp_path):
    for name in (
        "iVBORw0KGgo" * 9 + ".png",
        "Qk12",
        str(tmp_path / "/9j/nothing-there-but-a-name-that-is-long-enough.png"),
    ):
        with pytest.raises(ImageError, match=re.escape(name)):
            recognizer.predict(name)


def test_damaged_base64_is_an_error_that_does_not_repeat_it(recognizer):
    with pytest.raises(ImageError) as error:
        recognizer.predict(base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 500).decode())
    assert len(str(error.value)) < 100


def test_a_path_as_long_as_a_file_is_shortened(recognizer):
    with pytest.raises(ImageError, match=r"\bx{200}…"):
        recognizer.predict("x" * 5000)


def test_an_open_file_is_called_by_its_name(recognizer, tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with (tmp_path / "a.png").open("rb") as file, pytest.raises(ImageError, match=r"a\.png"):
        recognizer.predict(file)


@pytest.mark.parametrize("source", [None, 5, {"a": 1}, io.StringIO("text"), io.TextIOWrapper(io.BytesIO(b"\xff"))])
def test_a_value_of_another_type_is_refused_by_its_type(recognizer, source):
    with pytest.raises(TypeError, match=type(source).__name__):
        recognizer.predict(source)


def test_an_engine_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="'tensorflow'"):
        Recognizer(engine="tensorflow")


def test_every_character_has_its_confidence_and_its_runner_up():
    reading = Recognizer(BrightnessEngine()).predict(grey(255))
    first, second = reading.characters
    odds = np.exp([1, 2, 0]) / np.exp([1, 2, 0]).sum()
    assert (first.character, first.runner_up, second.character, second.runner_up) == ("B", "A", "C", "A")
    assert (first.confidence, first.runner_up_confidence) == pytest.approx((odds[1], odds[0]))
    assert reading.elapsed_s > 0


def test_a_single_class_has_no_runner_up():
    reading = Recognizer(BrightnessEngine(), charset="A").predict(grey(255))
    assert [(c.character, c.confidence, c.runner_up) for c in reading.characters] == [("A", 1.0, "")] * 2
