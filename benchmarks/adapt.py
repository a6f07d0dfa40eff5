"""Score what `adapt` makes of labelled sets whose labels it does not see.

    python benchmarks/adapt.py SETS/keras_v2 SETS/jaccount_var --second none
    python benchmarks/adapt.py SETS/ml2_kaggle6 --labels 30 --draws 3

A draw gives --images of a set to adapt, and tests on up to 1,000 of the others. A set without 300
others is tested on the same images, but for those with labels. Case is folded. Everything is in
--out, and finished steps are not repeated.

free: what the model in the package reads; told: the same, told what the folder has in common; then
the model that each round trained; adapted: the model that adapt keeps, or told if it keeps none;
expected: what adapt expects of it, with the range.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captcha_ocr import Recognizer
from captcha_ocr.inference.decoding import Reading
from captcha_ocr.options.shared import ReadingOptions
from captcha_ocr.scores import wilson_interval
from captcha_ocr.two_readers import TwoReaders, open_second_reader

COMMAND = [sys.executable, "-m", "captcha_ocr", "adapt"]
FEWEST_TESTED, MOST_TESTED = 300, 1000
EXPECTED = ("expected", "expected_low", "expected_high")
# What adapt would print of a folder of which it reads too little
REFUSED = {
    **dict.fromkeys(("charset", "lengths", *EXPECTED)),
    **{"rounds": [], "has_model": False},
    "doubt": "refused",
}

Rows = list[tuple[Path, str]]


def draw_rows(images: Path, count: int, seed: int) -> tuple[Rows, Rows]:
    """Return some images with their texts to adapt to, and those to test on."""
    with open(images / "labels.csv", encoding="utf-8", newline="") as stream:
        table = csv.DictReader(stream)
        rows = [(images / row["filename"], row["text"].replace(" ", "")) for row in table]
    random.Random(seed).shuffle(rows)
    count = min(count, len(rows) - FEWEST_TESTED)
    if count < FEWEST_TESTED:
        return rows, rows
    return rows[:count], rows[count : count + MOST_TESTED]


def link_images(rows: Rows, folder: Path, labels: int) -> Path:
    """Make a folder of links whose names say nothing; return a table of the first labels."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [("filename", "text")]
    for number, (path, text) in enumerate(rows):
        link = folder / f"{number:05d}{path.suffix}"
        if not link.is_symlink():
            link.symlink_to(path.resolve())
        lines.append((link.name, text))
    with open(folder.with_suffix(".csv"), "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(lines[: 1 + labels])
    return folder.with_suffix(".csv")


def count_right(reader: Recognizer, rows: Rows) -> int:
    """Return how many texts are read, but for their case."""
    results = reader.read_all(path for path, _ in rows)
    return sum(
        isinstance(result, Reading) and result.text.casefold() == text.casefold()
        for result, (_, text) in zip(results, rows, strict=True)
    )


def measure(images: Path, out: Path, given: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Adapt to one draw of a set, and score the model of each round."""
    learnt, tested = draw_rows(images, given.images, seed)
    if tested is learnt:
        tested = learnt[given.labels :]
    table = link_images(learnt, out / "images", given.labels)
    options = ["--out", out / "adapted", "--budget", given.budget, "--json", "--second"]
    if given.labels:
        options = ["--labels", table, *options]
    started = time.monotonic()
    done = subprocess.run(
        [*COMMAND, out / "images", *map(str, options), given.second], stdout=subprocess.PIPE
    )
    seconds = time.monotonic() - started
    facts = REFUSED if done.returncode == 2 else json.loads(done.stdout)
    reading = ReadingOptions()
    package = Recognizer.with_options("pretrained", reading)
    readers = TwoReaders(package, open_second_reader(given.second, out / "images", reading))
    told = readers.fitted_to(sorted((out / "images").iterdir())).recognizer
    runs = [out / "adapted" / f"round-{row['number']}" / "run" for row in facts["rounds"]]
    adapted = Recognizer(out / "adapted") if facts["has_model"] else told
    models = [package, told, *map(Recognizer, runs), adapted]
    return {
        "set": images.name,
        "draw": seed,
        "tested": len(tested),
        "right": [count_right(model, tested) for model in models],
        "labels": [row["labels"] for row in facts["rounds"]],
        "has_model": facts["has_model"],
        "expected": [facts[name] for name in EXPECTED],
        "doubt": facts["doubt"],
        "seconds": round(seconds),
        "charset": facts["charset"],
        "lengths": facts["lengths"],
    }


def describe(result: dict[str, Any]) -> str:
    """Return a row for people."""
    tested = result["tested"]
    *shares, adapted = (f"{right / tested:6.1%}" for right in result["right"])
    expected = result["doubt"]
    if not expected:
        expected = "expected {:.1%} ({:.1%} to {:.1%})".format(*result["expected"])
    return (
        f"{result['set']:24} {tested:5} {' '.join(shares)}; adapted {adapted}, {expected}, "
        f"{result['seconds']} s"
    )


def pool(results: Sequence[dict[str, Any]]) -> str:
    """Return what was read of all images: free, told, and by the best round."""
    tested = sum(result["tested"] for result in results)
    words = []
    for name, place in {"free": 0, "told": 1, "adapted": -1}.items():
        right = sum(result["right"][place] for result in results)
        low, high = wilson_interval(right, tested)
        words.append(f"{name} {right / tested:.2%} ({low:.2%} to {high:.2%})")
    return f"{', '.join(words)} of {tested:,}"


def main() -> None:
    """Adapt to each set, and print a row for each and the total."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path, nargs="+", help="a folder with images and labels.csv")
    parser.add_argument("--images", type=int, default=1500, help="to adapt to, at most")
    parser.add_argument("--labels", type=int, default=0, help="of these that are given")
    parser.add_argument("--second", default="none", help="as for adapt")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--budget", type=int, default=10, help="minutes")
    parser.add_argument("--out", type=Path, default=Path("runs/adapt"))
    given = parser.parse_args()
    results = []
    for images in given.sets:
        for seed in range(given.draws):
            kind = f"{given.labels}-labels-{os.path.basename(given.second)}-{seed}"
            results.append(measure(images, given.out / f"{images.name}-{kind}", given, seed))
            print(describe(results[-1]), flush=True)
            with open(given.out / "results.jsonl", "a", encoding="utf-8") as stream:
                stream.write(json.dumps(results[-1]) + "\n")
    print(pool(results))


if __name__ == "__main__":
    main()
