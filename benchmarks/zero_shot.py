"""Score models on sets of captchas that they were not trained on, beside other programs.

    python benchmarks/zero_shot.py SETS/keras_v2 SETS/designs/* [--model MODEL] \\
        [--ddddocr PYTHON] [--rapidocr PYTHON]

Each folder has images and a labels.csv; those below one folder are a group. Texts are compared case
folded, blanks absent (labels write them as `_`): by what a reader says when it is told nothing but
the image, and when it is told the characters of the set. The share that is right with case stands
beside the first. Images are read one by one on one thread. Of ours also the calibration: of all
readings, and of those that --min-confidence 0.9 lets through. --ddddocr names a Python that has
ddddocr (pip install ddddocr), of which both models run; --rapidocr one that has rapidocr and
onnxruntime, of which recognition alone runs, and which cannot be told characters. At the end there
is a table of the groups, then JSON.
"""

import argparse
import base64
import csv
import io
import json
import operator
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from captcha_ocr import Recognizer
from captcha_ocr.charset import Charset
from captcha_ocr.scores import wilson_interval

SURE = 0.9  # confidence

# Run by the Python that has ddddocr: takes images in base64, and prints what it reads in them and
# its seconds.
DDDDOCR = """
import base64, json, sys, time
import onnxruntime
make = onnxruntime.InferenceSession
def on_one_thread(*arguments, **options):
    settings = options.setdefault("sess_options", onnxruntime.SessionOptions())
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    return make(*arguments, **options)
onnxruntime.InferenceSession = on_one_thread
import ddddocr
job = json.load(sys.stdin)
reader = ddddocr.DdddOcr(show_ad=False, beta=job["beta"])
if job["characters"]:
    reader.set_ranges(job["characters"])
images = [base64.b64decode(image) for image in job["images"]]
reader.classification(images[0])
started = time.perf_counter()
texts = [reader.classification(image) for image in images]
print(json.dumps([texts, time.perf_counter() - started]))
"""

# The same for RapidOCR.
RAPIDOCR = """
import base64, io, json, sys, time
import numpy
from PIL import Image
from rapidocr import RapidOCR
job = json.load(sys.stdin)
one_thread = {f"EngineConfig.onnxruntime.{name}_op_num_threads": 1 for name in ("intra", "inter")}
reader = RapidOCR(params={"Global.log_level": "error", **one_thread})
def read(image):
    pixels = numpy.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB"))
    found = reader(pixels[..., ::-1], use_det=False, use_cls=False, use_rec=True)
    return found.txts[0] if found.txts else ""
read(job["images"][0])
started = time.perf_counter()
texts = [read(image) for image in job["images"]]
print(json.dumps([texts, time.perf_counter() - started]))
"""


class Reader(NamedTuple):
    """A model of ours (a folder, or None for the one in the package), or another program, which
    `python` runs by a `script`.
    """

    name: str
    model: str | None = None
    python: str | None = None
    script: str = ""

    def read(
        self, paths: Sequence[Path], characters: str | None
    ) -> tuple[list[str], list[float], float]:
        """Return the texts of images, the confidences if they are known, and the seconds that
        reading took.
        """
        if self.python is None:
            recognizer = Recognizer(self.model, threads=1)
            known = known_to(recognizer.config.charset, characters or "")
            if known:
                recognizer = Recognizer(self.model, charset=known, threads=1, fold_case=True)
            recognizer.predict(paths[0])
            started = time.perf_counter()
            readings = [recognizer.predict(path) for path in paths]
            seconds = time.perf_counter() - started
            confidences = [reading.confidence for reading in readings]
            return [reading.text for reading in readings], confidences, seconds
        both = (
            characters and characters.lower() + characters.upper()
        )  # it often reads the other case
        images = [base64.b64encode(on_white(path)).decode() for path in paths]
        job = {"images": images, "characters": both, "beta": self.name.endswith("beta")}
        command = [self.python, "-c", self.script]
        result = subprocess.run(
            command, input=json.dumps(job), capture_output=True, text=True, check=True
        )
        texts, seconds = json.loads(result.stdout.splitlines()[-1])
        return texts, [], seconds


def on_white(path: Path) -> bytes:
    """Return the bytes of an image file with transparency on white.

    ddddocr would read it as black.
    """
    with Image.open(path) as image:
        if not image.has_transparency_data:
            return path.read_bytes()
        layer, stream = image.convert("RGBA"), io.BytesIO()
    flat = Image.new("RGBA", layer.size, "white")
    flat.alpha_composite(layer)
    flat.convert("RGB").save(stream, "PNG")
    return stream.getvalue()


def without_blanks(text: str) -> str:
    """Return a text without its blanks, which labels of sums write as `_`."""
    return text.replace(" ", "").replace("_", "")


def known_to(charset: Charset, characters: str) -> str:
    """Return those characters that a model knows, in both cases."""
    both = dict.fromkeys(characters.upper() + characters.lower())
    return "".join(character for character in both if not charset.unknown_characters(character))


def score(reader: Reader, folder: Path) -> dict[str, Any]:
    """Read the images of a folder, told nothing and told the characters; return the shares that are
    right.
    """
    with open(folder / "labels.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    paths = [folder / row["filename"] for row in rows]
    truths = [without_blanks(row["text"]) for row in rows]
    result: dict[str, Any] = {
        "group": folder.parent.name,
        "set": folder.name,
        "reader": reader.name,
        "images": len(rows),
    }
    for name, characters in (("free", None), ("told", "".join(sorted({*"".join(truths)})))):
        texts, confidences, seconds = reader.read(paths, characters)
        texts = list(map(without_blanks, texts))
        right = [
            text.casefold() == truth.casefold() for text, truth in zip(texts, truths, strict=True)
        ]
        result |= {
            name: sum(right) / len(rows),
            f"{name}_interval": wilson_interval(sum(right), len(rows)),
        }
        result["ms_per_image"] = 1000 * seconds / len(rows)
        if name == "free":
            result["with_case"] = sum(map(operator.eq, texts, truths)) / len(rows)
        if confidences and name == "free":
            result |= calibration(list(zip(confidences, right, strict=True)))
    return result


def calibration(judged: Sequence[tuple[float, bool]]) -> dict[str, Any]:
    """Return the calibration error over ten groups of readings, and how good those are that are
    sure.
    """
    ranked = np.array(sorted(judged, key=lambda each: each[0]), dtype=np.float64)  # (N, 2)
    groups = np.array_split(ranked, min(10, len(ranked)))
    gaps = [len(group) * abs(np.subtract(*group.mean(0))) for group in groups]
    sure = [each for each in judged if each[0] >= SURE]
    right = sum(is_right for _, is_right in sure)
    mean = sum(confidence for confidence, _ in sure) / max(1, len(sure))
    found = {
        "calibration_error": float(sum(gaps) / len(judged)),
        "sure": len(sure),
        "sure_confidence": mean,
    }
    return {
        **found,
        "sure_right": right,
        "sure_interval": wilson_interval(right, len(sure)) if sure else (0.0, 1.0),
    }


def describe_sure(result: dict[str, Any]) -> str:
    """Say how well the confidences of a reader are calibrated, if it has any."""
    if "sure" not in result:
        return ""
    low, high = result["sure_interval"]
    return (
        f"  calibration error {result['calibration_error']:.1%}; sure of {result['sure']:,}: "
        f"confidence {result['sure_confidence']:.2%}, right {low:.2%} to {high:.2%}"
    )


def tabulate(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of the groups: means in percent, told nothing and told the characters, and
    ours beside the best of the others for each set.
    """
    names = list(dict.fromkeys(result["reader"] for result in results))
    titles = ["group", "sets", *names, "best of the others", "ours is ahead on"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for group in dict.fromkeys(result["group"] for result in results):
        own = [result for result in results if result["group"] == group]
        by_reader = [
            {each["set"]: each for each in own if each["reader"] == name} for name in names
        ]
        lines.append(f"| {group} | {' | '.join(describe_group(by_reader))} |")
    return lines


def describe_group(by_reader: Sequence[dict[str, dict[str, Any]]]) -> list[str]:
    """Return the cells of a row: by_reader has the results of each reader by set, ours first."""
    ours, *others = by_reader
    cells = [str(len(ours))]
    for results in by_reader:
        free, told = (mean(each[kind] for each in results.values()) for kind in ("free", "told"))
        cells.append(f"{free:.1%}; {told:.1%}")
    if not others:
        return [*cells, "", ""]
    best = {name: max(results[name]["free"] for results in others) for name in ours}
    ahead = sum(ours[name]["free"] > share for name, share in best.items())
    return [*cells, f"{mean(best.values()):.1%}", f"{ahead} of {len(best)}"]


def main() -> None:
    """Score every reader on every folder.

    Print a line for each as it is done, then the table and JSON.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", help="folders with images and labels.csv")
    parser.add_argument(
        "--model", help="a model or run folder; without it, the model in the package"
    )
    parser.add_argument("--ddddocr", metavar="PYTHON", help="a Python that has ddddocr")
    parser.add_argument("--rapidocr", metavar="PYTHON", help="a Python that has rapidocr")
    arguments = parser.parse_args()
    readers = [Reader("ours", arguments.model)]
    if arguments.ddddocr:
        readers += [
            Reader(name, python=arguments.ddddocr, script=DDDDOCR)
            for name in ("ddddocr", "ddddocr beta")
        ]
    if arguments.rapidocr:
        readers.append(Reader("RapidOCR", python=arguments.rapidocr, script=RAPIDOCR))
    results = []
    for folder in arguments.folders:
        for reader in readers:
            result = score(reader, folder)
            results.append(result)
            low, high = result["free_interval"]
            print(
                f"{result['set']:24} {reader.name:13} free {result['free']:7.2%} "
                f"({low:.2%} to {high:.2%}), with case {result['with_case']:7.2%}  "
                f"told {result['told']:7.2%}  "
                f"{result['ms_per_image']:.2f} ms{describe_sure(result)}",
                file=sys.stderr,
            )
    print("\n".join(tabulate(results)), file=sys.stderr)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
