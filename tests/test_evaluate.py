import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig
from captcha_ocr.device import autocast, choose_precision
from captcha_ocr.evaluate import evaluate
from captcha_ocr.losses import bce_over_softmax
from captcha_ocr.metrics import score_texts
from captcha_ocr.model import ResNet18
from captcha_ocr.reading import allowed_classes, read_logits

CONFIG = ModelConfig(Charset("ABC"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(width=4, stem="3x3"))


@pytest.fixture
def model() -> ResNet18:
    torch.manual_seed(0)
    return ResNet18(CONFIG)


@pytest.fixture
def samples() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (7, 1, 8, 16), dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 3, (7, 2), generator=generator)


def test_the_scores_are_those_of_the_texts(model, samples):
    images, labels = samples
    scores = evaluate(model, [samples])
    codes = CONFIG.charset.decode(model(images)[..., :3].argmax(-1).numpy())
    expected = score_texts(CONFIG.charset.decode(labels.numpy()), codes)
    assert (scores.images, scores.exact, scores.pairs) == (7, expected.exact, expected.pairs)


def test_batches_of_unequal_size_weigh_by_their_images(model, samples):
    images, labels = samples
    whole = evaluate(model, [samples])
    parts = evaluate(model, [(images[:5], labels[:5]), (images[5:], labels[5:])])
    assert parts.pairs == whole.pairs
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)
    with autocast(images.device, choose_precision("auto", images.device)):
        logits = model(images)
    assert whole.loss == pytest.approx(bce_over_softmax(logits, labels).item(), rel=1e-5)


def test_evaluating_does_not_move_the_running_statistics(model, samples):
    before = model.stem[1].running_mean.clone()
    evaluate(model.train(), [samples])
    assert torch.equal(model.stem[1].running_mean, before)


def test_a_perfect_model_scores_everything(model, samples):
    images, _ = samples
    scores = evaluate(model, [(images, model.eval()(images)[..., :3].argmax(-1))])
    assert scores.exact_match == scores.character_accuracy == 1.0
    assert scores.worst() == []


def test_texts_of_several_lengths_are_scored_as_the_texts_are(samples):
    torch.manual_seed(3)
    images, _ = samples
    config = ModelConfig(Charset("AaB"), Lengths(1, 3), InputSize(8, 16, 1), NetworkConfig(width=4, stem="3x3"))
    model = ResNet18(config).eval()
    readings = read_logits(model(images).detach().numpy(), config, allowed_classes(config))
    truths = ["A", "BB", "aAB", "a", "AA", "B", "aB"]
    expected = score_texts(truths, [reading.code for reading in readings])
    scores = evaluate(model, [(images, torch.from_numpy(config.charset.encode(truths)).long())])
    assert scores.pairs == expected.pairs
    assert (scores.exact, scores.folded, scores.lookalike) == (expected.exact, expected.folded, expected.lookalike)


def test_look_alikes_are_counted_apart_as_they_are_of_texts(samples):
    torch.manual_seed(1)
    images, labels = samples
    model = ResNet18(
        ModelConfig(Charset("0OA"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(width=4, stem="3x3"))
    )
    codes = model.eval()(images)[..., :3].argmax(-1)
    labels = torch.where(codes < 2, 1 - codes, codes)  # every O read as 0 and every 0 as O
    scores = evaluate(model, [(images, labels)])
    assert scores.lookalike == int((codes < 2).any(1).sum()) > 0
    assert scores.merged_match == 1.0
