"""Train on named designs alone, and read the images of the generators that they imitate.

    python benchmarks/designs.py SETS --out FOLDER [--epochs N] [NAME ...]
    python benchmarks/designs.py --looks

SETS has a folder of labelled images for each generator: `kaptcha` for the design kaptcha,
`ruoyi_char` for ruoyi-char. No image of it is trained on. Without names, all designs with a folder.

For each design: what the model in the package reads, told nothing, of the generator's images and of
300 drawn ones; then `train --draw NAME`, and what its model reads. A training ends early when it no
longer improves. Texts are compared without case and without blanks. FOLDER keeps the runs, the
facts of each as JSON, and a sheet for each with the generator's images above the drawn ones.
Finished designs are not trained again. The tables are printed in Markdown.

--looks writes the looks of all named designs, which `design find` compares with.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench import epochs_of
from datasets import captcha_ocr
from PIL import Image

from captcha_ocr import Recognizer
from captcha_ocr.data.images import flatten, open_image
from captcha_ocr.generation import looks
from captcha_ocr.generation.designs.design import describe_design, design_names
from captcha_ocr.generation.drawer import drawer_of, plan_drawing
from captcha_ocr.options.drawing import DrawingOptions
from captcha_ocr.pictures.contact_sheet import COLUMNS, Tile, draw_sheet
from captcha_ocr.scores import wilson_interval
from captcha_ocr.system.files import write_atomic

DRAWN = 300  # images of a design that the model in the package reads
OF_LOOK = 100  # images of a design that its look is taken from
OF_SHEET = 18  # images of each kind
EPOCH = 2000  # images, after which the training is looked at
LEVELS = (0.9, 0.99)
Labelled = list[tuple[Image.Image, str]]


def read_set(folder: Path) -> Labelled:
    """Return the images of a folder with their texts."""
    with open(folder / "labels.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [(flatten(open_image(folder / row["filename"]), "RGB"), row["text"]) for row in rows]


def draw_images(name: str, count: int) -> Labelled:
    """Return images of a design that no training draws, with their texts."""
    drawer = drawer_of(plan_drawing(DrawingOptions(design=name, seed=10_000)))
    captchas = [drawer.draw(index) for index in range(count)]
    return [(captcha.image, captcha.text) for captcha in captchas]


def score(recognizer: Recognizer, images: Labelled) -> dict[str, Any]:
    """Return how many images are read, and which are not."""
    pairs = []
    for image, text in images:
        pairs.append((recognizer.predict(image).text.replace(" ", ""), text.replace(" ", "")))
    return {
        "images": len(pairs),
        "read": sum(read.casefold() == text.casefold() for read, text in pairs),
        "wrong": [
            f"{text} as {read}" for read, text in pairs if read.casefold() != text.casefold()
        ],
    }


def measure(name: str, folder: Path, out: Path, epochs: int) -> dict[str, Any]:
    """Train on a design and read its generator's images; return the facts."""
    theirs, drawn, run = read_set(folder), draw_images(name, DRAWN), out / name
    tiles = [Tile(image, folder.name, text) for image, text in theirs[:OF_SHEET]]
    tiles += [Tile(image, f"design {name}", text) for image, text in drawn[:OF_SHEET]]
    draw_sheet(tiles, out / f"{name}.png", rows=-(-len(tiles) // COLUMNS))
    captcha_ocr(
        *("train", "--draw", name, "--out", run, "--quiet"),
        *("--images", EPOCH, "--epochs", epochs, "--repeat", 1),
    )
    finished = json.loads((run / "run.json").read_bytes())["finished"]
    of_package = Recognizer(threads=1)
    return {
        "design": name,
        "free": score(of_package, theirs),
        "free_drawn": score(of_package, drawn),
        "own": score(Recognizer(run, threads=1), theirs),
        "images": [images_until(run, level) for level in LEVELS],
        "minutes": finished["seconds"] / 60,
        "trained_on": EPOCH * finished["epochs"],
    }


def images_until(run: Path, level: float) -> int | None:
    """Return after how many drawings a run read a share of its validation images; None if never."""
    for row in epochs_of(run):
        if row["validation_exact"] >= level:
            return EPOCH * int(row["epoch"])
    return None


def show_share(scored: dict[str, Any]) -> str:
    """Show which share was read."""
    return f"{100 * scored['read'] / scored['images']:.0f} %"


def print_tables(facts: Sequence[dict[str, Any]]) -> None:
    """Print what the designs' own models read, the named designs, and how weak generators are."""
    by_name = {each["design"]: each for each in facts}
    print("| design | its own model reads (95 % interval) | told nothing | trained on | minutes |")
    print("|---|---|---|---|---|")
    for name, each in by_name.items():
        own = each["own"]
        low, high = wilson_interval(own["read"], own["images"])
        print(
            f"| `{name}` | {show_share(own)} ({low:.0%} to {high:.0%})"
            f" | {show_share(each['free'])} | {each['trained_on']:,} | {each['minutes']:.1f} |"
        )
    shares = [each["own"]["read"] / each["own"]["images"] for each in facts]
    good = sum(share >= LEVELS[0] for share in shares)
    print(f"\n{len(facts)} designs: mean {100 * np.mean(shares):.1f} %, {good} of 90 % and more")
    print("\n| name | look | read | |\n|---|---|---|---|")
    for name in design_names():
        read = show_share(by_name[name]["own"]) if name in by_name else ""
        print(f"| `{name}` | {describe_design(name)} | {read} | ![{name}](designs/{name}.png) |")
    print(
        "\n| generator | | its images, told nothing | drawn ones, told nothing"
        " | drawn images to 90 %, to 99 % | minutes | its images then |"
    )
    print("|---|---|---|---|---|---|---|")
    for each in sorted(facts, key=lambda each: -each["free"]["read"] / each["free"]["images"]):
        until = ", ".join(f"{images:,}" if images else "not reached" for images in each["images"])
        name, free = each["design"], show_share(each["free"])
        print(
            f"| {name} | ![{name}](designs/{name}.png) | {free} | {show_share(each['free_drawn'])}"
            f" | {until} | {each['minutes']:.1f} | {show_share(each['own'])} |"
        )


def write_looks() -> None:
    """Write the looks of the named designs into the package."""
    found = {}
    for name in design_names():
        images = [np.asarray(image) for image, _ in draw_images(name, OF_LOOK)]
        found[name] = looks.describe_look(images).tolist()
    rows = (f"{json.dumps(name)}: {json.dumps(look)}" for name, look in found.items())
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    write_atomic(Path(str(looks.LOOKS)), text.encode())


def main() -> None:
    """Write the looks, or measure each design and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path, nargs="?", help="a folder for each generator")
    parser.add_argument("names", nargs="*", help="designs")
    parser.add_argument("--out", type=Path, default=Path("runs/designs"), help="for the runs")
    parser.add_argument("--epochs", type=int, default=10, help=f"at most, of {EPOCH:,} images")
    parser.add_argument("--looks", action="store_true", help="write the looks of the designs")
    arguments = parser.parse_args()
    if arguments.looks:
        write_looks()
        return
    folders = {name: arguments.sets / name.replace("-", "_") for name in design_names()}
    names = arguments.names or [name for name in folders if folders[name].is_dir()]
    arguments.out.mkdir(parents=True, exist_ok=True)
    facts = []
    for name in names:
        path = arguments.out / f"{name}.json"
        if not path.exists():
            fact = measure(name, folders[name], arguments.out, arguments.epochs)
            write_atomic(path, json.dumps(fact).encode())
        facts.append(json.loads(path.read_bytes()))
        print(name, show_share(facts[-1]["own"]), facts[-1]["own"]["wrong"], file=sys.stderr)
    print_tables(facts)


if __name__ == "__main__":
    main()
