"""Logits to texts: which class may stand where, what is read, and how sure that is."""

from dataclasses import dataclass

import numpy as np

from captcha_ocr.charset import characters_of
from captcha_ocr.config import Lengths, ModelConfig
from captcha_ocr.errors import UsageError


@dataclass(frozen=True)
class Reading:
    """What was read: the code, and how sure the network is of all of it, 0 to 1."""

    code: str
    confidence: float


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
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    ids, sure = probabilities.argmax(-1), probabilities.max(-1)  # (B, L)
    nothing = ids == len(config.charset)
    after = nothing.cumsum(1) > nothing  # beyond the nothing that ends the text
    confidences = np.where(after, 1.0, sure).prod(-1)
    codes = config.charset.decode(ids)
    return [Reading(code, float(confidence)) for code, confidence in zip(codes, confidences, strict=True)]
