"""Make the model in the package: draw, prepare, train, pack, score; finished steps are not repeated.

    make pretrained      python benchmarks/pretrained.py

Most images are the `captcha` package's defaults, half of these in the classic warp. The others are texts of 4 to 6
characters in other sizes and fonts, and texts of only O and 0, which cause nearly all errors. Every stage draws its own
images, and from the second on starts from the model of the stage before.
"""

import argparse
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from captcha_ocr.inference.model_folder import CARD_FILE, PRETRAINED, find_model_folder
from captcha_ocr.metrics import wilson_interval
from captcha_ocr.network.weights import load_model, save_model
from captcha_ocr.training.run_folder import RUN_FILE

DATA_FOLDER = Path("data/pretrained")  # images, shards and runs
FONT_FOLDER = Path("/usr/share/fonts")  # of Debian's packages
PACKAGES = (
    "fonts-cabin fonts-comic-neue fonts-courier-prime fonts-crosextra-caladea fonts-crosextra-carlito fonts-ebgaramond "
    "fonts-hack fonts-inconsolata fonts-jetbrains-mono fonts-lato fonts-liberation2 fonts-open-sans fonts-play "
    "fonts-quicksand fonts-roboto-slab fonts-roboto-unhinted fonts-sil-gentium"
)
FONTS = (
    *("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono-Bold.ttf", "DejaVuSerif.ttf", "STIXGeneral.ttf"),
    *("LiberationSans-Regular.ttf", "LiberationSans-Bold.ttf", "LiberationSerif-Regular.ttf"),
    *("LiberationMono-Regular.ttf", "LiberationMono-Bold.ttf", "Lato-Regular.ttf", "Roboto-Regular.ttf"),
    *("RobotoSlab-Regular.otf", "Inconsolata.otf", "ComicNeue-Regular.otf", "Carlito-Regular.ttf"),
    *("Caladea-Regular.ttf", "JetBrainsMono-Regular.ttf", "Quicksand-Regular.ttf", "EBGaramond12-Regular.otf"),
    *("Cabin-Regular.otf", "Gentium-R.ttf"),
)
UNSEEN_FONTS = ("Hack-Regular.ttf", "OpenSans-Regular.ttf", "Courier Prime.otf", "Play-Regular.ttf")  # only to score
WARPS = ("package", "classic")
SEEDS = 10_000  # the seeds of stage n begin at n times this, those of the test sets at 9 times
SIZES = (  # of images and their fonts
    ("160x60", "42,50,56"),
    ("200x60", "42,50,56"),
    ("240x80", "56,66,75"),
    ("120x40", "28,34,38"),
    ("240x60", "42,50,56"),
    ("180x50", "36,42,48"),
    ("320x100", "70,84,94"),
)


CARD = """# Model card: the model in the package

This model comes with captcha-ocr. `Recognizer()` always uses it. `captcha-ocr eval` uses it if you
name no other model and have trained none.

## What it reads

- Images that the `captcha` package draws: the warp of version 0.7.1, and the stronger one of 0.7.0
  and earlier (`--warp classic`).
- Texts of 4 to 6 characters.
- The 36 characters 0-9 and A-Z.
- Images of any size. They are resized to 160x60 pixels and converted to grey.

## Scores

All test images are drawn by the `captcha` package with random seeds that training did not use.

| test images | exact match | 95 % interval | look-alikes as one | calibration error | exact match of the most confident 95 % |
|---|---|---|---|---|---|
{rows}

- Exact match: the share of images whose whole text is read correctly.
- Look-alikes as one: the same, but O for 0 and similar confusions count as correct.
- Calibration error: the average difference between confidence and exact match.

## Limits

- It is not made for other captcha designs. Train your own model for them: see docs/training.md in
  the repository.
- It does not read lower-case letters.
- On default images, most of its errors are look-alikes, such as O for 0.
- It is less accurate on fonts that were not in the training: see the last row.

## Responsible use

The model is for captchas that you generate, own or may test. It was trained only on images that
`captcha-ocr generate` draws. No captcha of any service was used.

## Training

One command draws the images, trains the model and scores it again:

    make pretrained

Training has stages. Each stage starts from the model of the stage before.

{training}
"""  # noqa: E501 (a row of a table)


@dataclass(frozen=True)
class Stage:
    """The number of images of each set in a stage, and the epochs.

    default, confused: for each warp, in the package's default design, of all characters and of only O and 0.
    sizes, fonts: for each size or font and each warp.
    """

    default: int
    confused: int
    sizes: int
    fonts: int
    epochs: int


STAGES = (  # each about an hour and a half on 2 cores of an EPYC with bf16
    Stage(default=420_000, confused=0, sizes=8_000, fonts=8_000, epochs=3),
    Stage(default=350_000, confused=60_000, sizes=5_000, fonts=3_000, epochs=4),
)


@dataclass(frozen=True)
class ImageSet:
    """A folder of images: its name, their number, and options of `generate`."""

    name: str
    count: int
    options: tuple[str, ...]


def image_sets(stage: Stage) -> Iterator[ImageSet]:
    """Yield the image sets of a stage; some may have no images."""
    for warp in WARPS:
        yield ImageSet(f"default-{warp}", stage.default, ("--warp", warp))
    for warp in WARPS:
        for size, font_sizes in SIZES:
            options = "--length", "4-6", "--warp", warp, "--size", size, "--font-sizes", font_sizes
            yield ImageSet(f"{size}-{warp}", stage.sizes, options)
    for number, font in enumerate(FONTS):
        for warp in WARPS:
            size, font_sizes = SIZES[(number + WARPS.index(warp)) % len(SIZES)]
            options = "--length", "4-6", "--warp", warp, "--size", size, "--font-sizes", font_sizes
            yield ImageSet(f"{Path(font).stem}-{warp}", stage.fonts, (*options, "--fonts", str(find_font(font))))
    for warp in WARPS:
        yield ImageSet(f"confused-{warp}", stage.confused, ("--warp", warp, "--charset", "O0"))


def find_font(name: str) -> Path:
    """Find a font file by its name, in matplotlib or in Debian's packages; exit if it is missing."""
    ours = Path(matplotlib.get_data_path(), "fonts", "ttf", name)
    found = [ours] if ours.exists() else sorted(FONT_FOLDER.rglob(name))
    if not found:
        sys.exit(f"the font {name} is missing; on Debian: apt-get install {PACKAGES}")
    return found[0]


def test_sets() -> dict[str, list[ImageSet]]:
    """Return the image sets that score the model, by the name of the score; the package's own code draws them."""
    sizes = [("--length", "4-6", "--size", size, "--font-sizes", font_sizes) for size, font_sizes in SIZES]

    def in_fonts(fonts: tuple[str, ...], count: int) -> list[ImageSet]:
        return [
            ImageSet(f"{Path(font).stem}-{warp}", count, (*sizes[0], "--warp", warp, "--fonts", str(find_font(font))))
            for font in fonts
            for warp in WARPS
        ]

    return {
        "captcha 0.7.1's default images": [ImageSet("default-package", 10_000, ())],
        "the same in the classic warp": [ImageSet("default-classic", 10_000, ("--warp", "classic"))],
        "4 to 6 characters in 7 sizes, both warps": [
            ImageSet(f"{options[3]}-{warp}", 500, (*options, "--warp", warp)) for options in sizes for warp in WARPS
        ],
        f"4 to 6 characters, 160x60, the {len(FONTS)} other fonts of the training, both warps": in_fonts(FONTS, 100),
        f"the same in {len(UNSEEN_FONTS)} fonts that were not in the training": in_fonts(UNSEEN_FONTS, 500),
    }


def captcha_ocr(*arguments: object) -> str:
    """Run a command; returns what it prints."""
    words = [str(argument) for argument in arguments]
    print("captcha-ocr", *words, file=sys.stderr, flush=True)
    return subprocess.run(
        [sys.executable, "-m", "captcha_ocr", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def commands(out: Path, number: int, scale: float = 1.0) -> Iterator[tuple[object, ...]]:
    """Yield the commands that draw, prepare and train a stage: the words after `captcha-ocr`."""
    stage, folder = STAGES[number - 1], out / f"stage-{number}"
    for index, images in enumerate(image_sets(stage)):
        if images.count:
            drawn = "--out", folder / "images" / images.name, "--count", max(1, round(images.count * scale))
            yield "generate", "--quiet", *drawn, "--seed", SEEDS * number + index, *images.options
    shards, run = folder / "shards", folder / "run"
    shape = "--charset", "upper-alnum", "--length", "4-6", "--size", "160x60", "--channels", 1
    yield "prepare", folder / "images", "--out", shards, "--preset", "accuracy", *shape, "--split", "98/1/1"
    start = ("--init", out / f"stage-{number - 1}" / "run") if number > 1 else ()
    yield "train", "--preset", "accuracy", "--data", shards, "--out", run, "--epochs", stage.epochs, *start


def score(model: Path, out: Path) -> list[dict[str, Any]]:
    """Score the model on the test sets; returns a total for each name."""
    rows = []
    for number, (name, sets) in enumerate(test_sets().items()):
        summaries = []
        for index, images in enumerate(sets):
            folder, seed = out / "test" / f"{number}-{images.name}", SEEDS * 9 + 100 * number + index
            drawn = "--out", folder, "--count", images.count, "--seed", seed, *images.options
            captcha_ocr("generate", "--renderer", "package", "--quiet", *drawn)
            printed = captcha_ocr("eval", "--json", "--model", model, "--labels", folder / "labels.csv")
            summaries.append(json.loads(printed.splitlines()[-1])["summary"])
        pooled = {key: sum(summary[key] for summary in summaries) for key in ("images", "exact", "lookalike")}
        alone = summaries[0] if len(summaries) == 1 else {}
        rows.append(
            {"name": name, **pooled, **{key: alone.get(key) for key in ("calibration_error", "surest_95_match")}}
        )
    return rows


def pack(run: Path, images: Path, target: Path) -> None:
    """Write the best model of a run in half precision into a folder, and export it."""
    model = load_model(find_model_folder(run))
    save_model(target, model.half(), {"trained_by": "make pretrained"})
    captcha_ocr("export", images, "--model", target)


def card(out: Path, rows: list[dict[str, Any]]) -> str:
    """Return the model card, as Markdown."""
    numbers = range(1, len(STAGES) + 1)
    runs = [json.loads((out / f"stage-{number}" / "run" / RUN_FILE).read_bytes()) for number in numbers]
    facts = dict(line.split(maxsplit=1) for line in captcha_ocr("doctor").splitlines())
    training = [
        *(f"Stage {number}: {describe(run)}" for number, run in enumerate(runs, 1)),
        f"Random seeds: from {SEEDS} for training images, from {SEEDS * 9} for test images",
        f"Versions and processor: {facts['versions']}; {facts['cpu'].split(';')[0]}",
    ]
    return CARD.format(rows="\n".join(map(row_of, rows)), training="\n".join(map(item, training)))


def item(text: str) -> str:
    """Return an item of a list, wrapped at 100 columns."""
    return textwrap.fill(text, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def row_of(score: dict[str, Any]) -> str:
    """Return the row of one test in the card."""
    low, high = wilson_interval(score["exact"], score["images"])
    optional = [score["calibration_error"], score["surest_95_match"]]
    error, confident = ("-" if value is None else f"{value:.2%}" for value in optional)
    return (
        f"| {score['name']}, {score['images']:,} | {score['exact'] / score['images']:.2%} | {low:.2%} to {high:.2%} | "
        f"{(score['exact'] + score['lookalike']) / score['images']:.2%} | {error} | {confident} |"
    )


def describe(run: dict[str, Any]) -> str:
    """Describe a training run from its run.json."""
    finished, training = run["finished"], run["training"]
    return (
        f"{run['images']['train']:,} images, preset {training['preset']}, {finished['epochs']} epochs, seed "
        f"{training['seed']}, {finished['seconds'] / 60:.0f} minutes on {run['device']}, {run['precision']}"
    )


def main() -> None:
    """Make the model and its card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA_FOLDER, help="where images, shards and runs lie")
    parser.add_argument("--target", type=Path, default=PRETRAINED, help="the model folder to write")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the images to draw, for a trial")
    arguments = parser.parse_args()
    for number in range(1, len(STAGES) + 1):
        for command in commands(arguments.out, number, arguments.scale):
            captcha_ocr(*command)
    last = arguments.out / f"stage-{len(STAGES)}"
    pack(last / "run", last / "images" / "default-package", arguments.target)
    text = card(arguments.out, score(arguments.target, arguments.out))
    (arguments.target / CARD_FILE).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
