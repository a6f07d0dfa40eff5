"""The commands for designs: design preview, list and find."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.options import FOLDER, DeclaredCommand, Given, takes
from captcha_ocr.cli.wording import given_words, report, word_command
from captcha_ocr.errors import Command, check
from captcha_ocr.options.adapting import FEWEST_IMAGES
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.drawing import RANDOM, DrawingOptions
from captcha_ocr.options.shared import ReportOptions
from captcha_ocr.system.console import command_line, counted
from captcha_ocr.system.signals import deferred

_ADVICE = {  # on what makes images illegible
    "contrast": "take text.color and canvas.color further apart",
    "clipped": "lower text.size, or raise text.spacing",
    "hidden": "weaken the operators",
}
_PICTURE = "docs/designs/{}.png"
_WIDTH = 26  # characters of a column with names
_NEAREST = 3  # designs that find names
_SURE = 20  # images of a folder whose design is found for 95 %
_MAX_PREVIEW = 600  # images on a sheet: it is then some 9,000 pixels high


@dataclass(frozen=True, eq=False, repr=False)
class _PreviewCommand(Options):
    count: int = option(24, "Number of images.", at_least=1, at_most=_MAX_PREVIEW)
    out: Path = option(Path("preview.png"), "The picture to write.", path="new file")


@main.group()
def design() -> None:
    """Try a design of captchas out, or find the one that some images have (docs/designs.md).

    Example: captcha-ocr design find my-captchas
    """


@design.command(cls=DeclaredCommand)
@click.argument("name", metavar="NAME|FILE|random[:LEVEL]", default=RANDOM)
@takes(_PreviewCommand)
@takes(DrawingOptions, "lengths", "charset", "fonts", "seed")
@takes(ReportOptions, "as_json")
def preview(name: str, given: Given) -> None:
    """Draw a contact sheet: images of a design, with their texts below.

    Example: captcha-ocr design preview mine.toml --count 60
    """
    with deferred():
        from captcha_ocr.generation.drawer import Drawer, plan_drawing
        from captcha_ocr.pictures.contact_sheet import COLUMNS, Tile, draw_sheet

    options = given[_PreviewCommand]
    is_design = options.out.resolve() == Path(name).resolve()
    check(not is_design, f"{name} is the design, which `out` would replace")
    plan = plan_drawing(replace(given[DrawingOptions], design=name, count=options.count))
    drawer = Drawer(plan)
    captchas = [drawer.draw(index) for index in range(options.count)]
    tiles = [Tile(image.image, f"{number}", image.text) for number, image in enumerate(captchas)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet(tiles, options.out, rows=-(-options.count // COLUMNS))
    reasons = Counter(captcha.illegible for captcha in captchas if captcha.illegible)
    redrawn = sum(captcha.redrawn for captcha in captchas)
    words = [f"{options.out}: {counted(options.count, 'image')} of {plan.kind}"]
    if redrawn:
        words.append(f"{counted(redrawn, 'illegible image')} drawn again")
    for reason, number in reasons.items():
        words.append(f"{number} still illegible: {reason} ({_ADVICE[reason]})")
    facts = {
        "out": str(options.out),
        "images": options.count,
        "redrawn": redrawn,
        "illegible": sum(reasons.values()),
    }
    texts = given_words("lengths", "charset", "fonts", "seed")
    report(facts, "; ".join(words), command_line("generate", "--design", name, *texts))


@design.command(name="list", cls=DeclaredCommand)
@takes(ReportOptions, "as_json")
def list_designs(given: Given) -> None:
    """List the named designs.

    Example: captcha-ocr design list
    """
    with deferred():
        from captcha_ocr.generation.designs.design import describe_design, design_names

    looks = {name: describe_design(name) for name in design_names()}
    rows = [
        {"name": name, "look": look, "picture": _PICTURE.format(name)}
        for name, look in looks.items()
    ]
    lines = [f"{name:{_WIDTH}}{look}" for name, look in looks.items()]
    lines.append(f"{'pictures':{_WIDTH}}{_PICTURE.format('NAME')}")
    report({"designs": rows}, "\n".join(lines), command_line("design", "preview", "NAME"))


@design.command(cls=DeclaredCommand)
@click.argument("folder", type=FOLDER)
@takes(ReportOptions, "as_json")
def find(folder: Path, given: Given) -> None:
    """Tell which named designs the images of FOLDER look like.

    Example: captcha-ocr design find my-captchas
    """
    with deferred():
        from captcha_ocr.data.images import find_images
        from captcha_ocr.experiments.adaptation import adapt_command
        from captcha_ocr.generation.designs.design import describe_design
        from captcha_ocr.generation.looks import NEAR, find_designs

    check(folder.is_dir(), f"{folder} is not a folder")
    images = find_images(folder).images
    nearest = find_designs(folder, images)[:_NEAREST]
    first = nearest[0]
    lines = [f"distances of looks: 0 is the same, above {NEAR} another"]
    if len(images) < _SURE:
        lines.append(f"of {counted(len(images), 'image')}; {_SURE} or more tell surely")
    for name, distance in nearest:
        lines.append(f"{name:{_WIDTH}}{distance:.2f}  {describe_design(name)}")
    command = first.training
    if not first.is_near:
        lines.append(f"{folder}: no named design looks like it")
        is_few = len(images) < FEWEST_IMAGES
        command = Command("label", (folder,)) if is_few else adapt_command(folder)
    facts = {"found": first.is_near, "nearest": [design._asdict() for design in nearest]}
    report(facts, "\n".join(lines), word_command(command))
