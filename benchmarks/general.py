"""Train the model that reads any design, in stages, on images that are drawn meanwhile.

    python benchmarks/general.py FONTS [--stage N] [--out FOLDER]

FONTS is a folder of fonts: those of docs/designs.md, unpacked or installed. Every SCORING-th family is kept for scoring
and never drawn in training. A stage starts from the weights that the stage before it left in benchmarks/general, in
half precision, and replaces them. A stage that was stopped continues.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.generation.fonts import find_faces
from captcha_ocr.inference.model_folder import CARD_FILE, find_model_folder
from captcha_ocr.network.weights import load_model, save_model

DATA_FOLDER = Path("data/general")  # links to fonts, and runs
WEIGHTS_FOLDER = Path(__file__).parent / "general"
SCORING = 7
SEEDS = 20_000  # the seed of stage n is n after this


@dataclass(frozen=True)
class Stage:
    """The options of train for a stage."""

    images: int  # of an epoch
    repeat: int
    epochs: int
    batch_size: int
    learning_rate: float


STAGES = (Stage(images=50_000, repeat=4, epochs=112, batch_size=128, learning_rate=4e-3),)


def share_fonts(fonts: Path, out: Path) -> None:
    """Make two folders of links: `train` and `score`, whose families differ."""
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
    save_model(WEIGHTS_FOLDER, load_model(best).half(), {"stage": number}, (best / CARD_FILE).read_text("utf-8"))


def main() -> None:
    """Train one stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fonts", type=Path)
    parser.add_argument("--stage", type=int, default=len(STAGES))
    parser.add_argument("--out", type=Path, default=DATA_FOLDER)
    arguments = parser.parse_args()
    share_fonts(arguments.fonts, arguments.out / "fonts")
    words = command(arguments.stage, arguments.out)
    print("captcha-ocr", *words, file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "captcha_ocr", *words], check=True)
    pack(arguments.out / f"stage-{arguments.stage}", arguments.stage)


if __name__ == "__main__":
    main()
