import math
from itertools import groupby, product

import pytest
import torch
from torch.nn.functional import binary_cross_entropy, one_hot

from captcha_ocr.network.losses import (
    LOSSES,
    bce_over_softmax,
    cross_entropy,
    ctc,
    read_columns,
    smooth_labels,
)

CLASSES = 36


def bce_in_float64(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute the definition in float64; 1 - p is the sum of the other classes' p."""
    logits = logits.double()
    log_p = logits - torch.logsumexp(logits, -1, keepdim=True)
    others = torch.eye(logits.shape[-1], dtype=torch.bool)
    spread = (
        log_p.unsqueeze(-2).expand(*log_p.shape, logits.shape[-1]).masked_fill(others, -math.inf)
    )
    log_not_p = torch.where(
        log_p < -1, torch.log1p(-log_p.clamp_max(-0.5).exp()), torch.logsumexp(spread, -1)
    )
    right = one_hot(targets, logits.shape[-1]).bool()
    gaps = (logits - logits.gather(-1, targets[..., None])).masked_fill(right, -math.inf)
    log_p_right = -torch.log1p(gaps.exp().sum(-1, keepdim=True))
    return -torch.where(right, log_p_right, log_not_p).mean()


def logits_with_gap(gap: float, top_is_right: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random logits in which the right or a wrong class stands `gap` above the rest."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 4, CLASSES, generator=generator)
    targets = torch.randint(0, CLASSES, (8, 4), generator=generator)
    top = targets if top_is_right else (targets + 1) % CLASSES
    return logits.scatter(-1, top[..., None], logits.amax(-1, keepdim=True) + gap), targets


@pytest.mark.parametrize("top_is_right", [True, False])
@pytest.mark.parametrize("gap", [0.0, 1.0, 5.0, 20.0, 40.0, 60.0])
def test_bce_and_its_gradient_match_float64(gap, top_is_right):
    logits, targets = logits_with_gap(gap, top_is_right)
    single, double = logits.clone().requires_grad_(), logits.double().requires_grad_()
    loss, expected = bce_over_softmax(single, targets), bce_in_float64(double, targets)
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    error = (single.grad.double() - double.grad).norm(dim=-1) / double.grad.norm(dim=-1)
    assert error.max() < 1e-5
    if gap <= 1:  # above that torch's own loss loses precision
        expected = binary_cross_entropy(
            logits.double().softmax(-1), one_hot(targets, CLASSES).double()
        )
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_bce_of_an_alphabet_of_two_is_finite_and_has_a_gradient():
    logits = torch.tensor([[[50.0, -50.0]]], requires_grad=True)
    loss = bce_over_softmax(logits, torch.tensor([[1]]))
    loss.backward()
    assert loss.item() == pytest.approx(100)
    assert logits.grad[0, 0, 0].item() == pytest.approx(1)


def test_cross_entropy_is_minus_the_log_of_the_right_probability():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]))
    loss = cross_entropy(logits, torch.tensor([[0, 1]]))
    assert loss.item() == pytest.approx(-(math.log(0.5) + math.log(0.1)) / 2)


@pytest.mark.parametrize("loss", LOSSES.values())
def test_every_loss_computes_in_float32_and_takes_shares(loss):
    logits = torch.randn(5, 3, 7, generator=torch.Generator().manual_seed(0))
    ids = torch.arange(15).view(5, 3) % 7
    one, two = one_hot(ids, 7).float(), one_hot(ids.flip(0), 7).float()
    assert loss(logits.bfloat16(), ids).dtype == torch.float32
    assert loss(logits, one).item() == pytest.approx(loss(logits, ids).item(), rel=1e-6)
    expected = 0.75 * loss(logits, ids) + 0.25 * loss(logits, ids.flip(0))
    assert loss(logits, 0.75 * one + 0.25 * two).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("loss", [bce_over_softmax, cross_entropy])
def test_with_focus_hard_positions_count_more(loss):
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]]))
    ids = torch.tensor([[0, 0]])
    hard, easy = (
        loss(logits[:, place : place + 1], ids[:, place : place + 1]).item() for place in (0, 1)
    )
    expected = (0.52 * hard + 0.12 * easy) / 0.64  # each weight is 1.02 minus the right probability
    for targets in (ids, one_hot(ids, 3).float()):
        assert loss(logits, targets, focus=1.0).item() == pytest.approx(expected, rel=1e-5)
        assert loss(logits, targets).item() == pytest.approx((hard + easy) / 2, rel=1e-5)


def test_smoothing_takes_class_ids_and_shares():
    ids = torch.tensor([[0, 3], [1, 1]])
    smoothed = smooth_labels(ids, 4, 0.2)
    assert torch.equal(smooth_labels(one_hot(ids, 4).float(), 4, 0.2), smoothed)
    assert smoothed[0, 1].tolist() == pytest.approx([0.05, 0.05, 0.05, 0.85])


def test_ctc_is_the_improbability_of_the_text_over_all_its_alignments():
    columns, targets = (
        torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[0, 1], [2, 3]]),
    )
    same = torch.tensor([0, 0, 2, 3])  # the second class counts as the first
    for merged in (None, same):
        losses = []
        for row, length in ((0, 2), (1, 1)):
            probability, wanted = 0.0, targets[row, :length].tolist()
            for path in product(range(4), repeat=5):
                classes = [int(same[c]) for c in path] if merged is not None else path
                text = [c for c, _ in groupby(classes) if c != 3]
                if text == ([0, 0] if merged is not None and row == 0 else wanted):
                    probability += columns[row].softmax(-1)[range(5), path].prod().item()
            losses.append(-math.log(probability) / length)
        assert ctc(columns, targets, merged).item() == pytest.approx(sum(losses) / 2, rel=1e-4)


def test_a_text_that_does_not_fit_into_the_columns_is_left_out():
    columns = torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = ctc(columns, torch.tensor([[0, 0, 3]]))  # needs a blank in between
    loss.backward()
    assert loss.item() == 0
    assert not columns.grad.any()


def test_columns_are_read_by_their_likeliest_classes_without_repetitions_and_blanks():
    best = torch.tensor([[3, 0, 0, 3, 0, 1, 3], [3, 3, 3, 3, 3, 3, 3], [0, 1, 0, 1, 2, 3, 3]])
    assert read_columns(one_hot(best, 4).float(), 3).tolist() == [[0, 0, 1], [3, 3, 3], [0, 1, 0]]
