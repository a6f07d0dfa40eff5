"""Make the model in the package: train it in stages on images that are drawn meanwhile, pack it,
score it.

    make pretrained
    python benchmarks/pretrained.py FONTS... [--stage N | --pack [--scores FILE]]

FONTS are folders of fonts: those of docs/designs.md and of benchmarks/fonts.txt. Every SCORING-th
family of a folder is kept for scoring and never drawn in training. A stage starts from the weights
that the stage before it left, in half precision; if it left none here, from those in
benchmarks/weights, with which an unfinished training travels from machine to machine, or in the
package. A stage that was stopped continues. --pack exports the weights into the package, scores
them, and writes the card. FILE is what zero_shot.py prints, for the card.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.generation.fonts.catalogue import find_faces
from captcha_ocr.inference.model_folder import CARD_FILE, PRETRAINED, find_model_folder
from captcha_ocr.network.weights import load_model, save_model
from captcha_ocr.scores import wilson_interval
from captcha_ocr.system.files import write_atomic

DATA_FOLDER = Path("data/pretrained")  # links to fonts, images, runs and weights
TRAVELLING = Path(__file__).with_name("weights")
CARD = Path(__file__).with_name("pretrained_card.md").read_text("utf-8")
SCORING = 7
SEEDS = 20_000  # the seed of stage n is n after this
CALIBRATION_SEED, TEST_SEED = 30_000, 90_000
CALIBRATION = 1400  # drawings from which the 8-bit network takes its scales, and is compared
TESTED = 10_000  # images of the captcha package, in each of its two warps
PACKAGE = ("captcha", "captcha-classic")
# Its images with many 0 and O, the commonest errors, and with texts of all kinds in other sizes
OF_PACKAGE = tuple(f"{design}-{kind}.toml" for design in PACKAGE for kind in ("often", "any"))
ALPHABETS = ("0-9", "a-z", "A-Z", "a-z0-9", "A-Z0-9", "A-Za-z0-9")
LENGTHS = (4, 4, 5, 6)
ALL = ("random",) * 7 + ("random:named",) * 5 + OF_PACKAGE


@dataclass(frozen=True)
class Stage:
    """The options of train for a stage."""

    designs: tuple[str, ...]
    images: int  # of an epoch
    repeat: int
    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str = "onecycle"


STAGES = (
    # 10 minutes on an H200 with 16 processors that draw.
    Stage(("random",), images=60_000, repeat=4, epochs=80, batch_size=128, learning_rate=4e-3),
    Stage(ALL, images=25_000, repeat=2, epochs=60, batch_size=64, learning_rate=1e-3),
)


def share_fonts(fonts: Path, out: Path) -> None:
    """Make two folders of links to the fonts of a folder: `train` and `score`, whose families
    differ.
    """
    faces = find_faces([fonts])
    families = sorted({face.family for face in faces})
    for face in faces:
        name = "score" if families.index(face.family) % SCORING == 0 else "train"
        path = Path(face.path)
        link = (
            out
            / name
            / f"{face.name.removesuffix(path.suffix).replace(path.suffix + '#', '-')}{path.suffix}"
        )
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(path.resolve())


def write_designs(out: Path) -> None:
    """Write the designs of OF_PACKAGE."""
    out.mkdir(parents=True, exist_ok=True)
    texts = [f'"{f"[{alphabet}]" * length}"' for alphabet in ALPHABETS for length in LENGTHS]
    of_all_kinds = f"pattern = [{', '.join(texts)}]"
    for design in PACKAGE:
        base, sizes = f'base = "{design}"', "[canvas]\nwidth = [150, 200]\nheight = [54, 72]"
        often, other = out / f"{design}-often.toml", out / f"{design}-any.toml"
        write_atomic(often, f'{base}\n\n[text]\noften = "0O"\n'.encode())
        write_atomic(other, f"{base}\n\n{sizes}\n\n[text]\n{of_all_kinds}\n".encode())


def training(number: int, out: Path) -> list[str]:
    """Return the command that trains stage `number`."""
    stage = STAGES[number - 1]
    drawn = ["--case-sensitive", "--fonts", str(out / "fonts" / "train")]
    for design in stage.designs:
        place = str(out / design) if design in OF_PACKAGE else design
        drawn += ["--draw", place]
    how = ["--preset", "general", "--images", str(stage.images), "--repeat", str(stage.repeat)]
    how += [
        "--epochs",
        str(stage.epochs),
        "--batch-size",
        str(stage.batch_size),
        "--lr",
        str(stage.learning_rate),
        "--schedule",
        stage.schedule,
    ]
    how += ["--seed", str(SEEDS + number)]
    start = ["--init", str(weights_in(out))] if number > 1 else []
    return [
        "train",
        *drawn,
        *how,
        *start,
        "--out",
        str(out / f"stage-{number}"),
        "--keep-every",
        "8",
    ]


def weights_in(out: Path) -> Path:
    """Return the folder of the weights that the last stage left, of those that travel, or of those
    in the package.
    """
    return next(folder for folder in (out / "weights", TRAVELLING, PRETRAINED) if folder.exists())


def keep(out: Path, number: int) -> None:
    """Write the best weights of stage `number` in half precision."""
    model = load_model(find_model_folder(out / f"stage-{number}"))
    save_model(
        out / "weights", model.half(), {"trained_by": f"benchmarks/pretrained.py, stage {number}"}
    )


def pack(out: Path, scores: Path | None) -> None:
    """Export the weights into the package in 8 bits, score them on the captcha package's images,
    write the card.
    """
    images = out / "calibration"
    drawn = "--design", "random", "--fonts", out / "fonts" / "train", "--seed", CALIBRATION_SEED
    captcha_ocr("generate", *drawn, "--count", CALIBRATION, "--out", images, "--quiet")
    save_model(
        PRETRAINED, load_model(weights_in(out)).half(), {"trained_by": "benchmarks/pretrained.py"}
    )
    captcha_ocr("export", images, "--model", PRETRAINED, "--int8")
    rows = [*scores_of_package(out), *(scores_of_sets(scores) if scores else [])]
    write_atomic(PRETRAINED / CARD_FILE, CARD.format(rows="\n".join(rows)).encode())


def scores_of_package(out: Path) -> Iterator[str]:
    """Read images that the captcha package draws; yield a row of the card for each warp."""
    for number, warp in enumerate(("package", "classic")):
        images = out / f"test-{warp}"
        drawn = (
            "--renderer",
            "package",
            "--warp",
            warp,
            "--seed",
            TEST_SEED + number,
            "--count",
            TESTED,
        )
        captcha_ocr("generate", *drawn, "--out", images, "--quiet")
        printed = captcha_ocr(
            "eval", "--json", "--model", PRETRAINED, "--labels", images / "labels.csv"
        )
        summary = json.loads(printed.splitlines()[-1])["summary"]
        with_case = summary["exact"] / summary["images"]
        right = summary["exact"] + summary["folded"]
        name = f"captcha package, warp {warp}"
        yield row(name, summary["images"], right, with_case, summary["calibration_error"])


def scores_of_sets(scores: Path) -> Iterator[str]:
    """Yield a row of the card for each set that zero_shot.py has read with the model."""
    for result in json.loads(scores.read_text("utf-8")):
        if result["reader"] == "ours":
            right = round(result["free"] * result["images"])
            error = result["calibration_error"]
            yield row(result["set"], result["images"], right, result["with_case"], error)


def row(name: str, images: int, right: int, with_case: float, error: float) -> str:
    """Return a row of the table in the card; `right` with case folded, `with_case` a share."""
    low, high = wilson_interval(right, images)
    folded = f"{right / images:.2%} | {low:.2%} to {high:.2%}"
    return f"| {name} | {images:,} | {folded} | {with_case:.2%} | {error:.1%} |"


def captcha_ocr(*arguments: object) -> str:
    """Run a command; returns what it prints."""
    words = [str(argument) for argument in arguments]
    print("captcha-ocr", *words, file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "captcha_ocr", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Train all stages and pack the model, or do one of these steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fonts", type=Path, nargs="+")
    step = parser.add_mutually_exclusive_group()
    step.add_argument(
        "--stage", type=int, choices=range(1, len(STAGES) + 1), help="train this one alone"
    )
    step.add_argument("--pack", action="store_true", help="train nothing")
    parser.add_argument("--scores", type=Path, help="what zero_shot.py printed")
    parser.add_argument("--out", type=Path, default=DATA_FOLDER)
    arguments = parser.parse_args()
    write_designs(arguments.out)
    for folder in arguments.fonts:
        share_fonts(folder, arguments.out / "fonts")
    all_stages = [] if arguments.pack else range(1, len(STAGES) + 1)
    for number in [arguments.stage] if arguments.stage else all_stages:
        captcha_ocr(*training(number, arguments.out))
        keep(arguments.out, number)
    if not arguments.stage:
        pack(arguments.out, arguments.scores)


if __name__ == "__main__":
    main()
