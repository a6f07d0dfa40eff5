import json

import pytest
import torch

from captcha_ocr.training.difficulty import MEMORY, Difficulty
from captcha_ocr.training.distributed import ProcessGroup

ALONE = ProcessGroup(torch.device("cpu"))


def after(steps: int, share: float) -> Difficulty:
    """Of three characters, 0 was always read right, 1 always wrong, and 2 never seen."""
    difficulty = Difficulty(3, share, ALONE)
    for _ in range(steps):
        difficulty.update(torch.tensor([[0, 1], [0, 1]]), torch.tensor([[False, True], [False, True]]))
    difficulty.look()
    return difficulty


def test_at_first_all_images_weigh_alike():
    weights = Difficulty(3, 0.75, ALONE).weights(torch.tensor([[0, 1], [2, 2]]))
    assert weights.tolist() == pytest.approx([1, 1])


def test_images_of_hard_characters_weigh_more_and_the_mean_is_one():
    easy, mixed, hard = after(500, 0.75).weights(torch.tensor([[0, 0], [0, 1], [1, 1]])).tolist()
    assert [easy, mixed, hard] == pytest.approx([0.25, 1.0, 1.75], abs=1e-3)


def test_without_a_share_difficulty_counts_nothing():
    assert after(500, 0.0).weights(torch.tensor([[0, 0], [1, 1]])).tolist() == [1, 1]


def test_where_nothing_is_read_wrong_any_more_the_share_is_not_divided_by_nothing():
    difficulty = Difficulty(1, 1.0, ALONE)
    difficulty.errors.zero_()
    difficulty.look()
    assert difficulty.weights(torch.tensor([[0], [0]])).isfinite().all()


def test_what_was_long_ago_is_forgotten():
    difficulty = after(1, 1.0)
    before = difficulty.errors[1].item()
    difficulty.update(torch.tensor([[0, 0]]), torch.tensor([[False, False]]))
    assert difficulty.errors[1].item() == pytest.approx(before * MEMORY)


def test_the_counts_come_back_bit_by_bit_from_json():
    difficulty, other = after(7, 0.5), Difficulty(3, 0.5, ALONE)
    other.restore(json.loads(json.dumps(difficulty.state())))
    assert torch.equal(other.errors, difficulty.errors)
    assert torch.equal(other.seen, difficulty.seen)
    assert torch.equal(other.rates, difficulty.rates)


def test_weights_go_by_what_was_counted_at_the_last_look():
    difficulty = after(500, 1.0)
    before = difficulty.weights(torch.tensor([[0, 0], [1, 1]]))
    difficulty.update(torch.tensor([[0, 0]]), torch.tensor([[True, True]]))
    assert torch.equal(difficulty.weights(torch.tensor([[0, 0], [1, 1]])), before)
    difficulty.look()
    assert not torch.equal(difficulty.weights(torch.tensor([[0, 0], [1, 1]])), before)
