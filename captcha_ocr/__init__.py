"""captcha-ocr: generate text captchas, train a network on them, and read them.

from captcha_ocr import Recognizer

Recognizer().predict("image.png").text  # with the model in the package
Recognizer("runs/default").predict("image.png").text  # with your own
Recognizer().fitted_to(paths).predict(paths)  # many images of one design

from captcha_ocr import adapt

adapt("my-captchas")  # makes a model of a folder of images, in runs/adapted
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from captcha_ocr.version import __version__

if TYPE_CHECKING:
    from captcha_ocr.experiments.adaptation import Adapted as Adapted
    from captcha_ocr.experiments.adaptation import adapt as adapt
    from captcha_ocr.inference.decoding import Character as Character
    from captcha_ocr.inference.decoding import Reading as Reading
    from captcha_ocr.options.adapting import AdaptOptions as AdaptOptions
    from captcha_ocr.options.shared import ReadingOptions as ReadingOptions
    from captcha_ocr.recognizer import Recognizer as Recognizer

__all__ = [
    "AdaptOptions",
    "Adapted",
    "Character",
    "Reading",
    "ReadingOptions",
    "Recognizer",
    "__version__",
    "adapt",
]
MODULES = {
    "AdaptOptions": "options.adapting",
    "Adapted": "experiments.adaptation",
    "Character": "inference.decoding",
    "Reading": "inference.decoding",
    "ReadingOptions": "options.shared",
    "Recognizer": "recognizer",
    "adapt": "experiments.adaptation",
}


def __getattr__(name: str) -> Any:
    """Import a public class or function when it is first used (PEP 562).

    So importing the package loads nothing.
    """
    if name in MODULES:
        return getattr(import_module(f"captcha_ocr.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
