"""The options of generate."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from captcha_ocr.charset import Charset, resolve_alphabet
from captcha_ocr.config import MAX_AREA, Lengths, check_seed
from captcha_ocr.errors import check, is_int
from captcha_ocr.system.files import sha256

if (
    TYPE_CHECKING
):  # numpy, on which the operators of designs stand, takes 0.2 s that `captcha-ocr --help` saves
    from captcha_ocr.generation.design import Design
    from captcha_ocr.generation.random_design import Level

Warp = Literal["package", "classic"]
Renderer = Literal["fast", "package"]

DEFAULT_DESIGN, CLASSIC_DESIGN = "captcha", "captcha-classic"
RANDOM = "random"
MIN_WIDTH_PER_CHARACTER = 16  # pixels
MAX_DESIGNS = 10**6


@dataclass(frozen=True)
class GeneratorConfig:
    """The options of generate. Image `i` depends on `i` and on all of them but `count` and `start`.

    design: the name of a design, a TOML file with one, a file with one in each line, as --save-designs writes it, or
    `random`, `random:easy`, `random:medium`, `random:hard`. designs: how many random ones to draw and to use again and
    again; None draws one for each image.
    lengths, charset, often, width, height, font_sizes: None, 0 and () leave it to the design. A width left to it grows
    with `lengths`. often: the characters that come more often than others.
    fonts: files, or folders that are searched. They replace the fonts of a named design; elsewhere they are the fonts
    to choose from. Without any there are those of the installed Python packages.
    warp: of the design captcha: `package` is that of the captcha package, `classic` that of its versions before 0.7.1.
    renderer: `fast` is ours, `package` that of the captcha package, for the design captcha.
    document: the design as JSON, with the other options filled in; empty if there are several designs.
    digest: the SHA-256 of a file with a design in each line; else empty.
    """

    count: int = 50_000
    start: int = 0
    design: str = DEFAULT_DESIGN
    designs: int | None = None
    lengths: Lengths | None = None
    charset: str | None = None
    often: str | None = None
    width: int = 0
    height: int = 0
    fonts: tuple[str, ...] = ()
    font_sizes: tuple[int, ...] = ()
    warp: Warp = "package"
    renderer: Renderer = "fast"
    seed: int = 0
    document: str = field(init=False, default="")
    digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        from captcha_ocr.generation.design import MAX_SIDE, MIN_SIDE

        check(is_int(self.count, 1, 10**9), f"--count must be 1 to 1,000,000,000, not {self.count}")
        check(
            is_int(self.start, 0, 10**12),
            f"--start must be 0 to 1,000,000,000,000, not {self.start}",
        )
        check(self.warp in get_args(Warp), f"unknown warp {self.warp!r}")
        check(self.renderer in get_args(Renderer), f"unknown renderer {self.renderer!r}")
        check_seed(self.seed)
        is_default = self.design == DEFAULT_DESIGN
        check(
            is_default or self.warp == "package",
            f"--warp is for the design {DEFAULT_DESIGN}, not for {self.design}",
        )
        check(
            is_default or self.renderer == "fast",
            f"--renderer package draws {DEFAULT_DESIGN}, not {self.design}",
        )
        for side, low in (
            (self.width, 1),
            (self.height, MIN_SIDE),
        ):  # a width has another limit, below
            fine = side == 0 or is_int(side, low, MAX_SIDE)
            check(fine, f"--size: a side must be {MIN_SIDE} to {MAX_SIDE} pixels, not {side}")
        check(
            all(is_int(size, 4, 512) for size in self.font_sizes),
            "--font-sizes must be 4 to 512, such as 42,50",
        )
        if self.charset is not None:
            object.__setattr__(self, "charset", Charset(resolve_alphabet(self.charset)).characters)
            check(" " not in str(self.charset), "--charset has a space, which generate cannot draw")
        if self.level is not None:
            self.check_random()
        elif self.is_saved:
            self.check_saved()
        else:
            check(self.designs is None, f"--designs is for random designs, not for {self.design}")
            self.fill_in()

    @property
    def level(self) -> "Level | None":
        """How hard the random designs are; None if they are not random."""
        from captcha_ocr.generation.random_design import LEVELS

        name, _, level = self.design.partition(":")
        level = level or "mixed"
        if name != RANDOM:
            return None
        check(
            level in LEVELS,
            f"--design {self.design} is unknown; there are {RANDOM} and {RANDOM}:{'|'.join(LEVELS[1:])}",
        )
        return level  # type: ignore[return-value]

    @property
    def is_saved(self) -> bool:
        """Whether the design is a file with a design in each line."""
        return self.design.endswith(".jsonl")

    def check_random(self) -> None:
        """Check the options of random designs, and name what their texts may have."""
        for option, value in (
            ("--size", self.width or self.height),
            ("--font-sizes", self.font_sizes),
        ):
            check(not value, f"{option} is not for random designs, which have sizes of their own")
        check(
            not self.often, "--often is not for random designs, which have characters of their own"
        )
        fine = self.designs is None or is_int(self.designs, 1, MAX_DESIGNS)
        check(fine, f"--designs must be 1 to {MAX_DESIGNS:,}, not {self.designs}")

    def check_saved(self) -> None:
        """Refuse options that would change saved designs."""
        given: dict[str, Any] = {
            "--length": self.lengths,
            "--charset": self.charset,
            "--size": self.width or self.height,
        }
        given |= {"--often": self.often, "--font-sizes": self.font_sizes, "--designs": self.designs}
        for option, value in given.items():
            check(not value, f"{option} cannot be used with {self.design}, whose designs say it")
        check(Path(self.design).is_file(), f"{self.design} is not a file")
        object.__setattr__(self, "digest", sha256(Path(self.design).read_bytes()))

    @property
    def parsed(self) -> "Design | None":
        """The design; None if there are several. It is not kept, since a design cannot be sent to another process."""
        from captcha_ocr.generation.design import parse_design

        return parse_design(json.loads(self.document), self.design) if self.document else None

    def fill_in(self) -> None:
        """Put the options into the document of the design, and take from it what they leave open."""
        from captcha_ocr.generation.design import parse_design, read_document

        name = CLASSIC_DESIGN if self.warp == "classic" else self.design
        place = "--size" if self.width and self.height else f"{name}: canvas"
        own = parse_design(read_document(name), name)
        document = with_options(own, self)
        design = parse_design(document, name)
        object.__setattr__(
            self, "document", json.dumps(document, sort_keys=True, ensure_ascii=False)
        )
        object.__setattr__(self, "charset", design.charset)
        object.__setattr__(self, "lengths", design.lengths)
        for side in ("width", "height"):
            pixels = document.get("canvas", {}).get(side, 0)
            object.__setattr__(self, side, pixels if is_int(pixels, 1, MAX_AREA) else 0)
        if self.width and self.height:
            size = f"{self.width}x{self.height}"
            check(
                self.width * self.height <= MAX_AREA,
                f"{place}: {size} is more than {MAX_AREA:,} pixels",
            )

    @property
    def text_kind(self) -> tuple[str, Lengths]:
        """The characters and the numbers of characters that texts may have."""
        from captcha_ocr.generation.fonts import ALPHABET
        from captcha_ocr.generation.random_design import LENGTHS

        if self.charset is not None and self.lengths is not None:
            return self.charset, self.lengths
        return self.charset or ALPHABET, self.lengths or Lengths(min(LENGTHS), max(LENGTHS))

    @property
    def kind(self) -> str:
        """What the images are like, in words."""
        if not self.document:
            return f"{self.design if self.level is None else 'random'} designs"
        sides = [f"{self.width} wide"] * (self.width > 0) + [f"{self.height} high"] * (
            self.height > 0
        )
        size = f"{self.width}x{self.height}" if len(sides) == 2 else "".join(sides) or "any size"
        return f"{self.lengths} characters, {size}"


def with_options(own: "Design", config: GeneratorConfig) -> dict[str, Any]:
    """Return the document of a design with the options filled in."""
    from captcha_ocr.generation.design import CANVAS, MAX_SIDE, design_names

    document = {
        key: dict(value) if isinstance(value, dict) else value
        for key, value in own.document.items()
    }
    canvas, text, fonts = (
        document.setdefault(section, {}) for section in ("canvas", "text", "fonts")
    )
    for side in ("width", "height"):
        canvas.setdefault(side, CANVAS[side].default)
    if config.charset is not None:
        text["charset"] = config.charset
    if config.often is not None:
        text["often"] = config.often
    if config.lengths is not None:
        text["length"] = str(config.lengths)
        if is_int(canvas.get("width"), 1, MAX_AREA):
            width = max(
                canvas["width"],
                round(canvas["width"] * config.lengths.longest / own.lengths.longest),
            )
            fine = config.width > 0 or width <= MAX_SIDE
            check(
                fine,
                f"--length {config.lengths} makes images {width:,} pixels wide; give a width with --size, too",
            )
            canvas["width"] = width
    if config.width:
        canvas["width"] = config.width
        least = MIN_WIDTH_PER_CHARACTER * (config.lengths or own.lengths).longest
        check(
            config.width >= least,
            f"the width in --size must be {least} pixels or more, not {config.width}",
        )
    if config.height:
        canvas["height"] = config.height
    if config.font_sizes:
        text["size"] = {"one_of": list(config.font_sizes)}
    if config.fonts and config.design in design_names():
        fonts["faces"] = []
    return document
