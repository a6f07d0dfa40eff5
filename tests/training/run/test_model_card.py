from collections import Counter
from dataclasses import replace

from conftest import TINY

from captcha_ocr.data.shards import read_dataset
from captcha_ocr.scores import Scores
from captcha_ocr.training.run.model_card import model_card
from captcha_ocr.training.samples.dataset import DrawnData


def test_a_card_tells_what_the_model_reads_and_how_well(run, shards):
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    for fact in ("`0123456789`", "48x16", "`tiny`", "on 48 images", "0 of 6", "Validation", "Test"):
        assert fact in card
    dataset = read_dataset([shards])
    card = model_card(replace(TINY.training, images=20), dataset, 3, Scores(6, 5, Counter()))
    assert "on 20 images; best epoch 3" in card
    assert "Test" not in card  # nothing was scored


def test_the_card_of_a_model_that_learnt_from_drawings_says_so(drawings):
    card = model_card(
        TINY.training, DrawnData.of(drawings, TINY.training), 3, Scores(6, 5, Counter())
    )
    assert all(
        fact in card
        for fact in ("on 24 images an epoch", "design `captcha`", "new ones every 2 epochs")
    )
