"""Plan what is drawn, the options with their design, and draw captcha number i of a plan.

A drawer draws its design and its text, again and again until it can be read.
"""

import json
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from captcha_ocr.charset import Charset, in_visual_order, resolve_alphabet
from captcha_ocr.errors import UsageError, check, is_int
from captcha_ocr.generation.designs.design import (
    CANVAS,
    Design,
    design_names,
    find_texts,
    parse_design,
    read_document,
    read_saved,
)
from captcha_ocr.generation.fonts.catalogue import (
    Face,
    choose_faces,
    faces_of_saved,
    index_by_name,
)
from captcha_ocr.generation.fonts.survey import ALPHABET
from captcha_ocr.generation.random_designs.neighbour import draw_neighbour
from captcha_ocr.generation.random_designs.random_design import LENGTHS, draw_design
from captcha_ocr.generation.rendering.package_renderer import PackageRenderer
from captcha_ocr.generation.rendering.renderer import draw
from captcha_ocr.options.drawing import CLASSIC_DESIGN, CLASSIC_WARP, MAX_SIDE, DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.shared import MAX_AREA
from captcha_ocr.system.files import sha256
from captcha_ocr.system.memory import keep_freed_memory

_MIN_WIDTH_PER_CHARACTER = 16  # pixels
TRIES = 10  # to draw an image that can be read
_KEPT_DESIGNS = 1024


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
    charset = None
    if options.charset is not None:
        charset = Charset(resolve_alphabet(options.charset)).characters
        check(" " not in charset, "`charset` has a space, which generate cannot draw")
    if options.level is None and not options.is_saved:
        return _plan_one_design(options, charset)
    if options.is_saved:
        check(Path(options.design).is_file(), f"{options.design} is not a file")
        digest = sha256(Path(options.design).read_bytes())
        texts = find_texts(read_saved(options.design), options.design)
        return DrawingPlan(options, *texts, digest=digest)
    lengths = options.lengths or Lengths(min(LENGTHS), max(LENGTHS))
    return DrawingPlan(options, charset or ALPHABET, lengths)


def _plan_one_design(options: DrawingOptions, charset: str | None) -> DrawingPlan:
    name = CLASSIC_DESIGN if options.design == CLASSIC_WARP else options.design
    design, is_ours = parse_design(read_document(name), name), name in design_names()
    canvas = {field: kind.default for field, kind in CANVAS.items()}
    canvas |= design.document.get("canvas", {})
    size = {"one_of": list(options.font_sizes)} if options.font_sizes else None
    changes = {
        "canvas.width": _choose_width(options, design.texts.lengths, canvas["width"]),
        "canvas.height": options.height or canvas["height"],
        "text.charset": charset,
        "text.often": options.often,
        "text.length": options.lengths and str(options.lengths),
        "text.size": size,
        "fonts.faces": [] if design.faces and options.fonts and is_ours else None,
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


class Drawn(NamedTuple):
    """An image and its text.

    redrawn: how many images before it could not be read. illegible: why it cannot either.
    """

    text: str
    image: Image.Image
    redrawn: int = 0
    illegible: str | None = None


class Drawer:
    """Draw the images of a plan."""

    def __init__(self, plan: DrawingPlan) -> None:
        keep_freed_memory()
        self._plan, self._options = plan, plan.options
        document, name = plan.document, plan.options.design
        self._design = parse_design(json.loads(document), name) if document else None
        if self._options.is_saved:
            self._saved = read_saved(name)
            self.faces = faces_of_saved(self._saved, name, self._options.fonts)
        else:
            self.faces = choose_faces(self._options.fonts, plan.charset, self._design)
        self._face_named = index_by_name(self.faces)
        self._paths = [face.path for face in self.faces]
        families: dict[str, list[Face]] = {}
        for face in self.faces:
            families.setdefault(face.family, []).append(face)
        self._families = list(families.values())
        if self._options.renderer == "package":
            self._package = PackageRenderer(
                name,
                (plan.width, plan.height),
                self._paths,
                self._options.font_sizes,
            )
        # Not a cache of the class, which would keep every drawer.
        kept = min(self._options.random_designs or 1, _KEPT_DESIGNS)
        self._random_design = lru_cache(kept)(self._find_random_design)

    def draw(self, index: int) -> Drawn:
        """Draw image number `index`."""
        if self._options.level is None:
            return self._try_to_draw(self._design or self._parse_saved(index), index, TRIES)
        number = index % self._options.random_designs if self._options.random_designs else index
        design, first = self._random_design(number)
        return first if index == number else self._try_to_draw(design, index, TRIES)

    def random_document(self, number: int) -> str:
        """Return random design number `number` as JSON, with its number and its fonts' hashes."""
        design, _ = self._random_design(number)
        digests = [self._face_named[name].sha256 for name in design.faces]
        fonts = design.document["fonts"] | {"sha256": digests}
        return json.dumps(design.document | {"number": number, "fonts": fonts}, sort_keys=True)

    def _try_to_draw(self, design: Design, index: int, tries: int) -> Drawn:
        paths = [self._face_named[name].path for name in design.faces] or self._paths
        for number in range(tries):
            seed = f"captcha-ocr {self._options.seed} {index}"
            rng = random.Random(f"{seed} {number}" if number else seed)
            text = design.texts.write(rng)
            characters = in_visual_order(text)
            if self._options.renderer == "package":
                return Drawn(text, self._package.draw(characters, rng))
            try:
                pixels, illegible = draw(design, paths, characters, rng)
            except UsageError as error:
                raise UsageError(f"{self._options.design}: {error}") from None
            if illegible is None:
                break
        return Drawn(text, Image.fromarray(pixels), number, illegible)

    def _find_random_design(self, number: int) -> tuple[Design, Drawn]:
        """Draw random designs until one gives an image that can be read; return both."""
        options = self._options
        charset = options.charset and self._plan.charset
        for attempt in range(TRIES):
            rng = random.Random(f"captcha-ocr {options.seed} design {number} {attempt}")
            if options.level == "named":
                document = draw_neighbour(rng, self._families, charset, options.lengths)
            else:
                level = options.level or "mixed"
                document = draw_design(rng, self._families, level, charset, options.lengths)
            design = parse_design(document, options.design)
            drawn = self._try_to_draw(design, number, 1)
            if drawn.illegible is None:
                break
        return design, drawn._replace(redrawn=attempt)

    def _parse_saved(self, index: int) -> Design:
        """Return the saved design of an image: they take turns."""
        line = (index - self._saved[0].get("number", 0)) % len(self._saved)
        return parse_design(self._saved[line], f"{self._options.design}, line {line + 1}")


# Takes a plan. A drawer keeps fonts and designs, which take seconds to find.
drawer_of = lru_cache(maxsize=16)(Drawer)
