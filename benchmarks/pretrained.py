"""Make the models in the package: train them on images that are drawn meanwhile, pack them, score
them.

    make pretrained
    python benchmarks/pretrained.py FONTS... [--model NAME] [--stage N | --pack [--scores FILE]]

FONTS are folders of fonts: those of docs/designs.md and of benchmarks/fonts.txt. NAME is general or
chinese. A stage starts from the weights that the stage before it left, in half precision; if it
left none here, from those in the package. A stage that was stopped continues. --pack exports the
weights into the package, scores them, and writes the card. FILE is what zero_shot.py prints, for
the card.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.charset import NAMED_ALPHABETS, Charset
from captcha_ocr.generation.fonts.catalogue import find_faces, has_glyphs
from captcha_ocr.inference.model_folder import CARD_FILE, CHINESE, PRETRAINED, find_model_folder
from captcha_ocr.network.resnet import ResNet18
from captcha_ocr.network.weights import blend_weights, load_model, save_model
from captcha_ocr.options.model import Lengths, ModelConfig, NetworkConfig
from captcha_ocr.options.training import ANY_DESIGN
from captcha_ocr.scores import wilson_interval
from captcha_ocr.system.files import write_atomic

DATA_FOLDER = Path("data/pretrained")  # links to fonts, images, runs and weights
MODELS = {"general": PRETRAINED, "chinese": CHINESE}
SEEDS = 20_000  # the seed of stage n is n after this
CALIBRATION_SEED, TEST_SEED = 30_000, 90_000
CALIBRATION = 1400  # drawings from which the 8-bit network takes its scales, and is compared
TESTED = 10_000  # images of the captcha package, in each of its two warps
PACKAGE = ("captcha", "captcha-classic")
# Its images with many 0 and O, the commonest errors, and with texts of all kinds in other sizes
OF_PACKAGE = tuple(f"{design}-{kind}.toml" for design in PACKAGE for kind in ("often", "any"))
ALPHABETS = ("0-9", "a-z", "A-Z", "a-z0-9", "A-Z0-9", "A-Za-z0-9")
LENGTHS = (4, 4, 5, 6)
# Chinese: how many designs are drawn once and saved, of which random ones, and their seed
SAVED = {"easy": (6000, 51), "medium": (3000, 52), "named": (8000, 53)}
CHINESE_TEXTS = ("--charset", "chinese", "--length", "2-6")
SUMS = ("ruoyi-math", "mews-math", "thinkphp-math", "hutool-math", "base64captcha-math", "kaptcha")
NUMERALS = ("零一二三四五六七八九十", "零壹贰叁肆伍陆柒捌玖拾", "0-9", "0-9")
SIGNS = ("加", "减", "乘", "除", "乘以", "除以", "[+-*/]", "[+-*/]")
ENDS = ("", "=", "=?", "等于", "等于?", "等于几", "等于多少")
OF_SUMS = tuple(f"{design}.toml" for design in SUMS)
BRACKETS = str.maketrans("", "", "[]")
CHINESE_NETWORK = NetworkConfig(width=32, context=2)


@dataclass(frozen=True)
class Stage:
    """The options of train for a stage.

    share_before: that of the weights before it in the mean that it leaves.
    """

    designs: tuple[str, ...]
    images: int  # of an epoch
    repeat: int
    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str = "onecycle"
    share_before: float = 0.0


STAGES = {
    "general": (
        # 10 minutes on an H200 with 16 processors that draw.
        Stage(("random",), images=60_000, repeat=4, epochs=80, batch_size=128, learning_rate=4e-3),
        Stage(
            ("random",) * 10 + ("random:named",) * 8 + OF_PACKAGE,
            images=40_000,
            repeat=2,
            epochs=40,
            batch_size=64,
            learning_rate=7e-4,
            schedule="cosine",
        ),
        Stage(
            ("random",) * 10 + ("random:named",) * 8 + OF_PACKAGE * 2,
            images=40_000,
            repeat=2,
            epochs=20,
            batch_size=64,
            learning_rate=5e-4,
            schedule="cosine",
            share_before=0.5,
        ),
    ),
    "chinese": (
        Stage(
            ("easy.jsonl",) * 7 + ("medium.jsonl",) * 3 + ("named.jsonl",) * 10 + OF_SUMS,
            images=20_000,
            repeat=4,
            epochs=40,
            batch_size=64,
            learning_rate=4e-3,
        ),
    ),
}


def share_fonts(fonts: Path, out: Path) -> None:
    """Make links to the fonts of a folder."""
    out.mkdir(parents=True, exist_ok=True)
    for face in find_faces([fonts]):
        path = Path(face.path)
        name = face.name.removesuffix(path.suffix).replace(path.suffix + "#", "-") + path.suffix
        if not (out / name).exists():
            (out / name).symlink_to(path.resolve())


def write_designs(out: Path) -> None:
    """Write the designs of OF_PACKAGE."""
    out.mkdir(parents=True, exist_ok=True)
    texts = [f'"{f"[{alphabet}]" * length}"' for alphabet in ALPHABETS for length in LENGTHS]
    of_all_kinds = f"pattern = [{', '.join(texts)}]"
    for design in PACKAGE:
        base, sizes = f'base = "{design}"', "[canvas]\nwidth = [150, 200]\nheight = [54, 72]"
        often, other = out / f"{design}-often.toml", out / f"{design}-any.toml"
        write_atomic(often, f'{base}\n\n[text]\noften = "0O"\n'.encode())
        write_atomic(other, f"{base}\n\n{sizes}\n\n[text]\n{of_all_kinds}\n".encode())


def write_chinese(out: Path) -> None:
    """Write designs with Chinese texts, and an untrained network.

    Random designs have Chinese texts only if they are drawn so, which then excludes sums among
    them. So they are saved.
    """
    fonts, characters = out / "fonts", NAMED_ALPHABETS["chinese"]
    for level, (count, seed) in SAVED.items():
        file = out / f"{level}.jsonl"
        drawn = ["--design", f"random:{level}", *CHINESE_TEXTS]
        saved = ["--fonts", fonts, "--count", count, "--seed", seed, "--save-designs", file]
        if not file.exists():
            captcha_ocr("generate", *drawn, *saved, "--out", out / level, "--quiet")
    faces = [face.name for face in find_faces([fonts]) if has_glyphs(face, characters)]
    patterns = [
        f"[{numerals}]{sign}[{numerals}]{end}"
        for numerals in NUMERALS
        for sign in SIGNS
        for end in ENDS
    ]
    for design in SUMS:
        table = f"[text]\npattern = {json.dumps(patterns, ensure_ascii=False)}"
        document = f'base = "{design}"\n\n{table}\n\n[fonts]\nfaces = {json.dumps(faces)}\n'
        write_atomic(out / f"{design}.toml", document.encode())
    untrained = out / "chinese-untrained"
    if not untrained.exists():  # a run that was stopped continues with the same weights
        characters += "0123456789+-*/=?" + "".join(NUMERALS + SIGNS + ENDS).translate(BRACKETS)
        charset = Charset("".join(dict.fromkeys(characters)))
        config = ModelConfig(charset, Lengths(1, 10), ANY_DESIGN, CHINESE_NETWORK)
        save_model(untrained, ResNet18(config), {"trained_by": "nobody"})


def training(model: str, number: int, out: Path) -> list[object]:
    """Return the command that trains stage `number` of a model."""
    stage = STAGES[model][number - 1]
    drawn: list[object] = ["--case-sensitive", "--fonts", out / "fonts"]
    for design in stage.designs:
        drawn += ["--draw", out / design if Path(design).suffix else design]
    how = {
        "preset": "general",
        "images": stage.images,
        "repeat": stage.repeat,
        "epochs": stage.epochs,
        "batch-size": stage.batch_size,
        "lr": stage.learning_rate,
        "schedule": stage.schedule,
        "seed": SEEDS + number,
        "keep-every": 8,
        "out": out / f"{model}-{number}",
    }
    if number > 1 or model == "chinese":
        how["init"] = weights_in(out, model)
    flags = [word for name, value in how.items() for word in (f"--{name}", value)]
    return ["train", *drawn, *flags]


def weights_in(out: Path, model: str) -> Path:
    """Return the folder of the weights that the last stage left, of those before the first stage,
    or of those in the package.
    """
    places = [out / f"{model}-weights", out / f"{model}-untrained"]
    return next(filter(Path.exists, places), MODELS[model])


def keep(model: str, number: int, out: Path) -> None:
    """Write the best weights of stage `number`, or their mean with those before, in half
    precision.
    """
    weights = load_model(find_model_folder(out / f"{model}-{number}"))
    if share := STAGES[model][number - 1].share_before:
        blend_weights(weights, load_model(weights_in(out, model)).state_dict(), share)
    by = f"benchmarks/pretrained.py, {model}, stage {number}"
    save_model(out / f"{model}-weights", weights.half(), {"trained_by": by})


def pack(model: str, out: Path, scores: Path | None) -> None:
    """Export the weights into the package in 8 bits, score them, write the card."""
    images, folder = out / f"{model}-calibration", MODELS[model]
    design = ["random"] if model == "general" else ["random:named", *CHINESE_TEXTS]
    drawn = "--fonts", out / "fonts", "--seed", CALIBRATION_SEED, "--count", CALIBRATION
    captcha_ocr("generate", "--design", *design, *drawn, "--out", images, "--quiet")
    weights = load_model(weights_in(out, model)).half()
    save_model(folder, weights, {"trained_by": "benchmarks/pretrained.py"})
    captcha_ocr("export", images, "--model", folder, "--int8")
    rows = [*scores_of_sets(scores)] if scores else []
    if model == "general":
        rows = [*scores_of_package(out), *rows]
    card = Path(__file__).with_name(f"{model}_card.md").read_text("utf-8")
    write_atomic(folder / CARD_FILE, card.format(rows="\n".join(rows)).encode())


def scores_of_package(out: Path) -> Iterator[str]:
    """Read images that the captcha package draws; yield a row of the card for each warp."""
    for number, warp in enumerate(("package", "classic")):
        images = out / f"test-{warp}"
        drawn = (
            "--renderer",
            "package",
            "--warp",
            warp,
            "--seed",
            TEST_SEED + number,
            "--count",
            TESTED,
        )
        captcha_ocr("generate", *drawn, "--out", images, "--quiet")
        printed = captcha_ocr(
            "eval", "--json", "--model", PRETRAINED, "--labels", images / "labels.csv"
        )
        summary = json.loads(printed.splitlines()[-1])["summary"]
        with_case = summary["exact"] / summary["images"]
        right = summary["exact"] + summary["folded"]
        name = f"captcha package, warp {warp}"
        yield row(name, summary["images"], right, with_case, summary["calibration_error"])


def scores_of_sets(scores: Path) -> Iterator[str]:
    """Yield a row of the card for each set that zero_shot.py has read with the model."""
    for result in json.loads(scores.read_text("utf-8")):
        if result["reader"] == "ours":
            right = round(result["free"] * result["images"])
            error = result["calibration_error"]
            yield row(result["set"], result["images"], right, result["with_case"], error)


def row(name: str, images: int, right: int, with_case: float, error: float) -> str:
    """Return a row of the table in the card; `right` with case folded, `with_case` a share."""
    low, high = wilson_interval(right, images)
    folded = f"{right / images:.2%} | {low:.2%} to {high:.2%}"
    return f"| {name} | {images:,} | {folded} | {with_case:.2%} | {error:.1%} |"


def captcha_ocr(*arguments: object) -> str:
    """Run a command; returns what it prints."""
    words = [str(argument) for argument in arguments]
    print("captcha-ocr", *words, file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "captcha_ocr", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Train all stages and pack the model, or do one of these steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fonts", type=Path, nargs="+")
    parser.add_argument("--model", choices=MODELS, default="general")
    step = parser.add_mutually_exclusive_group()
    step.add_argument("--stage", type=int, help="train this one alone")
    step.add_argument("--pack", action="store_true", help="train nothing")
    parser.add_argument("--scores", type=Path, help="what zero_shot.py printed")
    parser.add_argument("--out", type=Path, default=DATA_FOLDER)
    arguments = parser.parse_args()
    out, model = arguments.out, arguments.model
    stages = range(1, len(STAGES[model]) + 1)
    if arguments.stage not in (None, *stages):
        parser.error(f"--stage {arguments.stage}: {model} has {len(stages)}")
    for folder in arguments.fonts:
        share_fonts(folder, out / "fonts")
    if not arguments.pack:
        write = write_chinese if model == "chinese" else write_designs
        write(out)
        for number in [arguments.stage] if arguments.stage else stages:
            captcha_ocr(*training(model, number, out))
            keep(model, number, out)
    if not arguments.stage:
        pack(model, out, arguments.scores)


if __name__ == "__main__":
    main()
