"""Compare the seconds that training and naive.py need to reach an exact match on validation images.

    python benchmarks/time_to_accuracy.py --preset accuracy --epochs 5
                                          [--exact 0.8] [--count 10000] [--runs 3]

Every round draws its own images, prepares them for both (80/10/10), and trains one after the other:
ours for all its epochs, because its learning rate depends on their number, naive.py until it
reaches the exact match. The seconds run from the first training step to the end of that validation.
Prints a line for each round, and then one JSON object, also with the exact match of both after
every epoch.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench import (
    NAIVE,
    OCR,
    device_name,
    draw_images,
    end_cleanly,
    epochs_of,
    hardware,
    output_of,
    prepare_command,
    running,
    spread,
    versions,
)

from captcha_ocr.options.training import PRESETS

NAIVE_EPOCHS = "100"  # at most

Rows = list[dict[str, float]]  # one for each epoch


def ours(images: Path, scratch: Path, arguments: argparse.Namespace) -> Rows:
    """Run `captcha-ocr train`; returns its epochs."""
    shards, run = scratch / "shards", scratch / "run"
    output_of(prepare_command(arguments.preset, images, shards))
    options = [
        "--preset",
        arguments.preset,
        "--epochs",
        str(arguments.epochs),
        "--device",
        arguments.device,
    ]
    output_of([*OCR, "train", *options, "--data", str(shards), "--out", str(run)])
    return epochs_of(run)


def naive(images: Path, scratch: Path, arguments: argparse.Namespace) -> Rows:
    """Run naive.py; returns its epochs, up to the one that reaches the exact match."""
    output_of([*NAIVE, "prepare", str(images), str(scratch / "naive")])
    command = [*NAIVE, "train", str(scratch / "naive"), NAIVE_EPOCHS, arguments.device]
    rows: Rows = []
    with running(command) as process:
        for line in process.stdout or ():
            rows.append(json.loads(line))
            if rows[-1]["validation_exact"] >= arguments.exact:
                return rows
        if process.wait():
            sys.exit("naive.py failed; what it says stands above")
    return rows


def exact_of(rows: Rows) -> list[float]:
    """Return the exact match on validation images after each epoch."""
    return [row["validation_exact"] for row in rows]


def seconds_to(rows: Rows, exact: float) -> float:
    """Return the seconds until the first epoch that reached the exact match; exit if none did."""
    for row in rows:
        if row["validation_exact"] >= exact:
            return row["seconds"]
    best = max(exact_of(rows), default=0.0)
    sys.exit(f"{exact:.0%} was not reached, but {best:.2%} after {len(rows)} epochs")


def one_round(
    number: int, arguments: argparse.Namespace
) -> tuple[float, float, list[float], list[float]]:
    """Run both on the same images; returns the seconds of each, and the exact match of each after
    every epoch.
    """
    with tempfile.TemporaryDirectory() as scratch:
        images = draw_images(arguments.count, Path(scratch), seed=number)
        rows = ours(images, Path(scratch), arguments)
        seconds = seconds_to(rows, arguments.exact)
        naive_rows = naive(images, Path(scratch), arguments)
    naive_seconds = seconds_to(naive_rows, arguments.exact)
    print(f"round {number}: {seconds:,.1f} s, naive.py {naive_seconds:,.1f} s", file=sys.stderr)
    return seconds, naive_seconds, exact_of(rows), exact_of(naive_rows)


def main() -> None:
    """Run the rounds and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=list(PRESETS), default="accuracy")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--exact", type=float, default=0.8)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--device", type=device_name, default="auto")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if min(arguments.epochs, arguments.runs) < 1 or not 0 < arguments.exact <= 1:
        parser.error("--epochs and --runs must be at least 1, and --exact above 0 and at most 1")
    if arguments.count < 1000 or arguments.count % 1000:
        parser.error(
            "--count must be whole thousands of images, which naive.py takes, "
            f"not {arguments.count}"
        )
    end_cleanly()
    rounds = [one_round(number, arguments) for number in range(1, arguments.runs + 1)]
    mine, theirs, exact, naive_exact = (list(column) for column in zip(*rounds, strict=True))
    document = {
        "what": f"seconds to {arguments.exact:.0%} exact",
        "preset": arguments.preset,
        "device": arguments.device,
        "images": arguments.count,
        "seconds": spread(mine),
        "naive_seconds": spread(theirs),
        "ratio": spread([slow / fast for fast, slow in zip(mine, theirs, strict=True)]),
        "validation_exact": exact,
        "naive_validation_exact": naive_exact,
        "versions": versions(),
        "hardware": hardware(arguments.device),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
