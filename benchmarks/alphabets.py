"""Train on texts of four of the 3,755 characters of GB2312's first level, and score the model on
fresh images.

    python benchmarks/alphabets.py FONT FOLDER [--count 200000] [--epochs 3] [--preset default]

FONT: a file such as wqy-zenhei.ttc, of Debian's package fonts-wqy-zenhei. FOLDER keeps the images,
the shards and the run; the same command resumes. Draws --count images and 2,000 fresh ones with the
captcha package's code, prepares, trains with --stream, since the images would fill 2 GB of memory,
and reads. Prints the seconds of each step and the scores as one JSON object.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

from bench import OCR, end_cleanly, epochs_of, hardware, output_of, versions

from captcha_ocr.charset import NAMED_ALPHABETS
from captcha_ocr.options.training import PRESETS

FRESH = 2000


def main() -> None:
    """Draw, prepare, train, read and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("font", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--preset", choices=list(PRESETS), default="default")
    arguments = parser.parse_args()
    if min(arguments.count, arguments.epochs) < 1 or not arguments.font.is_file():
        parser.error(
            f"--count and --epochs must be at least 1, and {arguments.font} must be a file"
        )
    end_cleanly()
    seconds: dict[str, float] = {}

    def run(step: str, *words: object) -> str:
        print(step, file=sys.stderr)
        started = time.perf_counter()
        output = output_of([*OCR, *map(str, words)])
        seconds[step] = round(time.perf_counter() - started, 1)
        return output

    folder, characters = arguments.folder, NAMED_ALPHABETS["chinese"]
    images, fresh, shards, out = (folder / name for name in ("images", "fresh", "shards", "run"))
    draw = ("generate", "--quiet", "--charset", characters, "--fonts", arguments.font)
    run("generate", *draw, "--count", arguments.count, "--out", images)
    run("fresh", *draw, "--start", arguments.count, "--count", FRESH, "--out", fresh)
    run(
        "prepare",
        "prepare",
        images,
        "--quiet",
        "--charset",
        characters,
        "--split",
        "96/2/2",
        "--out",
        shards,
    )
    options = ("--stream", "--preset", arguments.preset, "--epochs", arguments.epochs)
    run("train", "train", "--data", shards, "--out", out, *options)
    lines = run(
        "eval", "eval", "--model", out, "--labels", fresh / "labels.csv", "--json"
    ).splitlines()
    epochs = epochs_of(out)
    validation_exact = [row["validation_exact"] for row in epochs]
    largest_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    document = {
        "what": f"4 of {len(characters):,} characters",
        **vars(arguments) | {"font": arguments.font.name, "folder": str(folder)},
        "seconds": seconds,
        "training_images_per_s": [round(row["images_per_s"]) for row in epochs],
        "peak_mb": largest_kb // 1000,  # of the largest process
        "validation_exact": validation_exact,
        "fresh": json.loads(lines[-1])["summary"],
        "versions": versions(),
        "hardware": hardware("cpu"),
    }
    print(json.dumps(document, ensure_ascii=False))


if __name__ == "__main__":
    main()
