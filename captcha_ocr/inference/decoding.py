"""Turn logits into texts and confidences, and restrict the characters and lengths that are read."""

from dataclasses import dataclass, field

import numpy as np

from captcha_ocr.charset import resolve_alphabet, split_characters, visual_order
from captcha_ocr.errors import check
from captcha_ocr.inference.columns import (
    PROBABILITY_FLOOR,
    compute_positions,
    make_merging_matrix,
    softmax,
)
from captcha_ocr.options.model import Lengths, ModelConfig

_SHIFT_RATIO = 4.0  # how much more probable than a shift a neighbour must be to be a substitute
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
    model: which of the two models in the package read it, general or captcha; empty for any other
    model.
    """

    text: str
    confidence: float
    characters: tuple[Character, ...] = ()
    elapsed_s: float = field(default=0.0, compare=False)
    model: str = ""

    def __repr__(self) -> str:
        return f"<Reading {self.text!r}, confidence {self.confidence:.4f}>"


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
            f"this model does not read {unknown!r}; it reads {config.charset}",
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

    def fits(self, logits: np.ndarray, images: int) -> bool:
        """Tell whether these may be the logits of so many images."""
        shape = (images, *self.allowed.shape)
        if self.config.reads_columns:
            shape = (images, *logits.shape[1:2], self.config.classes)
        is_right = logits.shape == shape and logits.dtype == np.float32
        return is_right and bool(np.isfinite(logits).all())

    def read(self, logits: np.ndarray) -> list[Reading]:
        """Return the readings of logits, (B, L, K) float32, of columns (B, columns, K) if the model
        reads columns.

        A text ends at its first position without a character.
        """
        if self.config.reads_columns:
            logits = compute_positions(
                logits, self.counts_as, self.lengths, self.config.lengths.longest
            )
        elif self.fold_case:
            merged = softmax(logits.astype(np.float64)) @ make_merging_matrix(self.counts_as)
            logits = np.log(np.maximum(merged, PROBABILITY_FLOOR))
        probabilities = softmax(np.where(self.allowed, logits.astype(np.float64), -np.inf))
        ids = probabilities.argmax(-1)
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
