"""Measure how the cost of generate, prepare, an epoch of train, and eval grows with the number of images.

    python benchmarks/growth.py FOLDER [--counts 1000,10000,100000,1000000]

The images have 80x30 pixels, a quarter of those of the captcha package, so that a million takes half an hour. FOLDER
needs 6 GB for a million. For each command the table has seconds, and the memory of its largest process in MB (POSIX).
The last two columns are exponents: how the logarithm grows with that of the count, from the second count on, since the
first is mostly the start of the program. 1 is linear.
"""

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

OCR = [sys.executable, "-m", "captcha_ocr"]
LOOK = ["--size", "80x30", "--font-sizes", "21,25,28"]


def commands_for(count: int, folder: Path) -> dict[str, list[str]]:
    """Return the commands for so many images, by name."""
    images, shards, run = (str(folder / f"{what}-{count}") for what in ("images", "shards", "run"))
    return {
        "generate": ["generate", "--count", str(count), "--out", images, *LOOK],
        "prepare": ["prepare", images, "--out", shards, "--size", "80x32"],
        "train --epochs 1": ["train", "--preset", "default", "--epochs", "1", "--data", shards, "--out", run],
        "eval": ["eval", "--model", run, "--labels", f"{images}/labels.csv"],
    }


def cost_of(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its seconds and the memory of its largest process in MB."""
    started = time.perf_counter()
    process = subprocess.Popen([*OCR, *command, "--quiet"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)} failed")
    return time.perf_counter() - started, usage.ru_maxrss / 1e3


def exponent(counts: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of the logarithm of costs over that of counts."""
    return statistics.linear_regression([*map(math.log, counts)], [*map(math.log, costs)]).slope


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--counts", default="1000,10000,100000,1000000")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.counts.split(",")]
    if len(counts) < 3:
        parser.error("an exponent takes three counts or more")
    costs: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        for name, command in commands_for(count, arguments.folder).items():
            costs.setdefault(name, []).append(cost_of(command))
            print(f"{count:,} {name}: {costs[name][-1][0]:.1f} s", file=sys.stderr)
    print("| command |", " | ".join(f"{count:,}" for count in counts), "| exponent of time | of memory |")
    print("|---" * (len(counts) + 3) + "|")
    for name, row in costs.items():
        cells = " | ".join(f"{seconds:,.1f} s, {memory:,.0f} MB" for seconds, memory in row)
        times, memories = zip(*row[1:], strict=True)
        print(f"| `{name}` | {cells} | {exponent(counts[1:], times):.2f} | {exponent(counts[1:], memories):.2f} |")


if __name__ == "__main__":
    main()
