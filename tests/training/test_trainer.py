import json
import os
import re
import signal
from dataclasses import replace

import pytest
import torch

from captcha_ocr.data.shards import read_dataset
from captcha_ocr.training.batches import BatchPartition, load_split
from captcha_ocr.training.distributed import ProcessGroup
from captcha_ocr.training.optim import make_optimizer
from captcha_ocr.training.run import model_for
from captcha_ocr.training.trainer import RunningMetrics, Trainer

ALONE = ProcessGroup(torch.device("cpu"))


@pytest.fixture
def trainer_of(shards, tiny_preset):
    """Make a trainer of the tiny preset with other options."""

    def make(**options) -> Trainer:
        config = replace(tiny_preset.training, **options)
        return Trainer(model_for(read_dataset([shards]), config), config, BatchPartition(48, 10, ALONE))

    return make


@pytest.fixture
def samples(shards):
    return load_split(read_dataset([shards]), "train", ALONE).first(4)


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


def test_convolutions_stay_unchanged_while_they_are_frozen(trainer_of, samples):
    trainer = trainer_of(frozen=0.5, epochs=2)  # of 10 steps
    assert trainer.frozen_steps == 5
    convolution, classifier = trainer.model.stem[0].weight.clone(), trainer.model.head.weight.clone()
    trainer.progress.step = 4
    trainer.step(*samples, 4)
    assert torch.equal(trainer.model.stem[0].weight, convolution)
    assert not torch.equal(trainer.model.head.weight, classifier)
    trainer.progress.step = 5
    trainer.step(*samples, 4)
    assert not torch.equal(trainer.model.stem[0].weight, convolution)


def test_gradients_are_weighted_by_the_images_of_all_processes(trainer_of, samples):
    whole, half = trainer_of(optimizer="adam"), trainer_of(optimizer="adam")
    whole.step(*samples, 4)
    half.step(*samples, 8)
    gradients = [[parameter.grad for parameter in trainer.model.parameters()] for trainer in (whole, half)]
    assert all(torch.allclose(one, 2 * other) for one, other in zip(*gradients, strict=True))


def test_a_plateau_of_the_validation_loss_lowers_the_learning_rate(trainer_of):
    trainer = trainer_of(schedule="plateau", patience=8)
    rates = []
    for _ in range(5):
        trainer.end_epoch(validation_loss=1.0)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([4e-3, 4e-3, 4e-3, 4e-4, 4e-4])


def test_random_numbers_follow_from_the_seed_a_number_and_the_rank(trainer_of):
    def drawn(trainer, number):
        return torch.rand(4, generator=trainer.generator(number)).tolist()

    trainer, other = trainer_of(), trainer_of()
    assert drawn(trainer, 3) == drawn(other, 3) != drawn(trainer, 4)
    other.group = replace(ALONE, rank=1, world_size=2)
    assert drawn(trainer, 3) != drawn(other, 3)


def test_tallies_add_up():
    one, other = RunningMetrics(ALONE.device), RunningMetrics(ALONE.device)
    one.add(torch.tensor(0.5), torch.tensor([[False, True], [False, False]]), 1.0)
    other.add(torch.tensor(0.2), torch.tensor([[False, False]]), 0.5)
    both = one + other
    assert both.state() == pytest.approx({"loss": 1.2, "exact": 2, "images": 3, "seconds": 1.5})
    assert re.findall(r"[\d.]+%?", str(both)) == ["0.4000", "66.7%"]


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
