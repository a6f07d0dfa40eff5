import random
from pathlib import Path

import pytest
from conftest import naming
from PIL import Image, PngImagePlugin

from captcha_ocr.audit.images.shortcuts import find_shortcuts, holds_text
from captcha_ocr.data.labels import Label
from captcha_ocr.errors import UsageError

ALPHABET = "0123456789"


RANDOM = random.Random(0)
EVEN = ["".join(RANDOM.choices(ALPHABET, k=4)) for _ in range(300)]
NOISE = [Image.frombytes("L", (12, 8), RANDOM.randbytes(96)) for _ in range(400)]


def find(texts, images=NOISE, texts_are_given=False):
    """Find the shortcuts of images with these texts, by default of noise."""
    labels = [Label(f"{number}.png", text) for number, text in enumerate(texts)]
    for label, image in zip(labels, images, strict=False):
        image.save(label.file)
    return find_shortcuts(Path(), labels, ALPHABET, texts_are_given)


def test_a_sound_folder_has_no_findings():
    found = find(EVEN)
    assert (found.findings, found.skewed, found.in_names) == ([], (), 0)
    assert found.even_guess == found.best_guess == 1e-4


def test_repeated_images_are_found():
    found = find(EVEN[:50] * 2, NOISE[:50] * 2)
    assert (found.repeated, len(found.copies)) == (100, 50)
    assert "100 of 100 images" in found.findings[0]


def test_images_that_do_not_show_their_texts_are_refused():
    with pytest.raises(UsageError, match=naming("0.png", "1.png")):
        find(EVEN[:60], NOISE[:1] * 60, texts_are_given=True)


def test_texts_in_the_metadata_are_found_whether_they_are_compressed_or_not(tmp_path):
    labels = [Label(f"{number}.png", EVEN[number]) for number in range(60)]
    for number, label in enumerate(labels):
        comment = PngImagePlugin.PngInfo()
        comment.add_text("Comment", f"code {label.text}", zip=number % 2 == 1)
        NOISE[number].save(tmp_path / label.file, pnginfo=comment)
    found = find_shortcuts(tmp_path, labels, ALPHABET, False)
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


def test_skewed_texts_are_found():
    found = find([RANDOM.choice("1112345") + text[1:] for text in EVEN])
    assert [(place, character) for place, character, _ in found.skewed] == [(1, "1")]
    assert found.best_guess > 2 * found.even_guess


def test_a_frequent_text_is_found():
    found = find(["1234"] * 30 + EVEN[:270])
    assert "'1234'" in found.findings[0]
    assert found.best_guess == pytest.approx(0.1)


def test_texts_that_the_audit_chose_are_not_judged():
    found = find(["1111"] * 300, texts_are_given=True)
    assert (found.skewed, found.texts_are_given) == ((), True)
