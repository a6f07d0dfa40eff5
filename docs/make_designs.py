"""Draw the pictures of docs/designs.md: what each operator does, each named design, and random
designs.

python docs/make_designs.py FOLDER, a folder with the fonts that docs/designs.md recommends
"""

import random
import sys
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image, ImageDraw, ImageFont, ImageOps

from captcha_ocr.cli.app import main as captcha_ocr
from captcha_ocr.generation.designs.design import design_names, parse_design
from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.generation.operators.registry import OPERATORS
from captcha_ocr.generation.rendering.renderer import draw
from captcha_ocr.options.drawing import DrawingOptions

DOCS = Path(__file__).parent
FONT = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
GROUPS = {  # of docs/designs.md, and the stages of their operators
    "glyphs": ("shape", "corners", "stroke"),
    "lines": ("layout",),
    "under": ("under",),
    "marks": ("mark",),
    "whole": ("inversion", "warp", "pixels"),
}
STAGE_ORDER = [stage for stages in GROUPS.values() for stage in stages]
PLAIN: dict[str, Any] = {
    "canvas": {"width": 170, "height": 56, "color": "#f2efe6"},
    "text": {
        "size": 36,
        "color": "#303030",
        "spacing": 0.06,
        "length": 5,
        "charset": "no-lookalikes",
    },
    "redraw_illegible": False,
}
# Shows what operators on pixels do to colours.
SHADE = {"kind": "gradient", "color": "#d8a070", "behind": True}
# The default, the colour of the text, would hide what is new.
COLORS = {"mark": "#3b7dd8", "under": "#ff9a20"}
OF_LETTERS = ("decoys", "ghost", "small_print")  # come last
BEHIND = ("blobs", "gradient", "texture", "tiles", "ghost")  # they would cover the text
STRIP, SIDES = 4, (180, 68)  # images of a named design, and the most pixels of each
IMAGES, GAP, NAME_WIDTH, NAME_SIZE = 4, 4, 118, 13
SEED = 7


def draw_operator(name: str | None, base: list[dict[str, Any]]) -> list[Image.Image]:
    """Draw the images of the plain design, with an operator that has its default values."""
    operators = list(base)
    if name is not None:
        shown: dict[str, Any] = {"kind": name}
        color = COLORS.get(OPERATORS[name].stage)
        if color and name != "tiles":
            shown["color"] = color
        if name in BEHIND:
            shown["behind"] = True
        operators.append(shown)
    design = parse_design({**PLAIN, "operators": operators}, name or "plain")
    images = []
    for number in range(IMAGES):
        rng = random.Random(f"{SEED} {number}")
        text = design.texts.write(rng)
        images.append(Image.fromarray(draw(design, [FONT], text, rng)[0]))
    return images


def draw_strips(names: list[str | None], base: list[dict[str, Any]], path: Path) -> None:
    """Write a picture with a row of images for each operator, its name beside it."""
    width, height = PLAIN["canvas"]["width"], PLAIN["canvas"]["height"]
    size = NAME_WIDTH + IMAGES * (width + GAP), len(names) * (height + GAP)
    picture = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.truetype(FONT, NAME_SIZE)
    for row, name in enumerate(names):
        y = row * (height + GAP)
        pen.text((4, y + height // 2), name or "(no operator)", "black", font, anchor="lm")
        for number, image in enumerate(draw_operator(name, base)):
            picture.paste(image, (NAME_WIDTH + number * (width + GAP), y))
    if not base:  # a third of the bytes, and no difference is seen
        picture = picture.quantize(256, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)


def draw_operators() -> None:
    """Write a picture for each group of operators."""
    for group, stages in GROUPS.items():
        names = [name for name, operator in OPERATORS.items() if operator.stage in stages]
        names.sort(key=lambda name: (STAGE_ORDER.index(OPERATORS[name].stage), name in OF_LETTERS))
        base = [SHADE] if "pixels" in stages else []
        draw_strips([None, *names], base, DOCS / f"designs-{group}.png")


def draw_named_designs() -> None:
    """Write a picture with some images of each named design."""
    for name in design_names():
        drawer = drawer_of(plan_drawing(DrawingOptions(design=name)))
        picture = Image.new("RGB", (STRIP * (SIDES[0] + GAP) - GAP, SIDES[1]), "white")
        for index in range(STRIP):
            image = ImageOps.contain(drawer.draw(index).image, SIDES)
            top = (SIDES[1] - image.height) // 2
            picture.paste(image, (index * (SIDES[0] + GAP), top))
        picture = picture.quantize(256, dither=Image.Dither.NONE)
        picture.save(DOCS / "designs" / f"{name}.png", optimize=True)


def draw_random_designs(fonts: str) -> None:
    """Write the picture of random designs."""
    arguments = ["design", "preview", "random", "--count=48", "--fonts", fonts]
    captcha_ocr([*arguments, "--out", str(DOCS / "designs-random.png")], standalone_mode=False)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw_operators()
    draw_named_designs()
    draw_random_designs(sys.argv[1])
