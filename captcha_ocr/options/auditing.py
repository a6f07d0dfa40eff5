"""The options of audit."""

from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.errors import check
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import MAX_SEED, charset_option, lengths_option, seed_option


@dataclass(frozen=True, eq=False, repr=False)
class AuditOptions(Options):
    """The options of audit: what draws the images, if no folder holds them, and how to measure.

    knobs: a TOML file with the levels of what can be changed. people: a folder with a person's
    answers to the same images. out: the page; images and trainings are in a folder beside it.
    """

    design: str | None = option(
        None, "Audit a design: a named one or a TOML file (docs/designs.md)."
    )
    command: str | None = option(
        None,
        "Audit a command that draws: with {text} and {out}, or {list} and {folder}.",
        metavar="'…'",
    )
    call: str | None = option(
        None, "Audit a Python function of a text and a seed that draws.", metavar="MODULE:FUNCTION"
    )
    charset: str | None = charset_option(
        help_text="Characters of the texts. Needed with `command` and `call`."
    )
    lengths: Lengths | None = lengths_option(
        "Characters per text. Needed with `command` and `call`."
    )
    knobs: Path | None = option(
        None,
        "Levels of what can be changed, in [knobs] of a TOML file, the present one first.",
        path="file",
    )
    budget: int = option(60, "Minutes it may take in all.", metavar="MINUTES", at_least=5)
    people: Path | None = option(
        None, "Answers to the same images: the `out` of label `blind`.", path="folder"
    )
    out: Path = option(
        Path("audit.html"),
        "The page. The work is in a folder of that name without .html.",
        path="new file",
    )
    # A training's seed is 1,000 times this one, and the number of its draw.
    seed: int = seed_option(at_most=MAX_SEED // 1000 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.out.suffix == ".html", f"`out` {self.out} must end with .html")
