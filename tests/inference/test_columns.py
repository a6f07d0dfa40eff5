from itertools import groupby, product

import numpy as np
import pytest

from captcha_ocr.inference.columns import compute_positions, softmax
from captcha_ocr.options.model import Lengths

EVERY, BLANK = np.arange(4), 3  # classes A, a, B and the blank


def columns_like(seed: int, count: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=2, size=(1, count, 4)).astype(np.float32)


def by_all_alignments(columns: np.ndarray, lengths: Lengths, counts_as: np.ndarray) -> np.ndarray:
    """Add up the probability of every alignment whose text is left: the definition of CTC."""
    probabilities, positions = softmax(columns.astype(np.float64)), np.zeros((5, 4))
    for alignment in product(range(4), repeat=len(columns)):
        read = counts_as[list(alignment)]
        text = [each for each, _ in groupby(read) if each != BLANK]
        if (read >= 0).all() and len(text) in lengths:
            probability = np.prod(probabilities[np.arange(len(columns)), alignment])
            padded = text + [BLANK] * (5 - len(text))
            positions[np.arange(5), padded] += probability
    return positions / positions[0].sum()


@pytest.mark.parametrize(
    "lengths", [Lengths(1, 5), Lengths(1, 3), Lengths(2, 2), Lengths(3, 4)], ids=str
)
@pytest.mark.parametrize(
    "counts_as",
    [EVERY, np.array([0, -1, 2, 3]), np.array([1, 1, 2, 3])],
    ids=["all", "without a", "folded"],
)
def test_positions_are_exact_among_the_characters_and_lengths_that_are_left(lengths, counts_as):
    columns = columns_like(1)
    positions = np.exp(compute_positions(columns, counts_as, lengths, 5))
    assert positions[0] == pytest.approx(
        by_all_alignments(columns[0], lengths, counts_as), abs=1e-9
    )


def test_the_images_of_a_batch_do_not_depend_on_each_other():
    columns = np.concatenate([columns_like(seed) for seed in (2, 3)])
    both = compute_positions(columns, EVERY, Lengths(1, 4), 4)
    alone = [compute_positions(each[None], EVERY, Lengths(1, 4), 4)[0] for each in columns]
    assert both == pytest.approx(np.stack(alone))
