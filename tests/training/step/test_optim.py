import json
import os
import signal
from typing import get_args

import pytest
import torch

from captcha_ocr.options.training import Schedule
from captcha_ocr.training.step.optim import Optimization, orthogonalise
from captcha_ocr.training.step.trainer import Trainer


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in trainer.model.parameters()])


def test_fp16_scales_gradients_keeps_the_scale_and_skips_a_step_that_overflows(trainer_of, samples):
    trainer, other = trainer_of(precision="fp16"), trainer_of(precision="fp16")
    losses = [trainer.step(*samples, 4)[0].item() for _ in range(2)]
    assert losses[1] < losses[0]
    assert trainer.optimization.scaler.state_dict() != other.optimization.scaler.state_dict()
    other.restore(json.loads(json.dumps(trainer.state())))
    assert trainer.optimization.scaler.state_dict() == other.optimization.scaler.state_dict()
    before = weights(trainer)
    assert before.isfinite().all()
    trainer.optimization.scaler.load_state_dict(
        {**trainer.optimization.scaler.state_dict(), "scale": 2.0**126}
    )
    trainer.step(*samples, 4)
    assert torch.equal(weights(trainer), before)
    assert trainer.optimization.scaler.get_scale() == 2.0**125


def test_a_plateau_of_the_validation_loss_lowers_the_learning_rate(trainer_of):
    trainer = trainer_of(schedule="plateau", patience=8)
    rates = []
    for _ in range(5):
        trainer.end_epoch(validation_loss=1.0)
        rates.append(trainer.optimization.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([4e-3, 4e-3, 4e-3, 4e-4, 4e-4])


def test_every_schedule_gives_learning_rates_of_its_own(trainer_of):
    found = set()
    for schedule in get_args(Schedule):
        trainer, rates = trainer_of(schedule=schedule, epochs=4), []
        for _ in range(15):
            trainer.optimization.optimizer.step()
            trainer.optimization.schedule.step(*[1.0] * (schedule == "plateau"))
            rates.append(trainer.optimization.optimizer.param_groups[0]["lr"])
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
        Optimization(trainer.model, trainer.config, "fp32", 10)
    assert made


def test_orthogonal_updates_have_singular_values_near_one():
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 8, 20), (2, 20, 8)):
        matrices = torch.randn(shape, generator=generator)
        values = torch.linalg.svdvals(orthogonalise(matrices))
        assert values.min() > 0.6
        assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    nearest = (left @ right).flatten(1)
    assert torch.cosine_similarity(orthogonalise(matrices).flatten(1), nearest).min() > 0.95


def test_muon_moves_kernels_by_their_learning_rate_and_the_rest_as_adamw_does(trainer_of, samples):
    muon, adamw = (
        trainer_of(optimizer=kind, weight_decay=0.0, schedule="constant")
        for kind in ("muon", "adamw")
    )
    before = {name: tensor.clone() for name, tensor in muon.model.named_parameters()}
    for trainer in (muon, adamw):
        trainer.step(*samples, 4)
    for (name, after), other in zip(
        muon.model.named_parameters(), adamw.model.parameters(), strict=True
    ):
        step = (after - before[name]).square().mean().sqrt() / muon.config.learning_rate
        if after.ndim == 4 and min(after[:, 0].numel(), len(after)) > 1:
            assert 0.1 < step < 0.3, name
        elif after.ndim < 4:
            assert torch.equal(after, other), name
    assert not torch.equal(weights(muon), weights(adamw))
