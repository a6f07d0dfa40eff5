"""Turn logits into texts and confidences, among some characters and lengths alone.

What is ruled out is ruled out before the text is found: a column's other classes share its
probability, and so do the lengths that are left. So `O` is a `0` among digits, and a text of four
characters is the likeliest of those.
"""

from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from captcha_ocr.charset import resolve_alphabet, split_characters, visual_order
from captcha_ocr.errors import check
from captcha_ocr.inference.sum_grammar import SUM_CHARACTERS, find_sum, is_misread_sum
from captcha_ocr.inference.sums import evaluate
from captcha_ocr.options.model import Lengths, ModelConfig

_SHIFT_RATIO = 4.0  # how much more probable than a shift a neighbour must be to be a substitute
_PROBABILITY_FLOOR = 1e-30  # keeps its logarithm finite
_RANKED_LAST = 1e-30  # a factor that keeps only the order among what is ranked last


@dataclass(frozen=True)
class Character:
    """A character of a reading, and the one that most probably stands in its place if it is wrong,
    `runner_up`.

    Both confidences are probabilities from 0 to 1. runner_up: empty if there is no other character;
    it may also mean the end of the text in a model of preset `seed`.
    """

    character: str
    confidence: float
    runner_up: str
    runner_up_confidence: float

    def __repr__(self) -> str:
        text = f"<Character {self.character!r}, confidence {self.confidence:.4f}"
        if self.runner_up:
            text += f"; runner-up {self.runner_up!r}, {self.runner_up_confidence:.4f}"
        return text + ">"


@dataclass(frozen=True)
class Reading:
    """The text of one image, and the confidence in it.

    confidence: the probability from 0 to 1 that all of the text is correct: the product of its
    characters' confidences and, if lengths vary and the text is not one of the longest, that of its
    end.
    elapsed_s: the time it took in seconds; images of one batch share the batch's time equally.
    """

    text: str
    confidence: float
    characters: tuple[Character, ...] = ()
    elapsed_s: float = field(default=0.0, compare=False)

    def __repr__(self) -> str:
        return f"<Reading {self.text!r}, confidence {self.confidence:.4f}>"

    @property
    def result(self) -> int | None:
        """The result if the text is a sum: 11 of `3+8=?`; None for any other text."""
        return evaluate(self.text)


def allowed_classes(
    config: ModelConfig, charset: str | None = None, lengths: Lengths | None = None
) -> np.ndarray:
    """Return which classes are allowed at which position, (L, K) bool, for an alphabet and a range
    of lengths.

    charset: characters, or the name of an alphabet. UsageError for characters or lengths that the
    model cannot read.
    """
    lengths = lengths or config.lengths
    check(
        lengths.shortest in config.lengths and lengths.longest in config.lengths,
        f"this model reads texts of {config.lengths} characters, not of {lengths}",
    )
    symbols, wanted = config.charset.symbols, set(config.charset.symbols)
    if charset is not None:
        characters = resolve_alphabet(charset)
        # A text has no blank at its ends, but an alphabet may.
        named = [
            *({" "} & set(characters)),
            *split_characters(config.charset.normalize(characters)),
        ]
        unknown = "".join(
            dict.fromkeys(character for character in named if character not in wanted)
        )
        check(
            bool(characters) and not unknown,
            f"this model does not read {unknown[:40]!r}; it reads {config.charset}",
        )
        wanted = set(named)
    allowed = np.zeros((config.lengths.longest, config.classes), dtype=bool)
    allowed[
        : lengths.longest, [number for number, symbol in enumerate(symbols) if symbol in wanted]
    ] = True
    if config.lengths.vary:
        allowed[lengths.shortest :, len(config.charset)] = True  # no character
    return allowed


class Decoder:
    """Reads the logits of a model, perhaps among some characters and lengths alone.

    UsageError as `allowed_classes`.

    fold_case: read both cases of a letter as one.
    """

    def __init__(
        self,
        config: ModelConfig,
        charset: str | None = None,
        lengths: Lengths | None = None,
        fold_case: bool = False,
    ) -> None:
        self.config, self.lengths, self.fold_case = config, lengths or config.lengths, fold_case
        self.allowed = allowed_classes(config, charset, self.lengths)
        self.counts_as = _merge_cases(config, self.allowed, fold_case)
        self.mends_sums = config.reads_columns and self.characters >= {*SUM_CHARACTERS}

    @property
    def characters(self) -> set[str]:
        """The characters that may be read."""
        anywhere = np.asarray(self.allowed.any(axis=0))
        return set(compress(self.config.charset.symbols, anywhere))

    def fits(self, logits: np.ndarray, images: int) -> bool:
        """Tell whether these may be the logits of so many images."""
        shape = (images, *self.allowed.shape)
        if self.config.reads_columns:
            columns = np.minimum(logits.shape[1:2], self.config.size.width)
            shape = (images, *columns, self.config.classes)
        is_right = logits.shape == shape and logits.dtype == np.float32
        return is_right and logits.size > 0 and bool(np.isfinite(logits).all())

    def read(self, logits: np.ndarray) -> list[Reading]:
        """Return the readings of logits, (B, L, K) float32, of columns (B, columns, K) if the model
        reads columns.

        A text ends at its first position without a character.
        """
        columns = logits
        if self.config.reads_columns:
            logits = compute_positions(
                columns, self.counts_as, self.lengths, self.config.lengths.longest
            )
        elif self.fold_case:
            merged = _add_cases(softmax(logits.astype(np.float64)), self.counts_as)
            logits = np.log(np.maximum(merged, _PROBABILITY_FLOOR))
        probabilities = softmax(np.where(self.allowed, logits.astype(np.float64), -np.inf))
        ids = probabilities.argmax(-1)
        if self.mends_sums:
            self._mend_sums(ids, columns)
        confidences = _pick_classes(probabilities, ids)
        end = len(self.config.charset)
        is_end = ids == end
        after_end = is_end.cumsum(1) > is_end
        rank = probabilities.copy()
        if self.config.network.pool != "global":
            _discount_shifts(
                rank,
                np.where(self.allowed, probabilities, 1.0),
                np.where(after_end, end, ids),
            )
        np.put_along_axis(rank, ids[..., None], 0, -1)
        runner_ids = rank.argmax(-1)
        runner_confidences = _pick_classes(probabilities, runner_ids) * (rank.max(-1) > 0)
        names = np.array([*self.config.class_names, ""])
        rows = zip(
            names[np.where(is_end | after_end, -1, ids)].tolist(),
            np.where(after_end, 1.0, confidences).prod(-1).tolist(),
            confidences.tolist(),
            names[np.where(runner_confidences > 0, runner_ids, -1)].tolist(),
            runner_confidences.tolist(),
            strict=True,
        )
        readings = []
        for symbols, confidence, *positions in rows:
            text = [symbol for symbol in symbols if symbol]
            # `map` ends with the text, before the other positions
            characters = list(map(Character, text, *positions))
            characters = [characters[number] for number in visual_order(text)]
            whole = "".join(character.character for character in characters)
            readings.append(Reading(whole, confidence, tuple(characters)))
        return readings

    def _mend_sums(self, ids: np.ndarray, columns: np.ndarray) -> None:
        """Replace the classes (B, L) of sums that are misread by those of the likeliest sums."""
        end, symbols = len(self.config.charset), self.config.charset.symbols
        for row, logits in zip(ids, columns, strict=True):
            text = "".join(symbols[number] for number in row[: (row != end).cumprod().sum()])
            if is_misread_sum(text):
                mended = find_sum(softmax(logits.astype(np.float64)), symbols)
                if {*mended} <= self.characters and len(mended) in self.lengths:
                    row[:] = end
                    classes = [symbols.index(character) for character in mended]
                    row[: len(mended)] = self.counts_as[classes]


def _merge_cases(config: ModelConfig, allowed: np.ndarray, fold_case: bool) -> np.ndarray:
    """Return the class that each class counts as, (K,), -1 for a character that is `allowed`
    nowhere.

    fold_case: both cases of a letter count as one, which is the lower case if both are allowed.
    """
    names, classes = config.charset.symbols, np.arange(config.classes)
    anywhere = np.asarray(allowed.any(axis=0))
    counts_as = np.where(anywhere | (classes >= len(names)), classes, -1)
    if fold_case:
        wanted = sorted(
            np.flatnonzero(anywhere[: len(names)]).tolist(),
            key=lambda number: names[number] != names[number].lower(),
        )
        first = {names[number].casefold(): number for number in reversed(wanted)}
        counts_as[: len(names)] = [first.get(name.casefold(), -1) for name in names]
    return counts_as


def _pick_classes(probabilities: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the probability (B, L) of a class (B, L) at each position of (B, L, K)."""
    chosen: np.ndarray = np.take_along_axis(probabilities, ids[..., None], -1)
    return chosen[..., 0]


def _discount_shifts(rank: np.ndarray, probabilities: np.ndarray, ids: np.ndarray) -> None:
    """Rank last in `rank`, (B, L, K), what is probable at a position only because the text may be
    shifted there.

    In CTC a character too few moves the next one to a position, and one too many moves the one
    before there. Both go on to the end of the text, so the position after it tells how probable the
    shift is: if a neighbour is not much more probable than that, it is no substitute.
    probabilities: 1 where a class is not allowed, since it then tells nothing.
    ids: (B, L), the end class after the end of the text.
    """
    end, (batch, length) = rank.shape[-1] - 1, ids.shape
    text = np.full((batch, length + 3), end)
    text[:, 1:-2] = ids
    before, here, following, second = (text[:, first : first + length] for first in range(4))
    for neighbour, moved in ((following, second), (before, here)):
        probability, later = _pick_classes(rank, neighbour), np.ones(ids.shape)
        later[:, :-1] = _pick_classes(probabilities[:, 1:], moved[:, :-1])
        is_shift = probability <= _SHIFT_RATIO * later
        np.put_along_axis(
            rank,
            neighbour[..., None],
            np.where(is_shift, probability * _RANKED_LAST, probability)[..., None],
            -1,
        )
    rank[..., end] = 0


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
    of_read = softmax(np.where(read, columns.astype(np.float64), -np.inf))
    probabilities = _add_cases(of_read, counts_as)[..., classes]
    positions = np.full((len(columns), longest, columns.shape[-1]), _PROBABILITY_FLOOR)
    positions[:, : lengths.longest, classes] = _sum_allowed_alignments(probabilities, lengths)
    positions[:, lengths.longest :, -1] = 1.0
    logits: np.ndarray = np.log(np.maximum(positions, _PROBABILITY_FLOOR))
    return logits


def _add_cases(probabilities: np.ndarray, counts_as: np.ndarray) -> np.ndarray:
    """Return probabilities (…, K) in which those of all classes that count as one are added."""
    ranked = counts_as.argsort(kind="stable")[np.count_nonzero(counts_as < 0) :]
    classes = counts_as[ranked]
    firsts = np.flatnonzero(classes != np.concatenate(([-1], classes[:-1])))
    added = np.zeros_like(probabilities)
    added[..., classes[firsts]] = np.add.reduceat(probabilities[..., ranked], firsts, axis=-1)
    return added


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
    positions /= np.maximum(ended[:, -1], _PROBABILITY_FLOOR)[:, None, None]
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
