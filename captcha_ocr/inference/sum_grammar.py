"""The likeliest sum, such as `12+3=?`, in the columns of an image in which a sum was misread.

A sum is a number of one or two digits, a sign, another such number, and `=?`, `=` or nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from captcha_ocr.inference.sums import evaluate

_DIGITS, _SIGNS = "0123456789", "+-*/:xX"
SUM_CHARACTERS = _DIGITS + "+="  # what a model must know to read sums
_OTHER_SIGNS = {*"@&%#$!"}
_BLANK = ""
# How far a sum has come: the characters that lead there, and from where.
_STEPS = (
    (_DIGITS, (0,)),
    (_DIGITS, (1,)),
    (_SIGNS, (1, 2)),
    (_DIGITS, (3,)),
    (_DIGITS, (4,)),
    ("=", (4, 5)),
    ("?", (6,)),
)
_ENDS = (4, 5, 6, 7)
_FLOOR = 1e-30  # of a probability, so that it has a logarithm


class _Lattice(NamedTuple):
    """What a column may emit: a character or a blank, each with how far the sum has come.

    characters: (N,). classes: theirs in the network, (N,). follows: (N, N), 0 where the node of the
    row may follow that of the column, else minus infinity. starts, ends: (N,), likewise.
    """

    characters: list[str]
    classes: np.ndarray
    follows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@lru_cache(maxsize=4)
def _make_lattice(symbols: tuple[str, ...]) -> _Lattice:
    """Return the lattice of the signs and digits that a network knows; its last class is blank."""
    nodes = [(_BLANK, 0)]
    for place, (characters, _) in enumerate(_STEPS, 1):
        nodes += [(character, place) for character in characters if character in symbols]
        nodes.append((_BLANK, place))

    def may_follow(node: tuple[str, int], before: tuple[str, int]) -> bool:
        (character, place), (last, last_place) = node, before
        if place == last_place:
            return character in (last, _BLANK)
        return character not in (last, _BLANK) and last_place in _STEPS[place - 1][1]

    def cost(allowed: list[bool]) -> np.ndarray:
        return np.where(allowed, 0.0, -np.inf)

    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    return _Lattice(
        [character for character, _ in nodes],
        np.array([numbers.get(character, len(symbols)) for character, _ in nodes]),
        np.stack([cost([may_follow(node, before) for before in nodes]) for node in nodes]),
        cost(
            [place == 0 or may_follow((character, place), nodes[0]) for character, place in nodes]
        ),
        cost([place in _ENDS for _, place in nodes]),
    )


def is_misread_sum(text: str) -> bool:
    """Tell whether a text has a sign and mostly digits, none of the other signs, and no result."""
    signs = sum(character in "+-*/=?" for character in text)
    digits = sum(character in _DIGITS for character in text)
    is_near = signs > 0 and 2 * (digits + signs) > len(text)
    return is_near and _OTHER_SIGNS.isdisjoint(text) and evaluate(text) is None


def find_sum(probabilities: np.ndarray, symbols: Sequence[str]) -> str:
    """Return the sum of the likeliest alignment with columns (columns, K), whose last class is the
    blank of CTC; empty if the columns are too few.
    """
    lattice = _make_lattice(tuple(symbols))
    emitted = np.log(np.maximum(probabilities[:, lattice.classes], _FLOOR))  # (columns, N)
    score, before = lattice.starts + emitted[0], []
    for column in emitted[1:]:
        reached = lattice.follows + score
        before.append(reached.argmax(1))
        score = reached.max(1) + column
    score = score + lattice.ends
    path = [int(score.argmax())]
    if not np.isfinite(score[path[0]]):
        return ""
    for choices in reversed(before):
        path.append(int(choices[path[-1]]))
    path.reverse()
    begins = [now for now, last in zip(path, [None, *path], strict=False) if now != last]
    return "".join(lattice.characters[number] for number in begins)
