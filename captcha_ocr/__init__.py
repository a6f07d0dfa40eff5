"""captcha-ocr: generate text captchas, train a network on them, and read them.

from captcha_ocr import Recognizer

Recognizer().predict("image.png").text  # with the model in the package
Recognizer("runs/default").predict("image.png").text  # with your own
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from captcha_ocr.version import __version__

if TYPE_CHECKING:
    from captcha_ocr.inference.decoding import Character as Character
    from captcha_ocr.inference.decoding import Reading as Reading
    from captcha_ocr.recognizer import Recognizer as Recognizer

__all__ = ["Character", "Reading", "Recognizer", "__version__"]
MODULES = {
    "Character": "inference.decoding",
    "Reading": "inference.decoding",
    "Recognizer": "recognizer",
}


def __getattr__(name: str) -> Any:
    """Import a public class when it is first used (PEP 562).

    So importing the package loads nothing.
    """
    if name in MODULES:
        return getattr(import_module(f"captcha_ocr.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
