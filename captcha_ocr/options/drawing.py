"""The options of generate.

They check themselves alone; `plan_drawing` reads the design that they name.
"""

from dataclasses import dataclass
from typing import Literal, cast, get_args

from captcha_ocr.errors import check, is_int
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import (
    charset_option,
    fonts_option,
    lengths_option,
    parse_numbers,
    seed_option,
)

Renderer = Literal["fast", "package"]
Level = Literal["mixed", "easy", "medium", "hard", "named"]
LEVELS: tuple[Level, ...] = get_args(Level)
OFTEN = 10  # times as often as others come the characters of --often
RANDOM = "random"
DEFAULT_DESIGN, CLASSIC_DESIGN = "captcha", "captcha-classic"
# Another name of the design captcha-classic: it says that the captcha package can draw it, too.
CLASSIC_WARP = "captcha:classic"
# The designs that both renderers draw, with the warp that generator.json states.
WARPS = {DEFAULT_DESIGN: "package", CLASSIC_WARP: "classic"}
MIN_SIDE, MAX_SIDE = 16, 4096  # pixels
_MAX_DESIGNS = 10**6


@dataclass(frozen=True, eq=False, repr=False)
class DrawingOptions(Options):
    """The options of generate. Image `i` depends on `i` and on all of them but `count` and `start`.

    design: the name of a design, a TOML file with one, a file with one in each line, as generate
    saves random ones, or `random` with a level or without: `random:easy`, `random:medium`,
    `random:hard`, and `random:named`, which draws near the named designs.
    random_designs: how many to draw and to use again; None draws one for each image.
    lengths, charset, often, width, height, font_sizes: None, 0 and () leave it to the design. A
    width left to it grows with `lengths`. often: the characters that come more often than others.
    fonts: files, or folders that are searched. They replace the fonts of a named design; elsewhere
    they are the fonts to choose from. Without any there are those of the installed packages.
    renderer: `fast` is ours, `package` that of the captcha package, for its own design.
    """

    count: int = option(50_000, "Number of images.", at_least=1, at_most=10**9)
    start: int = option(
        0, "Number of the first image, to share work over machines.", at_least=0, at_most=10**12
    )
    design: str = option(
        DEFAULT_DESIGN,
        "The look: see docs/designs.md; LEVEL is easy, medium, hard or named.",
        metavar="NAME|FILE|random[:LEVEL]",
    )
    random_designs: int | None = option(
        None,
        "Draw so many random designs and reuse them.",
        flag="--designs",
        shown="one an image",
        at_least=1,
        at_most=_MAX_DESIGNS,
    )
    lengths: Lengths | None = lengths_option(
        "Characters per text, or their minimum and maximum.", shown="the design's"
    )
    charset: str | None = charset_option(shown="the design's")
    often: str | None = option(
        None,
        f"Characters that come {OFTEN} times as often as others, such as 0O.",
        metavar="CHARACTERS",
    )
    width: int = option(0)
    height: int = option(0)
    fonts: tuple[str, ...] = fonts_option()
    font_sizes: tuple[int, ...] = option(
        (),
        "Font sizes to choose from.",
        metavar="N,N,…",
        shown="the design's",
        parse=parse_numbers(","),
    )
    renderer: Renderer = option(
        "fast", "Code that draws the design captcha: ours, or that of the captcha package."
    )
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            self.renderer == "fast" or self.design in WARPS,
            f"`renderer` package draws {DEFAULT_DESIGN}, not {self.design}",
        )
        # The least width depends on the lengths, which the design may say.
        for side, low in ((self.width, 1), (self.height, MIN_SIDE)):
            check(
                side == 0 or is_int(side, low, MAX_SIDE),
                f"`size`: a side must be {MIN_SIDE} to {MAX_SIDE} pixels, not {side}",
            )
        check(
            all(is_int(size, 4, 512) for size in self.font_sizes),
            "`font_sizes` must be 4 to 512, such as 42,50",
        )
        values = {
            "lengths": self.lengths,
            "charset": self.charset,
            "size": self.width or self.height,
            "often": self.often,
            "font_sizes": self.font_sizes,
            "random_designs": self.random_designs,
        }
        refused = {"random_designs": f"is for random designs, not for {self.design}"}
        if self.level is not None:
            kinds = {"size": "sizes", "font_sizes": "sizes", "often": "characters"}
            why = "is not for random designs, which have {} of their own"
            refused = {name: why.format(kind) for name, kind in kinds.items()}
        elif self.is_saved:
            refused = dict.fromkeys(
                values, f"cannot be used with {self.design}, whose designs say it"
            )
        for name, reason in refused.items():
            check(not values[name], f"`{name}` {reason}")

    @property
    def level(self) -> Level | None:
        """How hard the random designs are; None if they are not random."""
        name, _, word = self.design.partition(":")
        if name != RANDOM:
            return None
        known = f"{RANDOM} and {RANDOM}:{'|'.join(LEVELS[1:])}"
        check(not word or word in LEVELS, f"`design` {self.design} is unknown; there are {known}")
        return cast(Level, word or "mixed")

    @property
    def is_saved(self) -> bool:
        """Whether the design is a file with a design in each line."""
        return self.design.endswith(".jsonl")
