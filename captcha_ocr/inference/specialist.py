"""The second model in the package: it reads the images of the `captcha` package, and is asked beside the general one.

It is sure of foreign images, too, so it answers only where both models read nearly the same: lab notebook, 2026-11-26.
"""

from dataclasses import replace

from captcha_ocr.charset import Charset
from captcha_ocr.config import Lengths, ModelConfig
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.decoding import Decoder, Reading
from captcha_ocr.inference.model_folder import PRETRAINED

SPECIALIST = PRETRAINED.with_name("pretrained_captcha")
MAX_EDITS = 2  # between the texts of both models


def decoder_beside(
    general: Decoder, config: ModelConfig, charset: str | None, lengths: Lengths | None
) -> Decoder | None:
    """Return a decoder for the specialist, of this `config`, that writes letters in the case of the general model's.

    None if it does not know all characters and lengths that the general one was told.
    """
    if general.fold_case and any(name.islower() for name in general.names):
        config = replace(config, charset=Charset(config.charset.characters.lower(), "lower"))
    try:
        return Decoder(config, charset, lengths)
    except UsageError:
        return None


def surer(general: Reading, specialist: Reading) -> Reading:
    """Return the specialist's reading of an image if it is surer than the general one and nearly the same text."""
    is_surer = specialist.confidence > general.confidence
    return specialist if is_surer and edits(general.text, specialist.text) <= MAX_EDITS else general


def edits(one: str, other: str) -> int:
    """Return how many characters to insert, delete or replace between two texts, case folded (Levenshtein 1966)."""
    one, other = one.casefold(), other.casefold()
    row = list(range(len(other) + 1))
    for number, character in enumerate(one, 1):
        above, row = row, [number]
        for place, character_there in enumerate(other):
            row.append(min(above[place + 1] + 1, row[-1] + 1, above[place] + (character != character_there)))
    return row[-1]
