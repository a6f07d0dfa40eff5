from collections import Counter

import pytest
from PIL import Image

from captcha_ocr.metrics import Scores
from captcha_ocr.training.plots import draw_confusion, draw_curves


@pytest.mark.parametrize("loss", [1.0, 0.0])  # which has no place on a logarithmic scale
def test_curves_become_a_png(tmp_path, loss):
    row = {"training_loss": loss, "validation_loss": loss, "training_exact": 0.1, "validation_exact": 0}
    draw_curves([{**row, "epoch": epoch} for epoch in (1, 2)], tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        assert (image.format, image.size) == ("PNG", (1000, 400))


CHINESE = "".join(chr(0x4E00 + number) for number in range(100))  # which the font of the plots lacks


@pytest.mark.parametrize(
    ("characters", "read", "side"),
    [("中$", "$", 800), (CHINESE, CHINESE[0], 1000)],
    ids=["labelled", "too many to label"],
)
def test_confusions_of_any_alphabet_become_a_png(tmp_path, characters, read, side):
    scores = Scores(1, 0, Counter({(characters[0], read): 1}))
    draw_confusion(scores, characters, tmp_path / "confusion.png")  # a warning of the font would be an error
    with Image.open(tmp_path / "confusion.png") as image:
        assert (image.format, image.size) == ("PNG", (side, side))
