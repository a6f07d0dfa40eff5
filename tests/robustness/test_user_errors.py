"""A user's mistake is a sentence that names the file or the option, with the right exit status."""

import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import ONE_WORKER, amend, flip_bit, invoke, naming
from hostile import BOMBS

from captcha_ocr.data.prepare import prepare_folds
from captcha_ocr.options.preparation import PrepareConfig

FOLDERS = {  # the images in them
    "nothing": [],
    "one": ["12.png"],
    "alike": ["12.png", "12_1.png", "12_2.png"],
    "alike-in-one-case": ["Ab.png", "ab_1.png", "aB_2.png"],
    "long": [f"{'xy' * 32}{letter}_x.png" for letter in "abc"],
    "signs": ["a-b_c.png"],
    "serial": [f"{number}.png" for number in range(1, 21)],
    "broken": ["12.png", "34.png"],
}
DAMAGED = [
    "shards/manifest.json",
    "shards/train-00000.safetensors.gz",
    "run/run.json",
    "run/best/model.safetensors",
    "model/config.json",
    "model/model.safetensors",
    "exported/model.onnx",
    "images/generator.json",
]


@pytest.fixture(scope="module")
def scene(images, shards, run, exported, tmp_path_factory) -> Path:
    """A folder in which everything there is has a damaged, an empty and a foreign relative."""
    folder, image = tmp_path_factory.mktemp("scene"), next(images.glob("*.png")).read_bytes()
    sources = {
        "images": images,
        "shards": shards,
        "run": run,
        "model": run / "best",
        "exported": exported,
    }
    for name, source in sources.items():
        shutil.copytree(source, folder / name)
    prepare_folds(images, folder / "folds", 2, PrepareConfig(preset="tiny"), ONE_WORKER)
    for name, files in FOLDERS.items():
        (folder / name).mkdir()
        for number, file in enumerate(files):
            # What follows the end of a PNG makes it another file with the same pixels.
            (folder / name / file).write_bytes(image + bytes([number]))
    for path in (folder / "broken").iterdir():
        path.write_bytes(b"broken")
    for name in ("foreign", "bare/best"):
        (folder / name).mkdir(parents=True)
    for name, content in {
        "foreign/manifest.json": b'{"name": "a web page"}',
        "text.png": b"no image",
        **dict.fromkeys(["empty.png", "file"], b""),
        "cut.png": image[:200],
        "flipped.png": image[:-20] + bytes([image[-20] ^ 1]) + image[-19:],
        "bomb.png": BOMBS["png: 20000x1 in 99 bytes"],
        "large.png": bytes(3_000_000),
        "deep.jsonl": b'{"path": "a.png", "text": "12"}\n' + b"[" * 100_000,
        "twice.csv": b"filename,text,text\na.png,12,34\n",
        "headless.csv": b"12,34\n",
        "latin.csv": b"filename,text\na.png,\xe9\n",
        "strangers.csv": b"filename,text\nz.png,12\n",
        "leaving.csv": b"filename,text\n../images/a.png,12\n",
    }.items():
        (folder / name).write_bytes(content)
    for name in ("fifo.png", "fifo.csv"):
        os.mkfifo(folder / name)
    for name, target in (("to-nothing", "is-not"), ("loop.png", "loop.png")):
        (folder / name).symlink_to(folder / target)
    for file in DAMAGED:
        kind, _, rest = file.partition("/")
        flip_bit(shutil.copytree(folder / kind, folder / f"{kind}-{Path(file).stem}") / rest)
    shutil.copytree(folder / "shards", folder / "shards-gone")
    (folder / "shards-gone" / "val-00000.safetensors.gz").unlink()
    for kind, file in (("shards", "manifest.json"), ("model", "config.json"), ("run", "run.json")):
        amend(shutil.copytree(folder / kind, folder / f"{kind}-newer") / file, version=99)
    return folder


TRAIN = "train --preset tiny --device cpu --data shards --out new"
LONG = "9" * 5000
BAD_VALUES = {  # the sentence names the option
    "generate --out new": [
        *(
            "--count 0",
            "--count x",
            "--start -1",
            "--size 160",
            "--size 0x60",
            f"--size {LONG}x60",
            "--fonts gone.ttf",
        ),
        *(
            "--font-sizes big",
            f"--font-sizes {LONG}",
            "--warp strong",
            "--renderer gl",
            "--seed -1",
        ),
        *("--seed 99999999999", "--workers 0"),
    ],
    "prepare images --out new": [
        *("--label-pattern (", "--labels gone.csv", "--length 9"),
        *(
            "--split 50/50",
            "--split 80/20/0",
            "--folds 1",
            "--channels 2",
            "--preset best",
            "--max-bytes 0",
        ),
    ],
    TRAIN: [
        *(
            "--epochs 0",
            "--patience 0",
            "--batch-size 1",
            "--lr 0",
            "--lr nan",
            "--images 1",
            "--schedule steep",
        ),
        *("--loss mse", "--precision int4", "--keep-every 0"),
    ],
    "curve shards --out new": ["--images some"],
    "bench": ["--preset best"],
    "eval images": [
        "--max-bytes -1",
        "--min-confidence 2",
        "--min-confidence nan",
        "--labels gone.csv",
    ],
}
NOTHING_THERE = [
    *(
        "prepare gone --out new",
        "inspect gone",
        "inspect images --model gone --out new",
        "train --data gone --out new",
    ),
    *(
        f"{TRAIN} --init gone",
        f"{TRAIN} --resume gone",
        "curve gone --out new",
        "export images --model gone",
    ),
    *("export gone --model model", "eval images --model gone"),
]
WITH_A_MODEL = ["eval images --model", "export images --model", f"{TRAIN} --init"]
UNREADABLE = [  # the last word is what cannot be read
    *(
        "eval gone.png",
        "eval gone*.png",
        "eval text.png",
        "eval empty.png",
        "eval cut.png",
        "eval flipped.png",
    ),
    *("eval nothing", "eval fifo.png", "eval loop.png", "eval /dev/zero", "eval text.png/a.png"),
]
UNREADABLE_TABLES = [
    *(
        f"prepare images --out new --labels {name}"
        for name in ("latin.csv", "fifo.csv", "/dev/zero")
    ),
    *("prepare images --out new --corrections deep.jsonl", "eval images --labels fifo.csv"),
    "eval images --labels deep.jsonl",
]
CASES = [  # command, exit status, what one line on stderr names
    *(
        (f"{command} {option}", 2, option.split()[0])
        for command, options in BAD_VALUES.items()
        for option in options
    ),
    *((command, 2, "gone") for command in NOTHING_THERE),
    *((command, 1, command.split()[-1]) for command in UNREADABLE),
    *((command, 2, command.split()[-1]) for command in UNREADABLE_TABLES),
    *((f"{command} model-model", 3, "model-model/model.safetensors") for command in WITH_A_MODEL),
    ("", 2, "Usage:"),
    ("genrate", 2, "'genrate'"),
    ("generate --cuont 5", 2, "--cuont"),
    ("generate --out new --length 0", 2, "--length 1 64 0"),
    ("generate --out new --length 4-2", 2, "--length 4-2"),
    ("prepare images --out new --length 99", 2, "--length 99"),
    ("inspect images --out new --length x", 2, "--length 'x'"),
    ("eval images --length 0", 2, "--length 0"),
    ("generate --out new --length four", 2, "'four'"),
    ("generate --out new --charset=", 2, "--charset empty"),
    *(
        (f"{command} --charset=", 2, "--charset empty")
        for command in ("prepare images", "inspect images", "eval images")
    ),
    ("eval images --charset AA", 2, "--charset 'A'"),
    ("generate --out new --charset abca", 2, "--charset 'a'"),
    ("generate --out new --charset a\tb", 2, "--charset '\\t'"),
    ("generate --out new --charset 字", 2, "'字'"),
    ("generate --out new --size 10x60", 2, "--size 10 64"),
    ("generate --out new --length 8 --size 100x60", 2, "--size 100 128"),
    ("generate --out new --size 160x5000", 2, "--size 5000 4096"),
    ("generate --out new --fonts text.png", 2, "text.png"),
    ("generate --out new --font-sizes 1", 2, "--font-sizes 4 512"),
    ("generate --out file", 2, "--out 'file'"),
    ("generate --out one", 2, "one/12.png --out"),
    ("generate --out images --count 5", 2, "images count 60 5 --out --force"),
    ("generate --out images-generator --count 5", 3, "images-generator/generator.json --out"),
    ("prepare nothing --out new", 2, "nothing"),
    ("prepare signs --out new", 2, "a-b_c.png --label-pattern"),
    ("prepare serial --out new", 2, "1.png number --label-pattern"),
    ("prepare alike --out new", 2, "3 '12' --label-pattern"),
    ("prepare alike-in-one-case --out new", 2, "3 'Ab' --label-pattern"),
    ("prepare long --out new", 2, "64"),
    ("prepare one --out new", 2, "1"),
    ("prepare broken --out new", 2, "12.png 34.png"),
    (
        "prepare images --out new --label-pattern a{9999999999}",
        2,
        "--label-pattern 'a{9999999999}'",
    ),
    ("prepare images --out new --label-pattern zzz", 2, "00000-15.png --label-pattern"),
    ("prepare images --out new --labels headless.csv", 2, "headless.csv filename,text"),
    ("prepare images --out new --labels twice.csv", 2, "twice.csv 'text'"),
    ("prepare images --out to-nothing", 2, "to-nothing --out"),
    ("prepare images --out foreign", 3, "foreign/manifest.json --out"),
    ("prepare images --out new --labels strangers.csv", 2, "strangers.csv images z.png"),
    ("prepare images --out new --labels leaving.csv", 2, "leaving.csv images ../images/a.png"),
    ("prepare images --out new --corrections strangers.csv", 2, "strangers.csv images z.png"),
    (
        "prepare images --out new --labels headless.csv --label-pattern x",
        2,
        "--labels --label-pattern",
    ),
    ("prepare images --out new --charset xyz", 2, "xyz 00000-15.png"),
    ("prepare images --out new --folds 5 --split 70/20/10", 2, "--folds --split"),
    ("prepare images --out shards --folds 5", 2, "shards --out"),
    ("prepare images --out folds --folds 3", 2, "folds 2 --out --force"),
    ("prepare images --out new --size 4x4", 2, "--size 8 1024"),
    ("prepare images --out new --max-bytes 10", 2, "10 --max-bytes"),
    ("prepare images --out shards --preset seed", 2, "shards 48x16 56x24 --out --force"),
    (
        "prepare images --out shards --preset tiny --length 2",
        2,
        "--length: unset -> 2 --out --force",
    ),
    ("prepare images --out shards --preset tiny --seed 7", 2, "--seed: 0 -> 7"),
    (
        "prepare images --out shards --preset tiny --split 70/20/10",
        2,
        "--split: 80/10/10 -> 70/20/10",
    ),
    (
        "prepare images --out shards --preset tiny --case-sensitive",
        2,
        "--case-sensitive: False -> True",
    ),
    (
        "prepare images --out shards --preset tiny --max-bytes 999999",
        2,
        "--max-bytes: unset -> 999999",
    ),
    (
        "prepare images --out shards --preset tiny --charset 0123456789",
        2,
        "--charset: unset -> 0123456789",
    ),
    ("prepare images --out shards-manifest", 3, "shards-manifest/manifest.json"),
    ("prepare images --out shards-newer", 3, "shards-newer/manifest.json 99"),
    ("prepare images --out foreign --force", 2, "foreign/manifest.json --out"),
    ("prepare images --out file", 2, "--out 'file'"),
    ("prepare images --out file/new", 1, "file/new"),
    ("inspect images --out images/looked", 2, "images/looked --out"),
    ("train --data folds --out new", 2, "folds --cross-validate"),
    ("train --data shards-manifest --out new", 3, "shards-manifest/manifest.json"),
    ("train --data shards-newer --out new", 3, "shards-newer/manifest.json 99"),
    (TRAIN.replace("shards", "shards-train-00000.safetensors"), 3, "train-00000.safetensors.gz"),
    (TRAIN.replace("shards", "shards-gone"), 3, "shards-gone/val-00000.safetensors.gz"),
    ("train --data shards --data shards --out new", 2, "shards"),
    (TRAIN + " --images 1000000", 2, "shards 48"),
    (TRAIN.replace("cpu", "tpu"), 2, "'tpu'"),
    (TRAIN.replace("cpu", "cuda:99"), 2, "'cuda:99'"),
    (TRAIN + " --init images", 2, "images config.json"),
    (TRAIN + " --resume model", 2, "model"),
    ("train", 2, "data/shards"),
    (TRAIN + " --cross-validate", 2, "shards --folds"),
    (TRAIN + " --cross-validate --data folds", 2, "--cross-validate --data"),
    (TRAIN.replace("tiny", "seed"), 2, "shards 48x16 seed 56x24"),
    (TRAIN.replace("new", "file"), 2, "--out 'file'"),
    (TRAIN.replace("new", "bare"), 2, "bare best run.json --out"),
    (TRAIN.replace("new", "bare --force"), 2, "bare best run.json --out"),
    (TRAIN.replace("new", "run") + " --batch-size 20", 2, "run --batch-size: 10 20 --out --force"),
    (TRAIN.replace("new", "run-run"), 3, "run-run/run.json --force"),
    (TRAIN.replace("new", "run-newer"), 3, "run-newer/run.json 99 --force"),
    (TRAIN.replace("new", "run-model"), 3, "run-model/best/model.safetensors --force"),
    ("curve shards --out new --images 1000000", 2, "shards 48"),
    ("export images --model model --int8", 2, "--int8 400 60"),
    ("eval bomb.png", 1, "bomb.png 20000x1"),
    ("eval large.png", 1, "large.png --max-bytes"),
    ("eval -", 1, "-:"),
    ("eval nothing", 1, "nothing: folder no images"),
    ("eval images --model images", 2, "images config.json"),
    ("eval images --model model-config", 3, "model-config/config.json"),
    ("eval images --model model-newer", 3, "model-newer/config.json 99"),
    ("eval images --model exported-model", 3, "exported-model/model.onnx"),
    ("eval images --model model --engine onnx", 2, "model.onnx captcha-ocr export --model"),
    ("eval images --model exported --engine onnx --device cuda", 2, "onnx cuda --engine"),
    ("eval images --model model --device cuda:99", 2, "'cuda:99'"),
    ("eval images --charset é", 2, "'é'"),
    ("eval images --length 13", 2, "13"),
    ("eval images --labels headless.csv", 2, "headless.csv filename,text"),
    ("eval --labels strangers.csv", 2, "strangers.csv FOLDER"),
    ("eval images --csv --json", 2, "--csv --json --labels"),
    ("eval images --csv --labels headless.csv", 2, "--csv --json --labels"),
]


@pytest.mark.parametrize(
    ("command", "status", "names"), CASES, ids=[case[0][:80] or "nothing" for case in CASES]
)
def test_a_mistake_is_a_sentence_and_the_right_exit_status(
    scene, monkeypatch, command, status, names
):
    monkeypatch.chdir(scene)
    before = sorted(scene.rglob("*"))
    result = invoke(*(command.split(" ") if command else []))
    ending = (type(result.exception), result.exit_code)
    assert ending == (SystemExit, status), f"{result.exception!r} {result.stderr}"
    pattern = naming(*names.split())
    said = [line for line in result.stderr.splitlines() if re.search(pattern, line)]
    assert said, result.stderr
    assert "Traceback" not in result.stderr
    assert all(line.isprintable() for line in said)
    assert sorted(scene.rglob("*")) == before
