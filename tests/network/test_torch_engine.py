import os
from typing import get_args

import numpy as np
import pytest
import torch

from captcha_ocr.charset import Charset
from captcha_ocr.errors import UsageError
from captcha_ocr.input_size import InputSize
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.torch_engine import TorchEngine, fuse_norms
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig, Stem


def tiny(shortest: int = 3, **network) -> ResNet18:
    network = NetworkConfig(width=4, **network)
    return ResNet18(
        ModelConfig(Charset("01234"), Lengths(shortest, 3), InputSize(20, 50, 1), network)
    )


@pytest.mark.parametrize("stem", get_args(Stem))
def test_a_network_with_fused_norms_gives_the_same_logits(stem):
    torch.manual_seed(0)
    model = tiny(stem=stem)
    images = torch.randint(0, 256, (8, 1, 20, 50), dtype=torch.uint8)
    model(images)  # moves the running statistics away from 0 and 1
    fused = fuse_norms(model.eval())
    assert torch.allclose(fused(images), model(images), atol=1e-5)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in fused.modules())
    assert any(isinstance(part, torch.nn.BatchNorm2d) for part in model.modules())


def test_an_engine_on_another_device_refuses_to_compute_after_a_fork(monkeypatch):
    engine, images = (
        TorchEngine(tiny(), torch.device("meta")),
        np.zeros((1, 1, 20, 50), dtype=np.uint8),
    )
    with pytest.raises(
        NotImplementedError
    ):  # the device meta has no values to return, but it computes
        engine.logits(images)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with pytest.raises(UsageError, match=r"meta.*spawn"):
        engine.logits(images)
