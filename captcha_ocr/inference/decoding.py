"""Turn logits into texts and confidences, and restrict the characters and lengths that are read."""

from dataclasses import dataclass, field

import numpy as np

from captcha_ocr.charset import characters_of
from captcha_ocr.config import Lengths, ModelConfig
from captcha_ocr.errors import UsageError


@dataclass(frozen=True)
class Character:
    """A character of a reading, and the second most probable one at its position (empty: the end of the text).

    Both confidences are probabilities from 0 to 1.
    """

    character: str
    confidence: float
    runner_up: str
    runner_up_confidence: float


@dataclass(frozen=True)
class Reading:
    """The text of one image, and the confidence in it.

    confidence: the probability from 0 to 1 that all of the text is correct: the product of its characters' confidences
    and, if lengths vary and the text is not one of the longest, that of its end.
    elapsed_s: the time it took in seconds; images of one batch share the batch's time equally.
    """

    text: str
    confidence: float
    characters: tuple[Character, ...] = ()
    elapsed_s: float = field(default=0.0, compare=False)


def allowed_classes(config: ModelConfig, charset: str | None = None, lengths: Lengths | None = None) -> np.ndarray:
    """Return which classes are allowed at which position, (L, K) bool, for an alphabet and a range of lengths.

    charset: characters, or the name of an alphabet. UsageError for characters or lengths that the model cannot read.
    """
    lengths = config.lengths if lengths is None else lengths
    if lengths.shortest not in config.lengths or lengths.longest not in config.lengths:
        raise UsageError(f"this model reads texts of {config.lengths} characters, not of {lengths}")
    characters = config.charset.characters if charset is None else characters_of(charset)
    unknown = config.charset.unknown_characters(characters)
    if unknown or not characters:
        raise UsageError(f"this model does not read {unknown!r}; it reads {config.charset.characters}")
    allowed = np.zeros((config.lengths.longest, config.classes), dtype=bool)
    allowed[: lengths.longest, config.charset.encode([characters])[0]] = True
    if config.lengths.vary:
        allowed[lengths.shortest :, len(config.charset)] = True  # no character
    return allowed


def read_logits(logits: np.ndarray, config: ModelConfig, allowed: np.ndarray) -> list[Reading]:
    """Return the readings of logits, (B, L, K) float32, among the allowed classes, (L, K) bool.

    A text ends at its first position without a character.
    """
    logits = np.where(allowed, logits.astype(np.float64), -np.inf)
    logits -= logits.max(-1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(-1, keepdims=True)
    ids, confidences = take_most_probable(probabilities)
    runner_ids, runner_confidences = take_most_probable(probabilities)
    is_end = ids == len(config.charset)
    after_end = is_end.cumsum(1) > is_end
    text_confidences = np.where(after_end, 1.0, confidences).prod(-1).tolist()
    names = np.array([*config.class_names, ""])
    runners_up = names[np.where(runner_confidences > 0, runner_ids, -1)].tolist()
    readings = []
    for text, confidence, *positions in zip(
        config.charset.decode(ids),
        text_confidences,
        confidences.tolist(),
        runners_up,
        runner_confidences.tolist(),
        strict=True,
    ):
        characters = tuple(map(Character, text, *positions))  # `map` ends with the text, before the other positions
        readings.append(Reading(text, confidence, characters))
    return readings


def take_most_probable(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable class at each position of (B, L, K) and its probability, both (B, L); set that to 0."""
    ids = probabilities.argmax(-1)
    maxima = np.take_along_axis(probabilities, ids[..., None], -1)[..., 0]
    np.put_along_axis(probabilities, ids[..., None], 0, -1)
    return ids, maxima
