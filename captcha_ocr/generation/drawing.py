"""Draw captcha number i of a configuration: choose its design, write its text, draw it until it can be read."""

import json
import random
from functools import lru_cache
from typing import NamedTuple

from PIL import Image

from captcha_ocr.charset import in_visual_order
from captcha_ocr.errors import UsageError
from captcha_ocr.generation.config import GeneratorConfig
from captcha_ocr.generation.design import Design, parse_design, read_saved
from captcha_ocr.generation.font_choice import choose_faces
from captcha_ocr.generation.fonts import Face, by_name
from captcha_ocr.generation.package_renderer import render_by_package
from captcha_ocr.generation.random_design import draw_design
from captcha_ocr.generation.renderer import draw
from captcha_ocr.system.memory import keep_freed_memory

TRIES = 10  # to draw an image that can be read
KEPT_DESIGNS = 1024


class Drawn(NamedTuple):
    """An image and its text. redrawn: how many images before it could not be read. illegible: why it cannot either."""

    text: str
    image: Image.Image
    redrawn: int = 0
    illegible: str | None = None


class Drawer:
    """Draw the images of a configuration."""

    def __init__(self, config: GeneratorConfig) -> None:
        keep_freed_memory()
        self.config = config
        self.saved = read_saved(config.design) if config.is_saved else []
        self.design = config.parsed
        self.faces = choose_faces(config)
        self.face_named = by_name(self.faces)
        by_family: dict[str, list[Face]] = {}
        for face in self.faces:
            by_family.setdefault(face.family, []).append(face)
        self.families = list(by_family.values())
        # Not a cache of the class, which would keep every drawer.
        kept = KEPT_DESIGNS if config.designs else 1
        self.random_design = lru_cache(kept)(self.find_random_design)
        self.saved_design = lru_cache(KEPT_DESIGNS)(self.parse_saved)

    def draw(self, index: int) -> Drawn:
        """Draw image number `index`."""
        if self.config.level is None:
            return self.try_to_draw(self.design or self.saved_design(index), index, TRIES)
        number = self.number_of(index)
        design, first = self.random_design(number)
        return first if index == number else self.try_to_draw(design, index, TRIES)

    def number_of(self, index: int) -> int:
        """Return the number of the random design of an image."""
        return index % self.config.designs if self.config.designs else index

    def try_to_draw(self, design: Design, index: int, tries: int) -> Drawn:
        """Draw an image again and again until it can be read."""
        paths = self.paths_of(design)
        for number in range(tries):
            rng = random.Random(
                f"captcha-ocr {self.config.seed} {index}" + (f" {number}" if number else "")
            )
            text = design.write_text(rng)
            if self.config.renderer == "package":
                return Drawn(text, render_by_package(self.config, in_visual_order(text), rng))
            try:
                pixels, illegible = draw(design, paths, in_visual_order(text), rng)
            except UsageError as error:
                raise UsageError(f"{self.config.design}: {error}") from None
            if illegible is None:
                break
        return Drawn(text, Image.fromarray(pixels), number, illegible)

    def find_random_design(self, number: int) -> tuple[Design, Drawn]:
        """Draw random designs until one gives an image that can be read; return it and this image."""
        config = self.config
        for attempt in range(TRIES):
            rng = random.Random(f"captcha-ocr {config.seed} design {number} {attempt}")
            document = draw_design(
                rng, self.families, config.level or "mixed", config.charset, config.lengths
            )
            design = parse_design(document, config.design)
            drawn = self.try_to_draw(design, number, 1)
            if drawn.illegible is None:
                break
        return design, drawn._replace(redrawn=attempt)

    def parse_saved(self, index: int) -> Design:
        """Return the saved design of an image: they are used one after the other, again and again."""
        line = (index - self.saved[0].get("number", 0)) % len(self.saved)
        return parse_design(self.saved[line], f"{self.config.design}, line {line + 1}")

    def paths_of(self, design: Design) -> list[str]:
        """Return the files of the fonts that a design chooses from."""
        return (
            [self.face_named[name].path for name in design.faces]
            if design.faces
            else [face.path for face in self.faces]
        )

    def document(self, number: int) -> str:
        """Return random design number `number` as a line of JSON, with its number and the hashes of its fonts."""
        design, _ = self.random_design(number)
        digests = [self.face_named[name].sha256 for name in design.faces]
        document = {**design.document, "number": number}
        document["fonts"] = {**document["fonts"], "sha256": digests}
        return json.dumps(document, sort_keys=True)


@lru_cache(maxsize=16)
def drawer_of(config: GeneratorConfig) -> Drawer:
    """Return what draws the images of a configuration; it keeps fonts and designs, which take seconds to find."""
    return Drawer(config)
