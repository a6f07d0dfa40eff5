"""Train the model that reads any design, in stages, on images that are drawn meanwhile.

    python benchmarks/general.py FONTS... [--stage N] [--out FOLDER]

FONTS are folders of fonts: those of docs/designs.md, unpacked or installed, and from the third stage on also those of
benchmarks/fonts.txt. Every SCORING-th family of a folder is kept for scoring and never drawn in training. A stage
starts from the weights that the stage before it left in benchmarks/general, in half precision, and replaces them. A
stage that was stopped continues.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.generation.fonts import find_faces
from captcha_ocr.inference.model_folder import CARD_FILE, find_model_folder
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.weights import load_model, save_model

DATA_FOLDER = Path("data/general")  # links to fonts, and runs
WEIGHTS_FOLDER = Path(__file__).parent / "general"
SCORING = 7
SEEDS = 20_000  # the seed of stage n is n after this


@dataclass(frozen=True)
class Stage:
    """The options of train for a stage, and whether it leaves the mean of its weights and those it starts from."""

    images: int  # of an epoch
    repeat: int
    epochs: int
    batch_size: int
    learning_rate: float
    mean: bool = False


STAGES = (  # the first two on a GPU with 16 processors that draw, in 10 minutes
    Stage(images=60_000, repeat=4, epochs=68, batch_size=128, learning_rate=4e-3),
    Stage(images=60_000, repeat=4, epochs=12, batch_size=128, learning_rate=1.5e-3, mean=True),
    Stage(images=20_000, repeat=2, epochs=36, batch_size=32, learning_rate=4e-4),
)


def share_fonts(fonts: Path, out: Path) -> None:
    """Make two folders of links to the fonts of a folder: `train` and `score`, whose families differ."""
    faces = find_faces([fonts])
    families = sorted({face.family for face in faces})
    for face in faces:
        name = "score" if families.index(face.family) % SCORING == 0 else "train"
        path = Path(face.path)
        link = out / name / f"{face.name.removesuffix(path.suffix).replace(path.suffix + '#', '-')}{path.suffix}"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(path.resolve())


def command(number: int, out: Path) -> list[str]:
    """Return the command that trains stage `number`."""
    stage = STAGES[number - 1]
    drawn = ["--draw", "random", "--case-sensitive", "--fonts", str(out / "fonts" / "train")]
    how = ["--preset", "general", "--images", str(stage.images), "--repeat", str(stage.repeat)]
    how += ["--epochs", str(stage.epochs), "--batch-size", str(stage.batch_size), "--lr", str(stage.learning_rate)]
    how += ["--seed", str(SEEDS + number)]
    start = ["--init", str(WEIGHTS_FOLDER)] if number > 1 else []
    return ["train", *drawn, *how, *start, "--out", str(out / f"stage-{number}"), "--keep-every", "10"]


def pack(run: Path, number: int) -> None:
    """Write the best weights of a run in half precision, with the card of the run."""
    best = find_model_folder(run)
    model = load_model(best)
    if STAGES[number - 1].mean:
        add_weights(model, load_model(WEIGHTS_FOLDER))
    save_model(WEIGHTS_FOLDER, model.half(), {"stage": number}, (best / CARD_FILE).read_text("utf-8"))


def add_weights(model: ResNet18, other: ResNet18) -> None:
    """Replace the weights of a model, and the statistics of its norms, by the mean of them and of another model's."""
    others = other.state_dict()
    means = {name: (own + others[name]) / 2 for name, own in model.state_dict().items() if own.is_floating_point()}
    model.load_state_dict(means, strict=False)


def main() -> None:
    """Train one stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fonts", type=Path, nargs="+")
    parser.add_argument("--stage", type=int, default=len(STAGES))
    parser.add_argument("--out", type=Path, default=DATA_FOLDER)
    arguments = parser.parse_args()
    for folder in arguments.fonts:
        share_fonts(folder, arguments.out / "fonts")
    words = command(arguments.stage, arguments.out)
    print("captcha-ocr", *words, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "captcha_ocr", *words], check=True)
    pack(arguments.out / f"stage-{arguments.stage}", arguments.stage)


if __name__ == "__main__":
    main()
