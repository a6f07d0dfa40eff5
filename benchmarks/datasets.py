"""Score a labelled set of captchas after preparing it and training on it with default options.

    python benchmarks/datasets.py SETS/wp_rsc                           the split in its labels.csv
    python benchmarks/datasets.py SETS/keras_v2 --folds 5               the total of five folds
    python benchmarks/datasets.py SETS/keras_v2 --draws 5 --labels 300  five random draws of 300,
                                                                        tested on the rest

Arguments after `--` go to train. Everything is in --out, and finished steps are not repeated. Only
the command line is used.
"""

import argparse
import csv
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from captcha_ocr.scores import Scores
from captcha_ocr.system.console import duration

COMMAND = [sys.executable, "-m", "captcha_ocr"]


def captcha_ocr(*arguments: object) -> None:
    """Run a command; its results go to stderr."""
    subprocess.run([*COMMAND, *map(str, arguments)], check=True, stdout=sys.stderr)


def score_of(run: Path) -> tuple[Scores, float]:
    """Return the test scores of a finished run, and its seconds of training."""
    finished = json.loads((run / "run.json").read_bytes())["finished"]
    return Scores.from_counts(finished["test"]), finished["seconds"]


def train_split(
    images: Path, out: Path, options: list[str], size: list[str], labels: Path | None = None
) -> list[Path]:
    """Prepare and train on one split; returns the run folder, in a list."""
    labels_option = [] if labels is None else ["--labels", labels]
    captcha_ocr("prepare", images, "--out", out / "shards", *size, *labels_option)
    captcha_ocr("train", "--data", out / "shards", "--out", out / "run", *options)
    return [out / "run"]


def train_folds(
    images: Path, out: Path, options: list[str], size: list[str], folds: int
) -> list[Path]:
    """Prepare and train on every fold; returns the run folders."""
    captcha_ocr("prepare", images, "--out", out / "shards", *size, "--folds", folds)
    captcha_ocr(
        "train", "--cross-validate", "--data", out / "shards", "--out", out / "run", *options
    )
    return [out / "run" / f"fold-{fold}" for fold in range(1, folds + 1)]


def train_draws(
    images: Path, out: Path, options: list[str], size: list[str], draws: int, count: int
) -> list[Path]:
    """Train on random draws of `count` labels, a tenth of them for validation, and test on the
    rest.
    """
    runs = []
    with open(images / "labels.csv", encoding="utf-8", newline="") as stream:
        rows = [(row["filename"], row["text"]) for row in csv.DictReader(stream)]
    for seed in range(draws):
        drawn = random.Random(seed).sample(rows, len(rows))
        folder = out / f"draw-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        splits = (
            ["val"] * (count // 10)
            + ["train"] * (count - count // 10)
            + ["test"] * (len(rows) - count)
        )
        with open(folder / "labels.csv", "w", encoding="utf-8", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(["filename", "text", "split"])
            table.writerows((*row, split) for row, split in zip(drawn, splits, strict=True))
        runs += train_split(images, folder, options, size, folder / "labels.csv")
    return runs


def main() -> None:
    """Train, and print the total of the scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, help="a folder with images and labels.csv")
    parser.add_argument("--folds", type=int)
    parser.add_argument("--draws", type=int)
    parser.add_argument("--labels", type=int, default=300, help="how many, in a draw")
    parser.add_argument("--preset", help="whose input size prepare takes")
    parser.add_argument("--out", type=Path, default=Path("runs/datasets"))
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, options = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    images, folds, draws = arguments.images, arguments.folds, arguments.draws
    size = ["--preset", arguments.preset] if arguments.preset else []
    kind = f"{arguments.labels}-labels" if draws else "split"
    if folds:
        kind = f"{folds}-folds"
    out = arguments.out / "-".join(
        [images.name, kind, *(Path(option).name.strip("-") for option in [*size, *options])]
    )
    if folds:
        runs = train_folds(images, out, options, size, folds)
    elif draws:
        runs = train_draws(images, out, options, size, draws, arguments.labels)
    else:
        runs = train_split(images, out, options, size)
    scores = [score_of(run) for run in runs]
    for run, (score, seconds) in zip(runs, scores, strict=True):
        print(
            f"{run}: {score.exact:,} of {score.images:,} exact, {score.exact_match:.2%}; "
            f"trained {duration(seconds)}"
        )
    print(sum((score for score, _ in scores), Scores(0, 0, Counter())))


if __name__ == "__main__":
    main()
