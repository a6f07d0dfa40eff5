"""Draw captcha number i of a plan: its design, its text, again and again until it can be read."""

import json
import random
from functools import lru_cache
from typing import NamedTuple

from PIL import Image

from captcha_ocr.charset import in_visual_order
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.designs.design import Design, parse_design, read_saved
from captcha_ocr.generation.fonts.catalogue import (
    Face,
    choose_faces,
    faces_of_saved,
    index_by_name,
)
from captcha_ocr.generation.plan import DrawingPlan
from captcha_ocr.generation.random_designs.random_design import draw_design
from captcha_ocr.generation.rendering.package_renderer import PackageRenderer
from captcha_ocr.generation.rendering.renderer import draw
from captcha_ocr.system.memory import keep_freed_memory

TRIES = 10  # to draw an image that can be read
_KEPT_DESIGNS = 1024


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
        if self._options.renderer == "package":
            self._package = PackageRenderer(
                name,
                (plan.width, plan.height),
                [face.path for face in self.faces],
                self._options.font_sizes,
            )
        # Not a cache of the class, which would keep every drawer.
        kept = min(self._options.designs or 1, _KEPT_DESIGNS)
        self._random_design = lru_cache(kept)(self._find_random_design)

    def draw(self, index: int) -> Drawn:
        """Draw image number `index`."""
        if self._options.level is None:
            return self._try_to_draw(self._design or self._parse_saved(index), index, TRIES)
        number = index % self._options.designs if self._options.designs else index
        design, first = self._random_design(number)
        return first if index == number else self._try_to_draw(design, index, TRIES)

    def random_document(self, number: int) -> str:
        """Return random design number `number` as JSON, with its number and its fonts' hashes."""
        design, _ = self._random_design(number)
        digests = [self._face_named[name].sha256 for name in design.faces]
        fonts = design.document["fonts"] | {"sha256": digests}
        return json.dumps(design.document | {"number": number, "fonts": fonts}, sort_keys=True)

    def _try_to_draw(self, design: Design, index: int, tries: int) -> Drawn:
        faces = [self._face_named[name] for name in design.faces] or self.faces
        paths = [face.path for face in faces]
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
        families: dict[str, list[Face]] = {}
        for face in self.faces:
            families.setdefault(face.family, []).append(face)
        charset = None if options.charset is None else self._plan.charset
        for attempt in range(TRIES):
            rng = random.Random(f"captcha-ocr {options.seed} design {number} {attempt}")
            document = draw_design(
                rng, list(families.values()), options.level or "mixed", charset, options.lengths
            )
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
