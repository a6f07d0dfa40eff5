"""What is drawn: the options of generate, with what their design says."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captcha_ocr.charset import Charset, resolve_alphabet
from captcha_ocr.errors import check, is_int
from captcha_ocr.generation.designs.design import (
    CANVAS,
    design_names,
    parse_design,
    read_document,
)
from captcha_ocr.generation.fonts.survey import ALPHABET
from captcha_ocr.generation.random_designs.random_design import LENGTHS
from captcha_ocr.options.drawing import CLASSIC_WARP, MAX_SIDE, DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.values import MAX_AREA
from captcha_ocr.system.files import sha256

_CLASSIC_DESIGN = "captcha-classic"
_MIN_WIDTH_PER_CHARACTER = 16  # pixels


@dataclass(frozen=True)
class DrawingPlan:
    """What options draw. It can be sent to another process, which a design cannot.

    charset, lengths: the characters and the numbers of characters that texts may have.
    width, height: of all images, in pixels; 0 where images differ.
    document: the design as JSON, with the options filled in; empty if there are several designs.
    digest: the SHA-256 of a file with a design in each line; else empty.
    """

    options: DrawingOptions
    charset: str
    lengths: Lengths
    width: int = 0
    height: int = 0
    document: str = ""
    digest: str = ""

    @property
    def numbers(self) -> range:
        """The numbers of the images."""
        return range(self.options.start, self.options.start + self.options.count)

    @property
    def kind(self) -> str:
        """What the images are like, in words."""
        if not self.document:
            return "random designs" if self.options.level else f"{self.options.design} designs"
        size = f"{self.width}x{self.height}"
        if not self.height:
            size = f"{self.width} wide" if self.width else "any size"
        elif not self.width:
            size = f"{self.height} high"
        return f"{self.lengths} characters, {size}"


def plan_drawing(options: DrawingOptions) -> DrawingPlan:
    """Read the design that options name, and return what they draw.

    UsageError for a design that is missing or malformed, and for options that do not fit it.
    """
    charset, digest = None, ""
    if options.charset is not None:
        charset = Charset(resolve_alphabet(options.charset)).characters
        check(" " not in charset, "`charset` has a space, which generate cannot draw")
    if options.level is None and not options.is_saved:
        return _plan_one_design(options, charset)
    if options.is_saved:
        check(Path(options.design).is_file(), f"{options.design} is not a file")
        digest = sha256(Path(options.design).read_bytes())
    lengths = options.lengths or Lengths(min(LENGTHS), max(LENGTHS))
    return DrawingPlan(options, charset or ALPHABET, lengths, digest=digest)


def _plan_one_design(options: DrawingOptions, charset: str | None) -> DrawingPlan:
    name = _CLASSIC_DESIGN if options.design == CLASSIC_WARP else options.design
    design = parse_design(read_document(name), name)
    canvas = {name: kind.default for name, kind in CANVAS.items()}
    canvas |= design.document.get("canvas", {})
    lengths = None if options.lengths is None else str(options.lengths)
    size = {"one_of": list(options.font_sizes)} if options.font_sizes else None
    changes = {
        "canvas.width": _choose_width(options, design.texts.lengths, canvas["width"]),
        "canvas.height": options.height or canvas["height"],
        "text.charset": charset,
        "text.often": options.often,
        "text.length": lengths,
        "text.size": size,
        "fonts.faces": [] if options.fonts and name in design_names() else None,
    }
    changes = {place: value for place, value in changes.items() if value is not None}
    design = design.with_fields(changes)
    width, height = map(_fixed_pixels, (changes["canvas.width"], changes["canvas.height"]))
    place = "`size`" if options.width and options.height else f"{name}: canvas"
    check(
        width * height <= MAX_AREA,
        f"{place}: {width}x{height} is more than {MAX_AREA:,} pixels",
    )
    document = json.dumps(design.document, sort_keys=True, ensure_ascii=False)
    return DrawingPlan(options, design.texts.charset, design.texts.lengths, width, height, document)


def _fixed_pixels(side: Any) -> int:
    """Return a side of the canvas, or 0 if it is a range, a choice or that of the text."""
    return side if is_int(side, 1, MAX_AREA) else 0


def _choose_width(options: DrawingOptions, of_design: Lengths, width: Any) -> Any:
    """Return the width in the options, or the design's, which grows with the length of texts."""
    lengths = options.lengths or of_design
    if options.width:
        least = _MIN_WIDTH_PER_CHARACTER * lengths.longest
        check(
            options.width >= least,
            f"the width in `size` must be {least} pixels or more, not {options.width}",
        )
        return options.width
    if is_int(width, 1, MAX_AREA):
        width = max(width, round(width * lengths.longest / of_design.longest))
        check(
            width <= MAX_SIDE,
            f"`lengths` {lengths} makes images {width:,} pixels wide; give a width with `size`,"
            " too",
        )
    return width
