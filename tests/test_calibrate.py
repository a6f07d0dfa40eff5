import pytest
import torch

from captcha_ocr.calibrate import calibrated, temperature_of
from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths, ModelConfig, NetworkConfig
from captcha_ocr.model import ResNet18


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_the_temperature_at_which_labels_were_drawn_is_found(temperature):
    logits = 2 * torch.randn(20_000, 10, generator=generator())
    labels = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator())[:, 0]
    assert temperature_of(logits, labels) == pytest.approx(temperature, rel=0.05)


def test_a_network_that_was_never_wrong_is_not_sure_without_bounds():
    logits = torch.randn(100, 10, generator=generator())
    sure = (logits / temperature_of(logits, logits.argmax(-1))).softmax(-1).amax(-1)
    assert 0.8 < sure.mean() < 0.95


def test_a_calibrated_model_reads_the_same_and_the_one_it_came_from_is_as_it_was():
    torch.manual_seed(0)
    config = ModelConfig(Charset("ABC"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(width=4, stem="3x3"))
    model = ResNet18(config).eval()
    images = torch.randint(0, 256, (7, 1, 8, 16), dtype=torch.uint8, generator=generator())
    before = model(images)
    other = calibrated(model, [(images, torch.randint(0, 3, (7, 2), generator=generator()))])
    after = other(images)
    assert torch.equal(model(images), before)
    assert torch.equal(after.argmax(-1), before.argmax(-1))
    factors = after / before
    assert factors.std() < 1e-3
    assert abs(factors.mean() - 1) > 0.01


def test_no_more_images_are_looked_at_than_one_number_needs(monkeypatch):
    monkeypatch.setattr("captcha_ocr.calibrate.MOST", 10)
    config = ModelConfig(Charset("ABC"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(width=4, stem="3x3"))
    batch = torch.zeros(5, 1, 8, 16, dtype=torch.uint8), torch.zeros(5, 2, dtype=torch.int64)
    batches = iter([batch] * 3)
    calibrated(ResNet18(config), batches)
    assert len(list(batches)) == 1
