import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.calibration import calibrate, fit_column_temperature, fit_temperature
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig

CONFIG = ModelConfig(
    Charset("ABC"), Lengths(2, 2), InputSize(8, 16, 1), NetworkConfig(width=4, stem="3x3")
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("temperature", [0.25, 4.0])
def test_the_temperature_that_drew_the_labels_is_found(temperature):
    logits = 2 * torch.randn(10_000, 10, generator=generator())
    labels = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator())[:, 0]
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.05)


def test_a_network_without_errors_keeps_its_confidence_below_1():
    logits = torch.randn(100, 10, generator=generator())
    confidences = (logits / fit_temperature(logits, logits.argmax(-1))).softmax(-1).amax(-1)
    assert 0.8 < confidences.mean() < 0.95


def test_calibration_scales_the_logits_of_a_copy():
    torch.manual_seed(0)
    model = ResNet18(CONFIG).eval()
    images = torch.randint(0, 256, (7, 1, 8, 16), dtype=torch.uint8, generator=generator())
    before = model(images)
    after = calibrate(model, [(images, torch.randint(0, 3, (7, 2), generator=generator()))])(images)
    assert torch.equal(model(images), before)
    factors = after / before
    assert factors.std() < 1e-3
    assert abs(factors.mean() - 1) > 0.01


@pytest.mark.parametrize(("limit", "value"), [("_MAX_IMAGES", 10), ("_MAX_LOGITS", 10 * 2 * 4)])
def test_calibration_stops_after_enough_images(limit, value, monkeypatch):
    monkeypatch.setattr(f"captcha_ocr.network.calibration.{limit}", value)
    batches = iter(
        [(torch.zeros(5, 1, 8, 16, dtype=torch.uint8), torch.zeros(5, 2, dtype=torch.int64))] * 3
    )
    calibrate(ResNet18(CONFIG), batches)
    assert len(list(batches)) == 1


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_the_temperature_of_columns_that_drew_the_texts_is_found(temperature):
    columns = 3 * torch.randn(2000, 1, 5, generator=generator())
    drawn = torch.multinomial(
        (columns[:, 0] / temperature).softmax(-1)[:, :4], 1, generator=generator()
    )
    with_text = (
        torch.rand(2000, generator=generator())
        < 1 - (columns[:, 0] / temperature).softmax(-1)[:, 4]
    )
    labels = torch.where(with_text[:, None], drawn, 4)
    found = fit_column_temperature([columns[:900], columns[900:]], [labels[:900], labels[900:]])
    assert found == pytest.approx(temperature, rel=0.15)
