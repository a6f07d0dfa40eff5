"""Turn logits of columns into those of positions, among some characters and lengths alone.

What is ruled out is ruled out before the text is found: a column's other classes share its
probability, and so do the lengths that are left. So `O` is a `0` among digits, and a text of four
characters is the likeliest of those.
"""

import numpy as np

from captcha_ocr.options.model import Lengths

PROBABILITY_FLOOR = 1e-30  # keeps its logarithm finite


def compute_positions(
    columns: np.ndarray, counts_as: np.ndarray, lengths: Lengths, longest: int
) -> np.ndarray:
    """Return the logits of positions (B, longest, K) of logits of columns (B, columns, K), by CTC.

    counts_as: (K,), the class that each class counts as, -1 for one that is not read. The last
    class is the blank, and becomes the end of the text. See positions_from_columns in
    network/resnet.py.
    """
    read = counts_as >= 0
    # Np.unique imports numpy.ma, which takes 7 ms
    classes = np.flatnonzero(np.bincount(counts_as[read]))
    probabilities = (
        softmax(columns[..., read].astype(np.float64))
        @ make_merging_matrix(counts_as)[np.ix_(read, classes)]
    )
    positions = np.full((len(columns), longest, columns.shape[-1]), PROBABILITY_FLOOR)
    positions[:, : lengths.longest, classes] = _sum_allowed_alignments(probabilities, lengths)
    positions[:, lengths.longest :, -1] = 1.0
    logits: np.ndarray = np.log(np.maximum(positions, PROBABILITY_FLOOR))
    return logits


def make_merging_matrix(counts_as: np.ndarray) -> np.ndarray:
    """Return the matrix (K, K) that adds the probabilities of all classes that count as one."""
    return np.asarray(counts_as[:, None] == np.arange(len(counts_as)), dtype=np.float64)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of logits along the last axis."""
    probabilities: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    return probabilities


def _sum_allowed_alignments(probabilities: np.ndarray, lengths: Lengths) -> np.ndarray:
    """Return the probabilities of positions (B, L, K) of those of columns (B, columns, K), given a
    text's `lengths`.

    One pass from left to right sums over all that may be before a character, after a pass from
    right to left has summed over all that may follow it. For a single image the time is that of
    calling numpy, so the passes call it as seldom as they can.
    """
    batch, count, classes = probabilities.shape
    characters, blanks = probabilities.copy(), probabilities[..., -1, None]
    characters[..., -1] = 0
    after = _sum_continuations(characters, blanks, lengths)
    # As in network/resnet.py, with a row of L characters
    state = np.zeros((batch, lengths.longest + 1, classes))
    state[:, 0, -1] = 1.0
    positions, new = np.zeros((batch, lengths.longest, classes)), np.empty_like(state)
    for column in range(count):
        emitted = characters[:, column, None]  # (B, 1, K)
        totals = np.add.reduce(state, -1, keepdims=True)
        np.subtract(totals, state, out=new)
        new *= emitted
        state *= emitted
        state[:, 1:] += new[:, :-1]
        state[..., -1] = totals[..., 0] * blanks[:, column]
        new *= after[column, :, 1:]
        positions += new[:, :-1]
    of_length = state.sum(-1)  # (B, L + 1)
    of_length[:, : lengths.shortest] = 0
    ended = of_length.cumsum(1)
    positions[..., -1] = ended[:, :-1]
    positions /= np.maximum(ended[:, -1], PROBABILITY_FLOOR)[:, None, None]
    return positions


def _sum_continuations(characters: np.ndarray, blanks: np.ndarray, lengths: Lengths) -> np.ndarray:
    """Return the probability of `lengths` after each column, l characters and class k, (columns, B,
    L + 2, K).

    characters: the probabilities of columns (B, columns, K), 0 for the blank. blanks: its own, (B,
    columns, 1). The last row, of more characters than a text has, is 0.
    """
    batch, count, classes = characters.shape
    after = np.zeros((count, batch, lengths.longest + 2, classes))
    after[-1, :, lengths.shortest : -1] = 1.0
    for column in range(count - 1, 0, -1):
        emitted, chances = characters[:, column, None], after[column - 1, :, :-1]
        later, longer = after[column, :, :-1], after[column, :, 1:]  # longer: by one character
        any_other = longer @ emitted.transpose(0, 2, 1) + later[..., -1:] * blanks[:, column, None]
        np.subtract(later, longer, out=chances)
        chances *= emitted
        chances += any_other
    return after
