"""Measure how the cost of generate, prepare, an epoch of train, and eval grows with the number of
images.

    python benchmarks/growth.py FOLDER [--counts 1000 10000 100000 1000000]

The images have 80x30 pixels, a quarter of those of the captcha package, so that a million takes
half an hour. FOLDER must be new or empty, since finished steps are not repeated; a million needs 6
GB. For each command the table has seconds, and the memory of its largest process in MB (POSIX). The
last two columns are exponents: how the logarithm grows with that of the count, from the second
count on, since the first is mostly the start of the program. 1 is linear.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from peers import cold  # bench imports torch, and its memory would count as that of the commands

OCR = [sys.executable, "-m", "captcha_ocr"]
LOOK = ["--size", "80x30", "--font-sizes", "21,25,28"]


def commands_for(count: int, folder: Path) -> dict[str, list[str]]:
    """Return the commands for so many images, by name."""
    images, shards, run = (str(folder / f"{what}-{count}") for what in ("images", "shards", "run"))
    return {
        "generate": ["generate", "--count", str(count), "--out", images, *LOOK],
        "prepare": ["prepare", images, "--out", shards, "--size", "80x32"],
        "train --epochs 1": [
            "train",
            "--preset",
            "default",
            "--epochs",
            "1",
            "--data",
            shards,
            "--out",
            run,
        ],
        "eval": ["eval", "--model", run, "--labels", f"{images}/labels.csv"],
    }


def exponent(counts: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of the logarithm of costs over that of counts."""
    return statistics.linear_regression([*map(math.log, counts)], [*map(math.log, costs)]).slope


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    arguments = parser.parse_args()
    counts = arguments.counts
    if len(counts) < 3:
        parser.error("an exponent takes three counts or more")
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        parser.error(f"{arguments.folder} is not empty")
    costs: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        for name, command in commands_for(count, arguments.folder).items():
            seconds, memory, _ = cold([*OCR, *command, "--quiet"])
            costs.setdefault(name, []).append((seconds, memory))
            print(f"{count:,} {name}: {seconds:.1f} s", file=sys.stderr)
    print(
        "| command |",
        " | ".join(f"{count:,}" for count in counts),
        "| exponent of time | of memory |",
    )
    print("|---" * (len(counts) + 3) + "|")
    for name, row in costs.items():
        cells = " | ".join(f"{seconds:,.1f} s, {memory:,.0f} MB" for seconds, memory in row)
        times, memories = zip(*row[1:], strict=True)
        print(
            f"| `{name}` | {cells} | {exponent(counts[1:], times):.2f} "
            f"| {exponent(counts[1:], memories):.2f} |"
        )


if __name__ == "__main__":
    main()
