"""The second network of the model in the package: it knows images of the `captcha` package, and is
asked beside the general one.

It takes O for 0 in one image of two hundred, the general one in one of fifty. But it is sure of
foreign images, too, and knows capitals and digits alone. So it is asked for images of nearly its
size, and answers only where the general network reads nearly the same, in capitals and digits
(docs/decisions.md, The model in the package). It is there for onnxruntime alone, which keeps the
package small.
"""

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.errors import UsageError
from captcha_ocr.inference.decoding import Reading, allowed_classes
from captcha_ocr.inference.model_folder import PRETRAINED, read_model_config
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths

CAPTCHA_PACKAGE_MODEL = PRETRAINED.with_name("pretrained_captcha")
CERTAIN = 0.97  # confidence of the general network from which this one never knew better
_KNOWN = set(NAMED_ALPHABETS["upper-alnum"])
_NEARLY = 0.07  # of a side: larger or smaller letters are unlike those that it learnt


def is_asked(charset: str | None, lengths: Lengths | None, fold_case: bool) -> bool:
    """Tell whether this network is asked, where the general one was told this.

    It is not if it does not know all these characters and lengths. Nor if case is folded: whether a
    text has lower-case letters is then unknown.
    """
    try:
        allowed_classes(read_model_config(CAPTCHA_PACKAGE_MODEL), charset, lengths)
    except UsageError:
        return False
    return not fold_case


def is_alike(size: tuple[int, int], known: InputSize) -> bool:
    """Tell whether an image of this width and height has nearly the size that is known."""
    width, height = size[0] / known.width, size[1] / known.height
    return abs(width - 1) <= _NEARLY and abs(height - 1) <= _NEARLY


def choose_reading(general: Reading, special: Reading, longest: int) -> Reading:
    """Return this network's reading of an image if it is surer and nearly the same, else the
    general one.

    longest: the longest text that this network knows.
    """
    max_edits = 2 if len(general.text) < longest else 1
    is_better = (
        special.confidence > general.confidence
        and _KNOWN.issuperset(general.text)
        and len(general.text) <= longest
        and count_edits(general.text, special.text) <= max_edits
    )
    return special if is_better else general


def count_edits(one: str, other: str) -> int:
    """Return how many characters to insert, delete or replace between two texts (Levenshtein
    1966).
    """
    row = list(range(len(other) + 1))
    for number, character in enumerate(one, 1):
        above, row = row, [number]
        for place, letter in enumerate(other):
            row.append(min(above[place + 1] + 1, row[-1] + 1, above[place] + (character != letter)))
    return row[-1]
