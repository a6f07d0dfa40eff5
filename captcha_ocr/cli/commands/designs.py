"""The command for designs: design preview."""

from collections import Counter
from pathlib import Path
from typing import Any

import click

from captcha_ocr.cli.app import main
from captcha_ocr.cli.commands.data import drawing_options
from captcha_ocr.cli.options import (
    NEW_FILE,
    add_options,
    json_option,
    next_command,
    option,
    report,
    seed_option,
)
from captcha_ocr.options.drawing import RANDOM, DrawingOptions
from captcha_ocr.system.signals import deferred

ADVICE = {  # on what makes images illegible
    "contrast": "take text.color and canvas.color further apart",
    "clipped": "lower text.size, or raise text.spacing",
    "hidden": "weaken the operators",
}
MAX_PREVIEW = 600  # images on a sheet: it is then some 9,000 pixels high


@main.group()
def design() -> None:
    """Try a design of captchas out (docs/designs.md).

    Example: captcha-ocr design preview mine.toml
    """


@design.command()
@click.argument("name", metavar="NAME|FILE|random[:LEVEL]", default=RANDOM)
@option("--count", type=click.IntRange(1, MAX_PREVIEW), default=24, help="Number of images.")
@option("--out", type=NEW_FILE, default=Path("preview.png"), help="The picture to write.")
@drawing_options
@add_options(seed_option, json_option)
def preview(name: str, out: Path, fonts: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Draw a contact sheet: images of a design, with their texts below.

    Example: captcha-ocr design preview mine.toml --count 60
    """
    with deferred():
        from captcha_ocr.generation.drawer import Drawer
        from captcha_ocr.generation.plan import plan_drawing
        from captcha_ocr.pictures.contact_sheet import COLUMNS, Tile, draw_sheet
        from captcha_ocr.system.console import counted

    options["design"] = name
    plan = plan_drawing(DrawingOptions(**options, fonts=tuple(map(str, fonts))))
    drawer, count = Drawer(plan), plan.options.count
    captchas = [drawer.draw(index) for index in range(count)]
    tiles = [
        Tile(captcha.image, f"{number}", captcha.text) for number, captcha in enumerate(captchas)
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    draw_sheet(tiles, out, rows=-(-count // COLUMNS))
    reasons = Counter(captcha.illegible for captcha in captchas if captcha.illegible)
    redrawn = sum(captcha.redrawn for captcha in captchas)
    words = [f"{out}: {counted(count, 'image')} of {plan.kind}"]
    if redrawn:
        words.append(f"{counted(redrawn, 'illegible image')} drawn again")
    words += [
        f"{number} still illegible: {reason} ({ADVICE[reason]})"
        for reason, number in reasons.items()
    ]
    facts = {
        "out": str(out),
        "images": count,
        "redrawn": redrawn,
        "illegible": sum(reasons.values()),
    }
    report(as_json, facts, "; ".join(words), next_command("generate", "--design", name))
