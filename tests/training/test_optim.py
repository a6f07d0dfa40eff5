import json
import os
import signal
from typing import get_args

import pytest
import torch

from captcha_ocr.config import Schedule
from captcha_ocr.training.optim import make_optimizer
from captcha_ocr.training.trainer import Trainer


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in trainer.model.parameters()])


def test_fp16_scales_gradients_keeps_the_scale_and_skips_a_step_that_overflows(trainer_of, samples):
    trainer, other = trainer_of(precision="fp16"), trainer_of(precision="fp16")
    losses = [trainer.step(*samples, 4)[0].item() for _ in range(2)]
    assert losses[1] < losses[0]
    assert trainer.scaler.state_dict() != other.scaler.state_dict()
    other.restore(json.loads(json.dumps(trainer.state())))
    assert trainer.scaler.state_dict() == other.scaler.state_dict()
    before = weights(trainer)
    assert before.isfinite().all()
    trainer.scaler.load_state_dict({**trainer.scaler.state_dict(), "scale": 2.0**126})
    trainer.step(*samples, 4)
    assert torch.equal(weights(trainer), before)
    assert trainer.scaler.get_scale() == 2.0**125


def test_a_plateau_of_the_validation_loss_lowers_the_learning_rate(trainer_of):
    trainer = trainer_of(schedule="plateau", patience=8)
    rates = []
    for _ in range(5):
        trainer.end_epoch(validation_loss=1.0)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([4e-3, 4e-3, 4e-3, 4e-4, 4e-4])


def test_every_schedule_gives_learning_rates_of_its_own(trainer_of):
    found = set()
    for schedule in get_args(Schedule):
        trainer, rates = trainer_of(schedule=schedule, epochs=4), []
        for _ in range(15):
            trainer.optimizer.step()
            trainer.schedule.step(*[1.0] * (schedule == "plateau"))
            rates.append(trainer.optimizer.param_groups[0]["lr"])
        found.add(tuple(rates))
    assert len(found) == len(get_args(Schedule))


@pytest.mark.skipif(os.name != "posix", reason="signals are not held back there")
def test_a_signal_waits_while_torch_imports_what_an_optimizer_needs(trainer_of, monkeypatch):
    def make(*_, **__):
        signal.raise_signal(signal.SIGINT)
        made.append(True)

    trainer, made = trainer_of(), []
    monkeypatch.setattr(torch.optim, "AdamW", make)
    with pytest.raises(KeyboardInterrupt):
        make_optimizer(trainer.model, trainer.config)
    assert made
