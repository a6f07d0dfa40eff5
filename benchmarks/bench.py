"""Speeds, always as ratios: both sides run in turn, in pairs, on the same machine.

    python benchmarks/bench.py generate [--count 20000]    1 worker against 2
    python benchmarks/bench.py prepare IMAGES              captcha-ocr against naive.py

Whole processes are timed, from start to exit. The last line is one JSON object; RESULTS.md keeps
what was measured. IMAGES is a folder that `captcha-ocr generate` wrote.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

OCR = [sys.executable, "-m", "captcha_ocr"]
NAIVE = [sys.executable, str(Path(__file__).with_name("naive.py"))]


def seconds_of(command: list[str]) -> float:
    """The wall time of a command."""
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def megabytes_in(folder: Path) -> float:
    """The size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def pairs(slow: list[str], fast: list[str], outs: list[Path], runs: int) -> list[tuple[float, float]]:
    """Times of the slow and the fast command in turn, each into a new folder; one pair of warm-up."""
    times = []
    for number in range(runs + 1):
        for out in outs:
            shutil.rmtree(out, ignore_errors=True)
        pair = (seconds_of(slow), seconds_of(fast))
        print(f"{'warm-up' if number == 0 else f'pair {number}'}: {pair[0]:.2f} s, {pair[1]:.2f} s", file=sys.stderr)
        times.append(pair)
    return times[1:]


def report(what: str, times: list[tuple[float, float]], **facts: object) -> None:
    """Print the medians and the spread as one JSON object."""
    ratios = [slow / fast for slow, fast in times]
    print(
        json.dumps(
            {
                "what": what,
                "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
                "seconds": [statistics.median(side) for side in zip(*times, strict=True)],
                "runs": len(times),
                **facts,
                "versions": {name: version(name) for name in ("captcha", "numpy", "pillow", "torch")},
                "hardware": f"{os.cpu_count()} cores, {platform.machine()}",
            }
        )
    )


def bench_generate(arguments: argparse.Namespace, scratch: Path) -> None:
    """Drawing with one worker against two."""
    outs = [scratch / "one", scratch / "two"]
    command = [*OCR, "generate", "--quiet", "--count", str(arguments.count), "--out"]
    one, two = ([*command, str(out), "--workers", str(n)] for n, out in enumerate(outs, 1))
    times = pairs(one, two, outs, arguments.runs)
    report("generate: 1 worker / 2 workers", times, images=arguments.count)


def bench_prepare(arguments: argparse.Namespace, scratch: Path) -> None:
    """The source recipe's preparation against ours, at its input size and at the default one."""
    naive = scratch / "naive"
    for preset in ("seed", "default"):
        ours = scratch / preset
        command = [*OCR, "prepare", "--quiet", "--preset", preset, str(arguments.images), "--out", str(ours)]
        times = pairs([*NAIVE, str(arguments.images), str(naive)], command, [naive, ours], arguments.runs)
        report(
            f"prepare, preset {preset}: naive / captcha-ocr",
            times,
            images=len(list(arguments.images.glob("*.png"))),
            megabytes={"naive": megabytes_in(naive), "captcha-ocr": megabytes_in(ours)},
        )


def main() -> None:
    """Parse the arguments and run one benchmark in a folder that is removed afterwards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="pairs after the warm-up")
    commands = parser.add_subparsers(required=True)
    generate = commands.add_parser("generate")
    generate.add_argument("--count", type=int, default=20_000)
    generate.set_defaults(run=bench_generate)
    prepare = commands.add_parser("prepare")
    prepare.add_argument("images", type=Path)
    prepare.set_defaults(run=bench_prepare)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        arguments.run(arguments, Path(scratch))


if __name__ == "__main__":
    main()
