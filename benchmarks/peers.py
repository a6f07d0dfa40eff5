"""Compare the model in the package with ddddocr 1.6.1 on the same images, in turn.

    python -m venv DD && DD/bin/pip install ddddocr==1.6.1
    python benchmarks/peers.py --ddddocr DD/bin/python

It measures the accuracy on new images of the captcha package, the time from the start of a process
to the text, the time for one image in one thread, and the speed with a thousand files. Their
accuracy is that of the better of their two models, ignoring case; their speed is that of the
default, which is faster. The workers run this file too, with either side's Python, so nothing of
ours is imported at the top.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

SHORTEST = (
    "import sys, ddddocr; "
    "print(ddddocr.DdddOcr(show_ad=False).classification(open(sys.argv[1], 'rb').read()))"
)
SEED = 5001
COLD_RUNS, ALONE, TOGETHER = 15, 300, 1000
WARM_UP = 30  # images
MODELS: dict[str, tuple[str, ...]] = {"its default model": (), "its beta model": ("--beta",)}

Read = Callable[[Sequence[str]], Iterable[str]]  # paths to texts


def ours(arguments: argparse.Namespace) -> Read:
    """Return our reader, which reads a generator of paths in batches."""
    from captcha_ocr import Recognizer

    recognizer = Recognizer(arguments.model, engine=arguments.engine)
    if arguments.worker == "alone":
        return lambda contents: (recognizer.predict(content).text for content in contents)
    return lambda paths: (reading.text for reading in recognizer.predict(path for path in paths))


def theirs(arguments: argparse.Namespace) -> Read:
    """Return their reader, which has no batches; `--beta` is their other model."""
    import ddddocr

    reader = ddddocr.DdddOcr(show_ad=False, beta=arguments.beta)
    if arguments.worker == "alone":
        return lambda contents: (reader.classification(content) for content in contents)
    return lambda paths: (reader.classification(Path(path).read_bytes()) for path in paths)


def work(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a worker prints: texts, or images per second."""
    if arguments.worker == "alone" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    read = (theirs if arguments.peer else ours)(arguments)
    paths = sorted(str(path) for path in arguments.images.glob("*.png"))
    if arguments.worker == "codes":
        return {"codes": dict(zip(paths, read(paths), strict=True))}
    alone = arguments.worker == "alone"
    images: list[Any] = paths[:TOGETHER]
    if alone:
        images = [Path(path).read_bytes() for path in paths[:ALONE]]
    for _ in read(images[:WARM_UP] if alone else images):
        pass
    started = time.perf_counter()
    for _ in read(images):
        pass
    return {"images_per_s": len(images) / (time.perf_counter() - started)}


def own_options(arguments: argparse.Namespace) -> list[str]:
    """Return the options that choose our model, for a worker and for `eval`."""
    return [
        "--engine",
        arguments.engine,
        *(["--model", arguments.model] if arguments.model else []),
    ]


def ask(python: str, worker: str, images: Path, *options: str) -> dict[str, Any]:
    """Run a worker of one side; returns what it prints."""
    command = [python, __file__, "--worker", worker, "--images", str(images), *options]
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if worker == "alone" else {})
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return answer


def draw(folder: Path, count: int, warp: str) -> Path:
    """Draw new images by the captcha package's own code; returns their folder."""
    options = [
        "--count",
        str(count),
        "--seed",
        str(SEED),
        "--warp",
        warp,
        "--renderer",
        "package",
        "--quiet",
    ]
    command = [
        sys.executable,
        "-m",
        "captcha_ocr",
        "generate",
        "--out",
        str(folder / warp),
        *options,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / warp


def exact_matches(texts: dict[str, str]) -> int:
    """Count the texts that are in their file's name, ignoring case."""
    return sum(text.upper() == Path(path).stem.split("-")[1] for path, text in texts.items())


def accuracy(arguments: argparse.Namespace, images: Path) -> tuple[float, str]:
    """Return our accuracy, and a row of the table."""
    from captcha_ocr.scores import wilson_interval

    own = exact_matches(ask(sys.executable, "codes", images, *own_options(arguments))["codes"])
    other = {
        model: exact_matches(ask(arguments.ddddocr, "codes", images, "--peer", *options)["codes"])
        for model, options in MODELS.items()
    }
    better = max(other, key=lambda model: other[model])
    cells = []
    for count in (own, other[better]):
        low, high = wilson_interval(count, arguments.count)
        cells.append(f"{count / arguments.count:.2%} ({low:.2%} to {high:.2%})")
    return (
        own / arguments.count,
        f"| exact, {arguments.count:,} images, warp {images.name} | {cells[0]} "
        f"| {cells[1]}, {better} | |",
    )


def cold(command: Sequence[str]) -> tuple[float, float, str]:
    """Run a process; returns its seconds, its peak memory in MB, and what it printed (POSIX)."""
    with tempfile.TemporaryFile() as output, open(os.devnull, "w") as nowhere:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed")
        output.seek(0)
        return seconds, usage.ru_maxrss / 1e3, output.read().decode()


def cold_starts(
    arguments: argparse.Namespace, image: Path
) -> tuple[list[list[float]], list[list[float]]]:
    """Measure seconds and MB of both sides, in turn."""
    own = [
        str(Path(sys.executable).with_name("captcha-ocr")),
        "eval",
        *own_options(arguments),
        str(image),
    ]
    commands = own, [arguments.ddddocr, "-c", SHORTEST, str(image)]
    seconds: list[list[float]] = [[], []]
    memory: list[list[float]] = [[], []]
    for number in range(COLD_RUNS + 2):
        for side, command in enumerate(commands):
            taken, peak, printed = cold(command)
            if side == 0 and printed.split("\t")[1] != image.stem.split("-")[1]:
                sys.exit(f"{image} was read wrong: {printed}")
            if number >= 2:
                seconds[side].append(taken)
                memory[side].append(peak)
    return seconds, memory


def spread(values: Sequence[float], digits: int) -> str:
    """Format median (minimum to maximum)."""
    median = statistics.median(values)
    return f"{median:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def row(what: str, sides: Sequence[Sequence[float]], digits: int) -> str:
    """Format a row of the table; its last column is our value divided by theirs, round by round."""
    ratios = [own / other for own, other in zip(*sides, strict=True)]
    own, other = (spread(side, digits) for side in sides)
    return f"| {what} | {own} | {other} | {spread(ratios, 2)} |"


def in_turn(arguments: argparse.Namespace, worker: str, images: Path) -> list[list[float]]:
    """Measure the images per second of both sides, in turn."""
    rates: list[list[float]] = [[], []]
    for _ in range(arguments.runs):
        rates[0].append(
            ask(sys.executable, worker, images, *own_options(arguments))["images_per_s"]
        )
        rates[1].append(ask(arguments.ddddocr, worker, images, "--peer")["images_per_s"])
    return rates


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    """Measure, and print the table and which targets are met."""
    images = {warp: draw(folder, arguments.count, warp) for warp in ("package", "classic")}
    samples = Path(__file__).parent.parent / "data" / "samples"
    seconds, memory = cold_starts(arguments, sorted(samples.glob("*.png"))[0])
    rates = in_turn(arguments, "alone", images["package"])
    alone = [[1000 / rate for rate in side] for side in rates]
    together = in_turn(arguments, "together", images["package"])
    scores = {warp: accuracy(arguments, folder) for warp, folder in images.items()}
    print("| what | ours | ddddocr | ratio |\n|---|---|---|---|")
    for _, line in scores.values():
        print(line)
    print(row("from process start to the text, s", seconds, 3))
    print(row("most memory of that process, MB", memory, 1))
    print(row("one image at a time, one thread, ms", alone, 2))
    print(row(f"{TOGETHER:,} files, images/s", together, 0))
    median = statistics.median
    start, one, many = (0.7, 0.25, 10) if arguments.model else (0.8, 0.5, 5)
    targets = [
        (f"at most {start} of the time to start", median(seconds[0]) <= start * median(seconds[1])),
        ("no more memory", median(memory[0]) <= median(memory[1])),
        (f"at most {one} of the time alone", median(alone[0]) <= one * median(alone[1])),
        (f"{many} times as many together", median(together[0]) >= many * median(together[1])),
    ]
    if not arguments.model:
        targets.append(("99.5 % of default images", scores["package"][0] >= 0.995))
        targets.append(("99 % of the classic warp", scores["classic"][0] >= 0.99))
    for target, met in targets:
        print(f"{target}: {'met' if met else 'not met'}", file=sys.stderr)


def main() -> None:
    """Run a worker or the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ddddocr", help="the python of an environment with ddddocr")
    parser.add_argument("--count", type=int, default=5000, help="images of each warp")
    parser.add_argument("--runs", type=int, default=5, help="rounds of what is timed")
    parser.add_argument("--engine", default="auto", help="ours")
    parser.add_argument(
        "--model", help="ours: a model or run folder  [default: the model in the package]"
    )
    parser.add_argument("--worker", choices=["codes", "alone", "together"], help=argparse.SUPPRESS)
    parser.add_argument("--images", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--beta", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(work(arguments)))
        return
    if shutil.which(arguments.ddddocr or "") is None:
        parser.error("--ddddocr must name the python that has it")
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, Path(folder))


if __name__ == "__main__":
    main()
