from collections import Counter

from PIL import Image

from captcha_ocr.metrics import Scores
from captcha_ocr.plots import draw_confusion, draw_curves


def test_curves_become_a_png(tmp_path):
    rows = [
        {"epoch": n, "training_loss": 1 / n, "validation_loss": 2 / n, "training_exact": 0.1 * n, "validation_exact": 0}
        for n in (1, 2, 3)
    ]
    draw_curves(rows, tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        assert (image.format, image.size) == ("PNG", (1000, 400))


def test_losses_of_zero_become_a_png_too(tmp_path):
    row = {"epoch": 1, "training_loss": 0.0, "validation_loss": 0.0, "training_exact": 1, "validation_exact": 1}
    draw_curves([row], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 0


def test_a_perfect_score_has_a_confusion_picture_too(tmp_path):
    draw_confusion(Scores(2, 2, Counter({("A", "A"): 2})), "AB", tmp_path / "confusion.png")
    with Image.open(tmp_path / "confusion.png") as image:
        assert image.format == "PNG"


def test_letters_that_the_plotting_font_lacks_are_named_by_their_code_points(tmp_path):
    draw_confusion(Scores(1, 0, Counter({("中", "$"): 1})), "中$", tmp_path / "confusion.png")  # no warning either
    assert (tmp_path / "confusion.png").stat().st_size > 0


def test_a_large_alphabet_is_drawn_without_its_letters(tmp_path):
    characters = "".join(chr(0x4E00 + number) for number in range(100))  # the plotting font lacks these
    draw_confusion(Scores(1, 0, Counter({(characters[0], characters[1]): 1})), characters, tmp_path / "confusion.png")
    assert (tmp_path / "confusion.png").stat().st_size > 0
