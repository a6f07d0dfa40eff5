"""The second model in the package: it reads the images of the `captcha` package, and is asked
beside the general one.

It is sure of foreign images, too, and knows capitals alone. So it answers only where the general
model reads nearly the same, and nothing that it cannot know (docs/decisions.md, The model in the
package).
"""

from captcha_ocr.errors import UsageError
from captcha_ocr.inference.decoding import Reading, allowed_classes
from captcha_ocr.inference.model_folder import PRETRAINED, read_model_config
from captcha_ocr.options.model import Lengths

CAPTCHA_PACKAGE_MODEL = PRETRAINED.with_name("pretrained_captcha")
# Of the models in the package, in Reading.model
MODEL_NAMES = {PRETRAINED: "general", CAPTCHA_PACKAGE_MODEL: "captcha"}
CERTAIN = 0.97  # confidence of the general model from which this one never knew better
ALIKE_IN_BOTH_CASES = "cosvwxz"
_SURE_LETTER = 0.6  # confidence from which a lower-case letter is one


def is_asked(charset: str | None, lengths: Lengths | None, fold_case: bool) -> bool:
    """Tell whether this model is asked, where the general model was told this.

    It is not if it does not know all these characters and lengths. Nor if case is folded: whether a
    text has lower-case letters is then unknown.
    """
    try:
        allowed_classes(read_model_config(CAPTCHA_PACKAGE_MODEL), charset, lengths)
    except UsageError:
        return False
    return not fold_case


def choose_reading(general: Reading, special: Reading, longest: int) -> Reading:
    """Return this model's reading of an image if it is surer and nearly the same, else the general.

    longest: the longest text that this model knows. It does not know lower-case letters either.
    """
    has_lower_case = any(
        letter.character.islower()
        and letter.character not in ALIKE_IN_BOTH_CASES
        and letter.confidence >= _SURE_LETTER
        for letter in general.characters
    )
    max_edits = 2 if len(general.text) < longest else 1
    is_better = (
        special.confidence > general.confidence
        and not has_lower_case
        and len(general.text) <= longest
        and count_edits(general.text, special.text) <= max_edits
    )
    return special if is_better else general


def count_edits(one: str, other: str) -> int:
    """Return how many characters to insert, delete or replace between two texts, case folded
    (Levenshtein 1966).
    """
    one, other = one.casefold(), other.casefold()
    row = list(range(len(other) + 1))
    for number, character in enumerate(one, 1):
        above, row = row, [number]
        for place, letter in enumerate(other):
            row.append(min(above[place + 1] + 1, row[-1] + 1, above[place] + (character != letter)))
    return row[-1]
