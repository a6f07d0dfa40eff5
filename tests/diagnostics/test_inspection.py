import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ONE_WORKER, TINY
from PIL import Image

from captcha_ocr import Recognizer
from captcha_ocr.charset import Charset
from captcha_ocr.diagnostics.inspection import (
    advice_on_images,
    advice_on_number,
    advice_on_spreadsheet,
    inspect,
    read_wrong,
)
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.torch_engine import TorchEngine
from captcha_ocr.options.model import Lengths, ModelConfig
from captcha_ocr.options.preparation import PrepareConfig

ANY = PrepareConfig()


def draw(folder, name, grey, size=(32, 16), mode="L"):
    Image.new(mode, size, grey).save(folder / name)


@pytest.fixture
def folder(tmp_path):
    """Draw six images: two pairs of equal ones, one of another size and mode, one damaged.

    The first pair has one text, and the second has two.
    """
    for name, grey in (("aB_1", 1), ("aB_2", 1), ("ab", 2), ("bb", 2)):
        draw(tmp_path, f"{name}.png", grey)
    draw(tmp_path, "abb.png", (9, 9, 9), (48, 20), "RGB")
    (tmp_path / "bad.png").write_bytes(b"no image")
    return tmp_path


@pytest.fixture
def found(folder):
    return inspect(folder, ANY, ONE_WORKER)


def test_everything_is_counted(found):
    assert (len(found.labels), list(found.problems)) == (5, ["bad.png"])
    assert (found.sizes, found.modes) == ({(32, 16): 4, (48, 20): 1}, {"L": 4, "RGB": 1})
    assert (found.lengths, found.characters) == ({2: 4, 3: 1}, {"B": 2, "a": 4, "b": 3})
    (copies,), (conflict,) = found.copies, found.conflicts
    assert [label.file for label in copies] == ["aB_1.png", "aB_2.png"]
    assert [label.file for label in conflict] == ["ab.png", "bb.png"]


def test_of_a_large_alphabet_only_the_rarest_characters_are_printed(folder):
    texts = ["".join(map(chr, range(code, code + 4))) for code in range(0x4E00, 0x4EA0, 4)]
    for number, text in enumerate([*texts, *texts[1:]]):
        draw(folder, f"{text}_{number}.png", number)
    for file in folder.glob("[ab]*.png"):
        file.unlink()
    found = inspect(folder, ANY, ONE_WORKER)
    assert len(found.characters) == 160
    (row,) = (line for line in str(found).splitlines() if line.startswith("alphabet"))
    assert "160" in row
    assert row.split()[-20:-16] == [f"{character}:1" for character in texts[0]]
    assert all(len(sentence) < 150 for sentence in advice_on_images(found))


def test_the_text_for_people_has_all_of_it(found):
    words = ("32x16", "48x20", "RGB", "B:2", "aB_1.png", "ab.png", "bb.png", "bad.png", "128x64")
    assert [word for word in words if word not in str(found)] == []
    assert "colour" in found.input_size  # as the model in the package reads them


def test_the_size_of_a_preset_is_said(folder):
    assert "139x69, grey" in inspect(folder, replace(ANY, preset="default"), ONE_WORKER).input_size


def test_a_folder_without_a_readable_image_is_refused(tmp_path):
    (tmp_path / "ab.png").write_bytes(b"no image")
    with pytest.raises(CaptchaOcrError, match=r"ab\.png"):
        inspect(tmp_path, ANY, ONE_WORKER)


@pytest.mark.parametrize(
    ("labels", "preset", "named"),
    [
        (4, "finetune", "50"),
        (49, "finetune", "98"),
        (50, "finetune", None),
        (60, "finetune", None),
        (60, "few", "300"),
        (299, "default", "300"),
        (300, "default", None),
    ],
)
def test_as_many_labels_are_advised_as_the_preset_needs(labels, preset, named):
    advice = advice_on_number(labels, preset)
    assert [named in sentence for sentence in advice] == [True] * (named is not None)


def test_a_folder_without_labels_is_inspected_too(tmp_path):
    for number in range(20):
        draw(tmp_path, f"img_{number:04}.png", number, (30 + number % 2, 16))
    (tmp_path / "img_0020.png").write_bytes(b"no image")
    found = inspect(tmp_path, ANY, ONE_WORKER)
    summary = found.summary()
    counts = {"images": 20, "labels": 0, "lengths": {}, "characters": {}}
    assert summary | counts | {"sizes": {"30x16": 10, "31x16": 10}} == summary
    assert list(summary["problems"]) == ["img_0020.png"]
    assert all(word in str(found) for word in ("20", "none", "30x16"))
    assert not any(word in str(found) for word in ("alphabet", "lengths"))


DIGITS = [f"{number:04}" for number in range(0, 10_000, 37)]
WORDS = [f"{'ABCDEFGHJK'[number % 10]}{number:03}" for number in range(200)]


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ([str(int(text)) for text in DIGITS], "0"),
        (["TRUE", *WORDS], "TRUE"),
        (["WAHR", "FALSCH", *WORDS], "FALSCH"),
        (["1E+05", *WORDS], "1E+05"),
        (["1-Mar", *WORDS], "1-Mar"),
        (["Mar-24", *WORDS], "Mar-24"),
        (["2024-03-01", *WORDS], "2024-03-01"),
        (["01.03.2024", *WORDS], "01.03.2024"),
        (["12.0", *WORDS], "12.0"),
        (["#NAME?", *WORDS], "#NAME?"),
        (["1,907", *WORDS], "1,907"),
        (["01. Mär", *WORDS], "01. Mär"),
        (["ИСТИНА", *WORDS], "ИСТИНА"),
        (["nan", *WORDS], "nan"),
        (["N/A", *WORDS], "N/A"),
        (["12:34:00", *WORDS], "12:34:00"),
        (["1.2.24", *WORDS], "1.2.24"),
        (["########", *WORDS], "########"),
        ([*DIGITS[:5], *(str(int(text)) for text in DIGITS[5:])], "5"),
        ([f"{int(text)}.0" for text in DIGITS], ".0"),
    ],
)
def test_what_a_spreadsheet_has_rewritten_is_noticed(texts, shown):
    (sentence,) = advice_on_spreadsheet(texts)
    assert shown in sentence


@pytest.mark.parametrize(
    "texts",
    [
        ["3E89", *WORDS],
        ["29 aut", *WORDS],
        [*DIGITS, "1"],
        DIGITS,
        WORDS,
        DIGITS[:40],
        ["12", "345"],
        [text[1:] for text in WORDS],
        ["TRUE"] * 9,
    ],
)
def test_texts_without_such_signs_get_no_advice(texts):
    assert advice_on_spreadsheet(texts) == []


def test_wrong_labels_come_by_falling_confidence_of_the_model(images, tmp_path):
    config = ModelConfig(Charset("0123456789"), Lengths(2, 2), TINY.size, TINY.network)
    torch.manual_seed(0)
    recognizer = Recognizer(TorchEngine(ResNet18(config), torch.device("cpu")))
    paths = [Path(shutil.copy(path, tmp_path)) for path in sorted(images.glob("*.png"))[:6]]
    readings = {path.name: recognizer.predict(path) for path in paths}
    by_confidence = sorted(readings, key=lambda name: -readings[name].confidence)
    wrong = (by_confidence[0], by_confidence[-1])
    texts = {name: reading.text for name, reading in readings.items()}
    rows = [f"{name},{text}" for name, text in (texts | dict.fromkeys(wrong, "0123")).items()]
    (tmp_path / "labels.csv").write_text("\n".join(["filename,text", *rows]))
    found = read_wrong(recognizer, inspect(tmp_path, ANY, ONE_WORKER))
    expected = [(name, "0123", texts[name]) for name in wrong]
    assert [(label.file, label.text, reading.text) for label, reading in found] == expected
