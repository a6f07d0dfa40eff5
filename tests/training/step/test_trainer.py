import re
from dataclasses import replace

import pytest
import torch

from captcha_ocr.network.resnet import standardise
from captcha_ocr.training.distributed import BatchPartition
from captcha_ocr.training.step.trainer import EpochMetrics, RunningMetrics

from ..conftest import ALONE


def test_convolutions_stay_unchanged_while_they_are_frozen(trainer_of, samples):
    trainer = trainer_of(frozen=0.5, epochs=2)  # of 10 steps
    assert trainer.frozen_steps == 5
    convolution, classifier = (
        trainer.model.stem[0].weight.clone(),
        trainer.model.head.weight.clone(),
    )
    trainer.progress.step = 4
    trainer.step(*samples, 4)
    assert torch.equal(trainer.model.stem[0].weight, convolution)
    assert not torch.equal(trainer.model.head.weight, classifier)
    trainer.progress.step = 5
    trainer.step(*samples, 4)
    assert not torch.equal(trainer.model.stem[0].weight, convolution)


def test_the_result_is_the_mean_of_the_weights_and_of_those_at_the_start(trainer_of, samples):
    trainer = trainer_of(start_images=10)
    start = trainer.model.head.weight.clone()
    trainer.step(*samples, 4)
    own = trainer.partition.total / (trainer.partition.total + 10)
    expected = own * trainer.model.head.weight + (1 - own) * start
    assert torch.allclose(trainer.result().head.weight, expected, atol=1e-7)
    assert not torch.allclose(trainer.model.head.weight, expected, atol=1e-7)
    without = trainer_of()
    assert without.result() is without.model


@pytest.mark.parametrize(("total", "size"), [(48, 32), (400, 50), (8000, 100)])
def test_an_eighth_of_the_training_images_is_scored_after_an_epoch(trainer_of, total, size):
    assert trainer_of(total).sample_size == size


def test_the_average_of_the_weights_has_batch_norms_of_its_own(trainer_of, samples):
    trainer, heads = trainer_of(finds_end=True, precision="fp32"), []
    for _ in range(3):
        trainer.step(*samples, 4)
        heads.append(trainer.model.head.weight.detach().clone())
    first, second, third = heads
    shares = [1 - (1 - 1 / step) ** 3.5 for step in (2, 3)]
    images, _ = samples
    result = trainer.result(images)
    expected = first.lerp(second, shares[0]).lerp(third, shares[1])
    assert torch.allclose(result.head.weight, expected, atol=1e-6)
    features = result.stem[0](standardise(images.float() / 255))
    assert torch.allclose(result.stem[1].running_mean, features.mean((0, 2, 3)), atol=1e-5)


def test_gradients_are_weighted_by_the_images_of_all_processes(trainer_of, samples):
    whole, half = trainer_of(optimizer="adam"), trainer_of(optimizer="adam")
    whole.step(*samples, 4)
    half.step(*samples, 8)
    for one, other in zip(whole.model.parameters(), half.model.parameters(), strict=True):
        assert torch.allclose(one.grad, 2 * other.grad)


def test_random_numbers_follow_from_the_seed_a_number_and_the_rank(trainer_of):
    def drawn(trainer, number):
        return torch.rand(4, generator=trainer.generator(number)).tolist()

    trainer, other = trainer_of(), trainer_of()
    assert drawn(trainer, 3) == drawn(other, 3) != drawn(trainer, 4)
    other.partition = BatchPartition(48, 10, replace(ALONE, rank=1, world_size=2))
    assert drawn(trainer, 3) != drawn(other, 3)


def test_tallies_add_up():
    one, other = RunningMetrics(ALONE.device), RunningMetrics(ALONE.device)
    one.add(torch.tensor(0.5), torch.tensor([[False, True], [False, False]]), 1.0)
    other.add(torch.tensor(0.2), torch.tensor([[False, False]]), 0.5)
    both = one + other
    assert both.state() == pytest.approx({"loss": 1.2, "exact": 2, "images": 3, "seconds": 1.5})
    metrics = EpochMetrics(ALONE.device)
    metrics.epoch, metrics.recent = one, other
    assert re.findall(r"[\d.]+%?", str(metrics)) == ["0.4000", "66.7%"]


@pytest.mark.parametrize(
    "options", [{}, {"case_folded": 1.0}, {"case_folded": 0.5, "augment": True}]
)
def test_ctc_trains_on_columns(trainer_of, samples, options):
    trainer = trainer_of(loss="ctc", schedule="constant", epochs=1, **options)
    losses = []
    for _ in range(30):
        loss, wrong = trainer.step(*samples, len(samples[0]))
        losses.append(loss.item())
    assert wrong.shape == samples[1].shape
    assert losses[-1] < losses[0] / 2
