"""Compare the images per second of `train --draw` with those of the same training from shards, in
turn.

    python benchmarks/drawing.py [--count 2000] [--repeat 4 2 1] [--runs 3] [--preset default]

A run has 9 epochs; the first is the warm-up. The rates are those of its metrics.jsonl: they have
the time in which training waits for drawings, and not that of validation. One JSON object is
printed at the end.
"""

import argparse
import json
import tempfile
from pathlib import Path

from bench import (
    OCR,
    device_name,
    draw_images,
    end_cleanly,
    epochs_of,
    hardware,
    output_of,
    prepare_command,
    spread,
    versions,
)

from captcha_ocr.options.training import PRESETS

EPOCHS = 9  # two blocks and the first epoch of a third, with --repeat 4


def rate_of_run(source: list[str], out: Path, arguments: argparse.Namespace) -> float:
    """Train; return the images per second from the second epoch on."""
    command = [
        *OCR,
        "train",
        *source,
        "--preset",
        arguments.preset,
        "--epochs",
        str(EPOCHS),
        "--device",
        arguments.device,
    ]
    output_of([*command, "--out", str(out), "--force", "--quiet"])
    rates = [row["images_per_s"] for row in epochs_of(out)[1:]]
    return len(rates) / sum(1 / rate for rate in rates)


def main() -> None:
    """Measure each way of training in every round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000, help="images of an epoch")
    parser.add_argument("--repeat", type=int, nargs="+", default=[4, 2, 1])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--preset", default="default", choices=list(PRESETS))
    parser.add_argument("--device", default="auto", type=device_name)
    arguments = parser.parse_args()
    end_cleanly()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        images = draw_images(arguments.count * 10 // 8, scratch)
        output_of(prepare_command(arguments.preset, images, scratch / "shards"))
        drawn = ["--draw", "captcha", "--images", str(arguments.count), "--repeat"]
        ways = {"shards": ["--data", str(scratch / "shards")]}
        ways |= {f"repeat {number}": [*drawn, str(number)] for number in arguments.repeat}
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(1, arguments.runs + 1):
            for way, source in ways.items():
                rates[way].append(rate_of_run(source, scratch / "run", arguments))
            latest = ", ".join(f"{way} {found[-1]:.0f}" for way, found in rates.items())
            print(f"round {number}: {latest}", flush=True)
    ratios = {}
    for way, found in rates.items():
        ratios[way] = spread([a / b for a, b in zip(found, rates["shards"], strict=True)])
    facts = {"images_per_s": {way: spread(found) for way, found in rates.items()}, "ratio": ratios}
    print(json.dumps({**facts, "hardware": hardware(arguments.device), "versions": versions()}))


if __name__ == "__main__":
    main()
