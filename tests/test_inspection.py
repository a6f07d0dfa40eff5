import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from captcha_ocr import Recognizer
from captcha_ocr.config import Lengths, PrepareConfig
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.inspection import advice_on_images, inspect, read_wrong, sample

ANY = PrepareConfig()


def draw(folder, name, grey, size=(32, 16), mode="L"):
    folder.mkdir(exist_ok=True)
    Image.new(mode, size, grey).save(folder / name)


@pytest.fixture
def folder(tmp_path):
    """Six images: two byte-identical ones with one text, two with two, one of another size and mode, one damaged."""
    folder = tmp_path / "images"
    for name, grey in (("aB_1", 1), ("aB_2", 1), ("ab", 2), ("bb", 2)):
        draw(folder, f"{name}.png", grey)
    draw(folder, "abb.png", (9, 9, 9), (48, 20), "RGB")
    (folder / "bad.png").write_bytes(b"no image")
    return folder


def test_everything_is_counted(folder):
    found = inspect(folder, ANY, workers=1)
    assert len(found.labels) == 5
    assert found.sizes == {(32, 16): 4, (48, 20): 1}
    assert found.modes == {"L": 4, "RGB": 1}
    assert found.lengths == {2: 4, 3: 1}
    assert found.characters == {"B": 2, "a": 4, "b": 3}
    assert list(found.problems) == ["bad.png"]


def test_copies_and_conflicts_are_told_apart(folder):
    found = inspect(folder, ANY, workers=1)
    assert [[label.file for label in group] for group in found.copies] == [["aB_1.png", "aB_2.png"]]
    assert [[label.file for label in group] for group in found.conflicts] == [["ab.png", "bb.png"]]


def test_what_people_read_has_all_of_it(folder):
    lines = str(inspect(folder, ANY, workers=1)).splitlines()
    for named in (
        ("5", "1"),
        ("32x16 4", "48x20 1"),
        ("L 4", "RGB 1"),
        ("2 4", "3 1"),
        ("B:2", "a:4", "b:3"),
        ("aB_1.png", "aB_2.png"),
        ("ab.png", "bb.png"),
        ("bad.png",),
    ):
        assert any(all(name in line for name in named) for line in lines)


def test_the_size_is_the_one_that_prepare_makes(folder):
    words = inspect(folder, ANY, workers=1).input_size
    assert all(word in words for word in ("32x16", "139x69", "grey"))
    assert "colour" not in words


def test_colour_is_kept_where_grey_would_not_tell(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(4):
        pixels = np.full((16, 32, 3), (200, 0, 0), np.uint8)
        pixels[4:12, 8 + number : 24] = (0, 102, 0)  # as light as that red
        Image.fromarray(pixels).save(folder / f"{number}-a{number}.png")
    assert "colour" in inspect(folder, ANY, workers=1).input_size


def test_labels_that_prepare_would_leave_out_are_named(folder):
    found = inspect(folder, replace(ANY, lengths=Lengths(2, 2)), workers=1)
    assert all(word in found.problems["abb.png"] for word in ("'abb'", "3", "--length"))


def test_a_folder_without_a_readable_image_is_refused(tmp_path):
    (tmp_path / "ab.png").write_bytes(b"no image")
    with pytest.raises(CaptchaOcrError, match=r"ab\.png"):
        inspect(tmp_path, ANY, workers=1)


def test_advice_names_what_to_mind(folder):
    advice = advice_on_images(inspect(folder, ANY, workers=1))
    assert len(advice) == 5
    for words in (("20", "Bab"), ("B", "--case-sensitive"), ("1",), ("5", "--init")):
        assert any(all(word in sentence for word in words) for sentence in advice)


def test_the_sample_is_the_same_each_time_and_has_every_label_once(folder):
    labels = inspect(folder, ANY, workers=1).labels
    assert sample(labels) == sample(labels)
    assert sorted(label.file for label in sample(labels)) == sorted(label.file for label in labels)


def test_a_wrong_label_comes_first_of_what_a_model_reads_otherwise(run, images, tmp_path):
    recognizer = Recognizer.load(run, "cpu")
    own = tmp_path / "own"
    own.mkdir()
    readings = {}
    for path in sorted(images.glob("*.png"))[:6]:
        readings[path.name] = recognizer.predict(path)
        shutil.copy(path, own / path.name)
    rows = [f"{name},{reading.code}" for name, reading in readings.items()]
    surest = max(readings, key=lambda name: readings[name].confidence)
    unsure = min(readings, key=lambda name: readings[name].confidence)
    flipped = {
        name: readings[name].code[::-1].translate(str.maketrans("0123456789", "1234567890")) for name in readings
    }
    rows = [f"{name},{flipped[name] if name in (surest, unsure) else readings[name].code}" for name in readings]
    (own / "labels.csv").write_text("\n".join(["filename,text", *rows]))
    wrong = read_wrong(recognizer, inspect(own, ANY, workers=1))
    assert [each.file for each in wrong] == [surest, unsure]
    assert (wrong[0].text, wrong[0].reading.code) == (flipped[surest], readings[surest].code)


@pytest.mark.parametrize(("size", "sentences"), [((64, 32), 2), ((64, 30), 2), ((64, 20), 3)])
def test_only_images_of_other_proportions_are_stretched(tmp_path, size, sentences):
    draw(tmp_path, "ab.png", 1)
    draw(tmp_path, "ba.png", 2, size)
    assert len(advice_on_images(inspect(tmp_path, ANY, workers=1))) == sentences
