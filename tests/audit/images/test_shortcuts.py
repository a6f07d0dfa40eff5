import random

import pytest
from conftest import naming
from PIL import Image, PngImagePlugin

from captcha_ocr.audit.images.shortcuts import find_shortcuts, holds_text
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import UsageError

ALPHABET = "0123456789"


def folder_of(tmp_path, texts, draw=None, info=None):
    """Images of random pixels with these texts; returns their labels."""
    rng = random.Random(0)
    for number, text in enumerate(texts):
        image = Image.frombytes("L", (12, 8), rng.randbytes(96)) if draw is None else draw(number)
        image.save(tmp_path / f"{number}.png", pnginfo=info(text) if info else None)
    return [Label(f"{number}.png", text) for number, text in enumerate(texts)]


def even_texts(count):
    rng = random.Random(1)
    return ["".join(rng.choices(ALPHABET, k=4)) for _ in range(count)]


def test_a_sound_folder_has_no_findings(tmp_path):
    found = find_shortcuts(tmp_path, folder_of(tmp_path, even_texts(300)), ALPHABET, False)
    assert (found.findings, found.skewed, found.in_names) == ([], (), 0)
    assert found.even_guess == found.best_guess == 1e-4


def test_repeated_images_are_found(tmp_path):
    labels = folder_of(
        tmp_path, even_texts(50) * 2, lambda number: Image.new("L", (12, 8), number % 50)
    )
    found = find_shortcuts(tmp_path, labels, ALPHABET, False)
    assert found.repeated == 100
    assert len(found.copies) == 50
    assert "100 of 100 images" in found.findings[0]


def test_images_that_do_not_show_their_texts_are_refused(tmp_path):
    labels = folder_of(tmp_path, even_texts(60), lambda number: Image.new("L", (12, 8), 255))
    with pytest.raises(UsageError, match=naming("0.png", "1.png")):
        find_shortcuts(tmp_path, labels, ALPHABET, True)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_texts_in_the_metadata_are_found(tmp_path, is_compressed):
    def info(text):
        made = PngImagePlugin.PngInfo()
        made.add_text("Comment", f"code {text}", zip=is_compressed)
        return made

    found = find_shortcuts(
        tmp_path, folder_of(tmp_path, even_texts(60), info=info), ALPHABET, False
    )
    assert found.in_files == 60
    assert "metadata" in found.findings[0]


@pytest.mark.parametrize("name", ["a.gif", "a.jpg", "a.webp"])
def test_texts_in_the_metadata_of_other_formats_are_found(tmp_path, name):
    image, exif = Image.new("RGB", (40, 20)), Image.Exif()
    exif[0x010E] = "AB12X"  # ImageDescription
    image.save(tmp_path / name, **{"comment": b"AB12X"} if name.endswith("gif") else {"exif": exif})
    assert holds_text((tmp_path / name).read_bytes(), "AB12X")
    assert not holds_text((tmp_path / name).read_bytes(), "AB12Y")


def test_texts_in_file_names_are_told(tmp_path):
    Image.new("L", (12, 8), 1).save(tmp_path / "1234.png")
    assert find_shortcuts(tmp_path, [Label("1234.png", "1234")], ALPHABET, False).in_names == 1


def test_skewed_texts_are_found(tmp_path):
    rng = random.Random(2)
    texts = [rng.choice("1112345") + "".join(rng.choices(ALPHABET, k=3)) for _ in range(400)]
    found = find_shortcuts(tmp_path, folder_of(tmp_path, texts), ALPHABET, False)
    assert [(place, character) for place, character, _ in found.skewed] == [(1, "1")]
    assert found.best_guess > 2 * found.even_guess


def test_a_frequent_text_is_found(tmp_path):
    found = find_shortcuts(
        tmp_path, folder_of(tmp_path, ["1234"] * 30 + even_texts(270)), ALPHABET, False
    )
    assert "'1234'" in found.findings[0]
    assert found.best_guess == pytest.approx(0.1)


def test_texts_that_the_audit_chose_are_not_judged(tmp_path):
    found = find_shortcuts(tmp_path, folder_of(tmp_path, ["1111"] * 300), ALPHABET, True)
    assert (found.skewed, found.texts_are_given) == ((), True)
