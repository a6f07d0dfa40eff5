"""Measure images per second, and the ratio to another program that runs in turn on the same
machine.

    python benchmarks/bench.py {generate,prepare,train,eval,all} [--preset P] [--device D]
                               [--against naive] [--json]
    python benchmarks/bench.py train --against streamed

generate  drawing on one core, without PNG; `naive` is the code of the captcha package
prepare   the whole process of `captcha-ocr prepare`, against naive.py; the images are in the
          system's cache
train     the second epoch in the metrics.jsonl of `captcha-ocr train` (the first is the warm-up),
          against naive.py or against --stream
eval      reading PNG files after the first batch, against naive.py, which reads one by one

One warm-up round, then --runs rounds; median, minimum and maximum. The last line of each benchmark
is one JSON object. Each benchmark draws its own images, --count of them; naive.py needs whole
thousands. RESULTS.md has the results.
"""

import argparse
import itertools
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from captcha_ocr.diagnostics.doctor import processor_name
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.network.device import choose_device, describe_device
from captcha_ocr.options.training import PRESETS
from captcha_ocr.system.memory import keep_freed_memory

OCR = [sys.executable, "-m", "captcha_ocr"]
NAIVE = [sys.executable, str(Path(__file__).with_name("naive.py"))]
COUNTS = {"generate": 1000, "prepare": 10_000, "train": 5000, "eval": 10_000}
MIN_COUNT = 200  # images: reading is measured from the second batch on

Rate = Callable[[], float]  # runs once, and returns images per second


@contextmanager
def running(command: list[str], stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a command whose standard output is read; terminate it afterwards, so that it can clean
    up.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()  # does nothing if it has ended; `with` waits for it


def output_of(command: list[str]) -> str:
    """Return the standard output of a command; exit with its last line of stderr if it fails."""
    with running(command, stderr=subprocess.PIPE) as process:
        output, errors = process.communicate()
    if process.returncode:
        sys.exit(
            f"{' '.join(command)} failed: {(errors.strip() or 'no word why').splitlines()[-1]}"
        )
    return output


def end_cleanly() -> None:
    """Make Ctrl-C and SIGTERM end the running command and remove the scratch folder, without a
    traceback.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def rate_of(
    count: int, work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the images per second of work on `count` images."""
    started = clock()
    work()
    return count / (clock() - started)


def draw_images(count: int, scratch: Path, seed: int = 0) -> Path:
    """Generate `count` images; returns their folder."""
    folder = scratch / "images"
    output_of(
        [
            *OCR,
            "generate",
            "--quiet",
            "--count",
            str(count),
            "--seed",
            str(seed),
            "--out",
            str(folder),
        ]
    )
    return folder


def prepare_command(preset: str, images: Path, out: Path) -> list[str]:
    """Return the command that prepares a folder of images."""
    return [*OCR, "prepare", "--quiet", "--preset", preset, str(images), "--out", str(out)]


def epochs_of(run: Path) -> list[dict[str, float]]:
    """Return the rows of metrics that `captcha-ocr train` wrote for its epochs."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["by"] == "epoch"]


def bench_generate(arguments: argparse.Namespace, count: int, scratch: Path) -> tuple[Rate, Rate]:
    """Compare our drawing with the package's, both in this process.

    Every round draws the same images, so that the first one, the warm-up, fills the stores of
    glyphs; with --fresh others, of which glyphs may be missing there.
    """
    from captcha.image import ImageCaptcha

    from captcha_ocr.charset import NAMED_ALPHABETS
    from captcha_ocr.generation.drawer import drawer_of, plan_drawing
    from captcha_ocr.options.drawing import DrawingOptions

    options = DrawingOptions(design=arguments.design, fonts=tuple(arguments.fonts))
    drawer, package = drawer_of(plan_drawing(options)), ImageCaptcha()
    texts = ["".join(random.choices(NAMED_ALPHABETS["upper-alnum"], k=4)) for _ in range(count)]

    starts = itertools.count(0, count if arguments.fresh else 0)

    def draw_ours() -> None:
        start = next(starts)
        for index in range(start, start + count):
            drawer.draw(index)

    def draw_theirs() -> None:
        for text in texts:
            package.generate_image(text)

    works = draw_ours, draw_theirs
    # The time of this process alone, since others beside it change from round to round.
    ours, theirs = (partial(rate_of, count, work, time.process_time) for work in works)
    return ours, theirs


def bench_prepare(arguments: argparse.Namespace, count: int, scratch: Path) -> tuple[Rate, Rate]:
    """Compare whole processes, each with a new folder and with images that are already in the
    system's cache.
    """
    images, out = draw_images(count, scratch), scratch / "shards"
    ours = prepare_command(arguments.preset, images, out)
    naive = [*NAIVE, "prepare", str(images), str(out)]

    def rate(command: list[str]) -> float:
        shutil.rmtree(out, ignore_errors=True)
        for path in images.iterdir():
            path.read_bytes()
        return rate_of(count, lambda: output_of(command))

    return lambda: rate(ours), lambda: rate(naive)


def bench_train(arguments: argparse.Namespace, count: int, scratch: Path) -> tuple[Rate, Rate]:
    """Compare the second epoch with that of naive.py, or of our training from streamed shards."""
    images, shards, naive_shards, run = (
        draw_images(count, scratch),
        scratch / "shards",
        scratch / "naive",
        scratch / "run",
    )
    output_of(prepare_command(arguments.preset, images, shards))
    if arguments.against == "naive":
        output_of([*NAIVE, "prepare", str(images), str(naive_shards)])
    command = [
        *OCR,
        "train",
        "--preset",
        arguments.preset,
        "--data",
        str(shards),
        "--out",
        str(run),
        "--epochs",
        "2",
    ]

    def ours(*options: str) -> float:
        seed = str(random.randrange(2**32))
        output_of([*command, *options, "--device", arguments.device, "--force", "--seed", seed])
        return epochs_of(run)[1]["images_per_s"]

    def naive() -> float:
        rows = output_of([*NAIVE, "train", str(naive_shards), "2", arguments.device]).splitlines()
        return float(json.loads(rows[1])["images_per_s"])

    return ours, naive if arguments.against == "naive" else lambda: ours("--stream")


def bench_eval(arguments: argparse.Namespace, count: int, scratch: Path) -> tuple[Rate, Rate]:
    """Compare reading files, with random weights: they are as fast as trained ones."""
    from captcha_ocr.charset import Charset
    from captcha_ocr.input_size import GENERATED
    from captcha_ocr.network.resnet import ResNet18
    from captcha_ocr.network.torch_engine import TorchEngine
    from captcha_ocr.options.model import Lengths, ModelConfig
    from captcha_ocr.options.preparation import PrepareConfig
    from captcha_ocr.recognizer import Recognizer
    from captcha_ocr.system.parallel import JOBS_PER_SLICE

    keep_freed_memory()  # like the command
    images = draw_images(count, scratch)
    paths, preset = sorted(map(str, images.glob("*.png"))), PRESETS[arguments.preset]
    size = PrepareConfig(preset=arguments.preset).input_size(GENERATED)
    config = ModelConfig(
        Charset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"), Lengths(4, 4), size, preset.network
    )
    recognizer = Recognizer(TorchEngine(ResNet18(config), choose_device(arguments.device)))

    def ours() -> float:
        # An endless list: as many images are read ahead at the end as at the start.
        with closing(recognizer.read_all(itertools.cycle(paths))) as readings:
            list(itertools.islice(readings, JOBS_PER_SLICE))
            return rate_of(
                count - JOBS_PER_SLICE,
                lambda: list(itertools.islice(readings, count - JOBS_PER_SLICE)),
            )

    def naive() -> float:
        return float(
            json.loads(output_of([*NAIVE, "eval", str(images), arguments.device]))["images_per_s"]
        )

    return ours, naive


def device_name(name: str) -> str:
    """Return the device that --device means; ArgumentTypeError if there is no such device."""
    try:
        return str(choose_device(name))
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


BENCHES = {
    "generate": bench_generate,
    "prepare": bench_prepare,
    "train": bench_train,
    "eval": bench_eval,
}


def spread(rates: list[float]) -> dict[str, float]:
    """Return the median, minimum and maximum of rates."""
    return {
        "median": statistics.median(rates),
        "min": min(rates),
        "max": max(rates),
        "runs": len(rates),
    }


def measure(what: str, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run one benchmark: a warm-up, then rounds in which both programs take turns."""
    count = arguments.count or COUNTS[what]
    sides = BENCHES[what](arguments, count, scratch)[: 2 if arguments.against else 1]
    rounds = []
    for number in range(arguments.runs + 1):
        rounds.append([rate() for rate in sides])
        name = f"round {number}" if number else "warm-up"
        print(
            f"{what} {name}: {', '.join(f'{rate:,.1f} images/s' for rate in rounds[-1])}",
            file=sys.stderr,
        )
    ours, *other = (list(side) for side in zip(*rounds[1:], strict=True))
    document: dict[str, Any] = {
        "what": what,
        "preset": arguments.preset,
        "device": arguments.device,
    }
    document |= {"images": count, "images_per_s": spread(ours)}
    if other:
        ratios = [mine / theirs for mine, theirs in zip(ours, other[0], strict=True)]
        document |= {f"{arguments.against}_images_per_s": spread(other[0]), "ratio": spread(ratios)}
    return document | {"versions": versions(), "hardware": hardware(arguments.device)}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    packages = ("captcha-ocr", "captcha", "numpy", "pillow", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def hardware(device: str) -> str:
    """Name the CPU and, if it computes, the GPU."""
    cpu = f"{os.cpu_count()} cores, {processor_name()}"
    return cpu if device == "cpu" else f"{cpu}; {describe_device(choose_device(device))}"


def check_arguments(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, whats: list[str]
) -> None:
    """Refuse arguments with nothing to measure, or with unequal work to compare."""
    if arguments.runs < 1:
        parser.error(f"--runs must be at least 1, not {arguments.runs}")
    if arguments.count is not None and arguments.count < MIN_COUNT:
        parser.error(f"--count must be at least {MIN_COUNT}, not {arguments.count}")
    if arguments.against == "streamed" and whats != ["train"]:
        parser.error("--against streamed is for train alone")
    thousands = (arguments.count or 0) % 1000 == 0
    if arguments.against == "naive" and not thousands and whats != ["generate"]:
        parser.error(f"naive.py takes whole thousands of images, not {arguments.count}")


def main() -> None:
    """Run the benchmarks, each in a temporary folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*BENCHES, "all"])
    parser.add_argument("--preset", choices=list(PRESETS), default="default")
    parser.add_argument("--device", type=device_name, default="auto")
    parser.add_argument("--against", choices=["naive", "streamed"])
    parser.add_argument("--count", type=int, help=f"images (default: {COUNTS})")
    parser.add_argument("--design", default="captcha", help="what generate draws")
    parser.add_argument(
        "--fonts", action="append", default=[], help="a folder of fonts for generate"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="generate draws other images in each round"
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds after the warm-up")
    parser.add_argument("--json", action="store_true", help="print JSON alone on stdout")
    arguments = parser.parse_args()
    whats = list(BENCHES) if arguments.what == "all" else [arguments.what]
    check_arguments(parser, arguments, whats)
    end_cleanly()
    for what in whats:
        try:
            with tempfile.TemporaryDirectory() as scratch:
                document = measure(what, arguments, Path(scratch))
        except CaptchaOcrError as error:  # a design or fonts that are not there
            sys.exit(f"bench.py: {error}")
        if not arguments.json:
            ours, ratio = document["images_per_s"], document.get("ratio")
            line = (
                f"{what}: {ours['median']:,.0f} images/s ({ours['min']:,.0f} to {ours['max']:,.0f})"
            )
            if ratio:
                line += (
                    f", {ratio['median']:.2f} times {arguments.against} "
                    f"({ratio['min']:.2f} to {ratio['max']:.2f})"
                )
            print(line)
        print(json.dumps(document))


if __name__ == "__main__":
    main()
