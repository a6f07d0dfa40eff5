"""Logits to texts: which class may stand where, what is read, and how sure that is."""

from dataclasses import dataclass, field

import numpy as np

from captcha_ocr.charset import characters_of
from captcha_ocr.config import Lengths, ModelConfig
from captcha_ocr.errors import UsageError


@dataclass(frozen=True)
class Character:
    """A character that was read, and the one that is next likeliest in its place (empty: the text has ended there).

    Both confidences are 0 to 1.
    """

    character: str
    confidence: float
    runner_up: str
    runner_up_confidence: float


@dataclass(frozen=True)
class Reading:
    """What was read from one image.

    confidence: how sure the network is of all of the code, 0 to 1: the product of its characters' and, where lengths
    vary and the code is not the longest, of its end. elapsed_s: the seconds that it took, its share of a batch.
    """

    text: str
    confidence: float
    characters: tuple[Character, ...] = ()
    elapsed_s: float = field(default=0.0, compare=False)


def allowed_classes(config: ModelConfig, charset: str | None = None, lengths: Lengths | None = None) -> np.ndarray:
    """Which class may stand in which place, (L, K) bool, reading being narrowed to an alphabet and to some lengths.

    charset: characters, or the name of an alphabet. UsageError for what the model does not read.
    """
    lengths = config.lengths if lengths is None else lengths
    if lengths.shortest not in config.lengths or lengths.longest not in config.lengths:
        raise UsageError(f"this model reads texts of {config.lengths} characters, not of {lengths}")
    wanted = config.charset.characters if charset is None else characters_of(charset)
    unknown = config.charset.unknown_characters(wanted)
    if unknown or not wanted:
        raise UsageError(f"this model does not read {unknown!r}; it knows {config.charset.characters}")
    allowed = np.zeros((config.lengths.longest, config.classes), dtype=bool)
    allowed[: lengths.longest, config.charset.encode([wanted])[0]] = True
    if config.lengths.vary:
        allowed[lengths.shortest :, len(config.charset)] = True  # nothing
    return allowed


def read_logits(logits: np.ndarray, config: ModelConfig, allowed: np.ndarray) -> list[Reading]:
    """What (B, L, K) float32 logits say, among the classes allowed (L, K); a text ends at its first nothing."""
    logits = np.where(allowed, logits.astype(np.float64), -np.inf)
    logits -= logits.max(-1, keepdims=True)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(-1, keepdims=True)
    ids, sure = take_likeliest(probabilities)
    runner_ids, runner_sure = take_likeliest(probabilities)
    nothing = ids == len(config.charset)
    after = nothing.cumsum(1) > nothing  # beyond the nothing that ends the text
    confidences = np.where(after, 1.0, sure).prod(-1).tolist()
    names = np.array([*config.class_names, ""])
    runners_up = names[np.where(runner_sure > 0, runner_ids, -1)].tolist()
    readings = []
    for code, *rows in zip(
        config.charset.decode(ids), confidences, sure.tolist(), runners_up, runner_sure.tolist(), strict=True
    ):
        confidence, *places = rows
        characters = tuple(map(Character, code, *places))  # which ends with the code, the places go on
        readings.append(Reading(code, confidence, characters))
    return readings


def take_likeliest(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest class in every place of (B, L, K), and its probability, both (B, L); it is set to 0 there."""
    ids = probabilities.argmax(-1)
    likeliest = np.take_along_axis(probabilities, ids[..., None], -1)[..., 0]
    np.put_along_axis(probabilities, ids[..., None], 0, -1)
    return ids, likeliest
