"""Can a network tell the engine's drawing of the captcha package's look from the package's own
drawing?

    python benchmarks/discriminator.py FOLDER [--count 25000] [--warp classic]

Draws `count` images with the package and as many with the engine (`--renderer fast`), trains a
network in colour to tell which of the two drew an image, and prints how many of a fifth of the
images, unseen, it tells right: 50 % is guessing. Each draws other texts, with a seed of its own.
"""

import argparse
import csv
import json
from dataclasses import replace
from pathlib import Path

from captcha_ocr.data.prepare import prepare
from captcha_ocr.generation.drawer import plan_drawing
from captcha_ocr.generation.folder import generate
from captcha_ocr.options.drawing import CLASSIC_WARP, DEFAULT_DESIGN, DrawingOptions
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.options.training import PRESETS
from captcha_ocr.training.train import train


def main() -> None:
    """Draw, prepare, train, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=25_000, help="images of each renderer")
    parser.add_argument("--warp", default="package", choices=["package", "classic"])
    arguments = parser.parse_args()
    images = arguments.folder / "images"
    rows = []
    design = CLASSIC_WARP if arguments.warp == "classic" else DEFAULT_DESIGN
    engine = DrawingOptions(arguments.count, design=design, seed=101)
    package = replace(engine, renderer="package", seed=100)
    for letter, name, options in (("P", "package", package), ("E", "engine", engine)):
        generate(plan_drawing(options), images / name)
        with open(images / name / "labels.csv", encoding="utf-8", newline="") as stream:
            rows += [(f"{name}/{row['filename']}", letter) for row in csv.DictReader(stream)]
    with open(images / "labels.csv", "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("filename", "text"), *rows])
    prepare(images, arguments.folder / "shards", PrepareConfig(channels=3, split=(78, 2, 20)))
    finished = train(
        [arguments.folder / "shards"], arguments.folder / "run", PRESETS["default"].training
    )
    test = finished.test or {}
    print(json.dumps({name: test[name] for name in ("exact", "images", "exact_match", "interval")}))


if __name__ == "__main__":
    main()
