"""Every mistake a user can make: a sentence that names the file or the option, the right exit status, no traceback."""

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile import BOMBS

from captcha_ocr.cli import main
from captcha_ocr.config import PrepareConfig
from captcha_ocr.files import sealed
from captcha_ocr.prepare import prepare_folds


@pytest.fixture(scope="module")
def scene(images, shards, run, exported, tmp_path_factory) -> Path:
    """A folder in which everything there is has a damaged, an empty and a foreign relative."""
    folder = tmp_path_factory.mktemp("scene")
    sources = {"images": images, "shards": shards, "run": run, "model": run / "best", "exported": exported}
    for name, source in sources.items():
        shutil.copytree(source, folder / name)
    prepare_folds(images, folder / "folds", 2, PrepareConfig(preset="tiny"), workers=1)
    make_files(folder, next(images.glob("*.png")).read_bytes())
    make_folders(folder, next(images.glob("*.png")).read_bytes())
    damage(folder)
    return folder


def make_files(folder: Path, image: bytes) -> None:
    (folder / "text.png").write_text("no image")
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes(image[:200])
    (folder / "flipped.png").write_bytes(image[:-20] + bytes([image[-20] ^ 1]) + image[-19:])
    (folder / "bomb.png").write_bytes(BOMBS["png: 20000x1 in 99 bytes"])
    with open(folder / "large.png", "wb") as stream:
        stream.truncate(3_000_000)
    os.mkfifo(folder / "fifo.png")
    os.mkfifo(folder / "fifo.csv")
    (folder / "deep.jsonl").write_text('{"path": "a.png", "code": "12"}\n' + "[" * 100_000)
    (folder / "twice.csv").write_text("filename,text,text\na.png,12,34\n")
    (folder / "to-nothing").symlink_to(folder / "is-not")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "file").touch()
    (folder / "headless.csv").write_text("a.png,12\n")
    (folder / "latin.csv").write_bytes(b"filename,text\na.png,\xe9\n")
    (folder / "strangers.csv").write_text("filename,text\nz.png,12\n")
    (folder / "leaving.csv").write_text("filename,text\n../images/a.png,12\n")


def make_folders(folder: Path, image: bytes) -> None:
    names = {
        "nothing": [],
        "one": ["12.png"],
        "alike": ["12.png", "12_a.png", "12_b.png"],
        "signs": ["a-b_c.png"],
        "serial": [f"{number}.png" for number in range(1, 21)],
        "broken": ["12.png", "34.png"],
    }
    for name, files in names.items():
        (folder / name).mkdir()
        for number, file in enumerate(files):
            # What follows the end of a PNG makes it another file, and no other image.
            (folder / name / file).write_bytes(b"broken" if name == "broken" else image + struct.pack("<I", number))
    (folder / "foreign").mkdir()
    (folder / "foreign" / "manifest.json").write_text('{"name": "a web page"}')
    (folder / "bare").mkdir()
    (folder / "bare" / "best").mkdir()


def damage(folder: Path) -> None:
    """Copies of everything with one bit flipped, or a file gone, or of a version to come."""
    for kind, file in (
        ("shards", "manifest.json"),
        ("shards", "train-00000.safetensors.gz"),
        ("run", "run.json"),
        ("run", "best/model.safetensors"),
        ("model", "config.json"),
        ("model", "model.safetensors"),
        ("exported", "model.onnx"),
        ("images", "generator.json"),
    ):
        copy = shutil.copytree(folder / kind, folder / f"{kind}-{Path(file).stem}")
        data = bytearray((copy / file).read_bytes())
        data[len(data) // 2] ^= 0x80
        (copy / file).write_bytes(data)
    shutil.copytree(folder / "shards", folder / "shards-gone")
    (folder / "shards-gone" / "val-00000.safetensors.gz").unlink()
    for kind, file in (("shards", "manifest.json"), ("model", "config.json"), ("run", "run.json")):
        copy = shutil.copytree(folder / kind, folder / f"{kind}-newer")
        document = json.loads((copy / file).read_bytes())
        (copy / file).write_bytes(sealed({**document, "version": 99}))


TRAIN = "train --preset tiny --device cpu --data shards --out new"
CASES = [  # command, exit status, what the sentence says
    ("", 2, "Usage: "),
    ("genrate", 2, "No such command 'genrate'"),
    ("generate --cuont 5", 2, "No such option '--cuont'"),
    ("generate --out new --count 0", 2, "--count must be 1 to"),
    ("generate --out new --count x", 2, "'--count': 'x' is not a valid integer"),
    ("generate --out new --start -1", 2, "--start must be 0 to"),
    ("generate --out new --length 0", 2, "a text has 1 to 64 characters"),
    ("generate --out new --length 65", 2, "a text has 1 to 64 characters"),
    ("generate --out new --length 4-2", 2, "a text has 1 to 64 characters"),
    ("generate --out new --length four", 2, "'four' is no length"),
    ("generate --out new --charset=", 2, "the alphabet is empty"),
    ("generate --out new --charset abca", 2, "names the character 'a' twice"),
    ("generate --out new --charset a\tb", 2, "cannot hold the character '\\t'"),
    ("generate --out new --charset 字", 2, "has no glyph for '字'"),
    ("generate --out new --size 160", 2, "'--size': '160' is not WIDTHxHEIGHT"),
    ("generate --out new --size 10x60", 2, "a width of 10 pixels is out of bounds"),
    ("generate --out new --size 160x5000", 2, "the height must be 16 to 4096"),
    ("generate --out new --fonts gone.ttf", 2, "'gone.ttf' does not exist"),
    ("generate --out new --fonts text.png", 2, "the font text.png cannot be read"),
    ("generate --out new --font-sizes big", 2, "'--font-sizes': 'big' is not whole numbers"),
    ("generate --out new --font-sizes 1", 2, "font sizes must be 4 to 512"),
    ("generate --out new --warp strong", 2, "'--warp': 'strong' is not one of"),
    ("generate --out new --renderer gl", 2, "'--renderer': 'gl' is not one of"),
    ("generate --out new --seed -1", 2, "'--seed': -1 is not in the range"),
    ("generate --out new --seed 99999999999", 2, "--seed must be 0 to"),
    ("generate --out new --workers 0", 2, "'--workers': 0 is not in the range"),
    ("generate --out file", 2, "'--out': Directory 'file' is a file"),
    ("generate --out one", 2, "one/12.png was not written by generate"),
    ("generate --out images --count 5", 2, "images holds images made with other options (count 60 -> 5"),
    ("generate --out images-generator --count 5", 3, "images-generator/generator.json cannot be read"),
    ("prepare gone --out new", 2, "gone is not a folder"),
    ("prepare nothing --out new", 2, "nothing holds no PNG, JPEG, GIF, BMP or WEBP files"),
    ("prepare signs --out new", 2, "a-b_c.png: its name has both '_' and '-'"),
    ("prepare serial --out new", 2, "the names of the images in serial hold serial numbers"),
    ("prepare alike --out new", 2, "all 3 images are labelled '12'"),
    ("prepare one --out new", 1, "1 usable image, of which none is left to train on"),
    ("prepare broken --out new", 1, "12.png: not a PNG"),
    ("prepare images --out new --label-pattern (", 2, "--label-pattern '(' is no regular expression"),
    ("prepare images --out new --label-pattern zzz", 2, "--label-pattern does not match its name"),
    ("prepare images --out new --labels gone.csv", 2, "'gone.csv' does not exist"),
    ("prepare images --out new --labels headless.csv", 1, "headless.csv needs a first line with filename,text"),
    ("prepare images --out new --labels latin.csv", 1, "latin.csv cannot be read as a labels file"),
    ("prepare images --out new --labels fifo.csv", 1, "fifo.csv cannot be read as a labels file: not a regular file"),
    ("prepare images --out new --labels /dev/zero", 1, "/dev/zero cannot be read as a labels file: not a regular file"),
    ("prepare images --out new --labels twice.csv", 1, "twice.csv needs a first line with filename,text"),
    ("prepare images --out new --corrections deep.jsonl", 1, "deep.jsonl cannot be read as a labels file"),
    ("prepare images --out to-nothing", 2, "to-nothing is no folder; choose another --out"),
    ("prepare images --out foreign", 3, "foreign/manifest.json is not a captcha-ocr shards; choose another --out"),
    ("prepare images --out new --label-pattern a{99999999999999999999}", 2, "is no regular expression"),
    ("prepare images --out new --labels strangers.csv", 2, "no row of strangers.csv names an image below images"),
    ("prepare images --out new --labels leaving.csv", 2, "no row of leaving.csv names an image below images"),
    ("prepare images --out new --corrections strangers.csv", 2, "no row of strangers.csv names an image below images"),
    ("prepare images --out new --labels headless.csv --label-pattern x", 2, "--labels and --label-pattern exclude"),
    ("prepare images --out new --charset xyz", 2, "no label fits the alphabet xyz"),
    ("prepare images --out new --length 9", 2, "and --length says 9"),
    ("prepare images --out new --split 50/50", 2, "--split must be three percentages"),
    ("prepare images --out new --split 80/20/0", 2, "--split must be three percentages"),
    ("prepare images --out new --folds 1", 2, "'--folds': 1 is not in the range"),
    ("prepare images --out new --folds 5 --split 70/20/10", 2, "--folds and --split exclude each other"),
    ("prepare images --out shards --folds 5", 2, "shards holds shards that are no folds"),
    ("prepare images --out folds --folds 3", 2, "folds holds 2 folds"),
    ("prepare images --out new --channels 2", 2, "'--channels': '2' is not one of"),
    ("prepare images --out new --preset best", 2, "'--preset': 'best' is not one of"),
    ("prepare images --out new --size 4x4", 2, "an input side must be 8 to 1024 pixels"),
    ("prepare images --out new --max-bytes 0", 2, "--max-bytes must be 1 to"),
    ("prepare images --out new --max-bytes 10", 1, "larger than 10 bytes; --max-bytes admits more"),
    ("prepare images --out shards --preset seed", 2, "shards holds shards made otherwise (the input size differ"),
    ("prepare images --out shards-manifest", 3, "shards-manifest/manifest.json cannot be read as JSON"),
    ("prepare images --out shards-newer", 3, "shards-newer/manifest.json was written by a newer captcha-ocr"),
    ("prepare images --out foreign --force", 2, "foreign/manifest.json was not written by prepare"),
    ("prepare images --out file", 2, "'--out': Directory 'file' is a file"),
    ("inspect gone", 2, "gone is not a folder"),
    ("inspect images --out images/looked", 2, "images/looked lies in images"),
    ("inspect images --model gone --out new", 2, "there is no folder gone"),
    ("train --data gone --out new", 2, "gone holds no finished shards"),
    ("train --data folds --out new", 2, "folds holds folds"),
    ("train --data shards-manifest --out new", 3, "shards-manifest/manifest.json cannot be read as JSON"),
    ("train --data shards-newer --out new", 3, "shards-newer/manifest.json was written by a newer captcha-ocr"),
    (TRAIN.replace("shards", "shards-train-00000.safetensors"), 3, "train-00000.safetensors.gz was changed or damaged"),
    (TRAIN.replace("shards", "shards-gone"), 3, "shards-gone/val-00000.safetensors.gz is missing"),
    ("train --data shards --data shards --out new", 2, "shards holds the same images as shards"),
    (TRAIN + " --epochs 0", 2, "--epochs must be 1 to"),
    (TRAIN + " --patience 0", 2, "--patience must be 1 to"),
    (TRAIN + " --batch-size 1", 2, "--batch-size must be 2 to"),
    (TRAIN + " --lr 0", 2, "--lr must lie between 0 and 10"),
    (TRAIN + " --lr nan", 2, "--lr must lie between 0 and 10"),
    (TRAIN + " --images 1", 2, "--images must be 2 or more"),
    (TRAIN + " --images 1000000", 2, "shards has only 48 images to train on"),
    (TRAIN + " --schedule steep", 2, "'--schedule': 'steep' is not one of"),
    (TRAIN + " --loss mse", 2, "'--loss': 'mse' is not one of"),
    (TRAIN + " --precision int4", 2, "'--precision': 'int4' is not one of"),
    (TRAIN + " --keep-every 0", 2, "'--keep-every': 0 is not in the range"),
    (TRAIN.replace("cpu", "tpu"), 2, "there is no device 'tpu'"),
    (TRAIN.replace("cpu", "cuda:99"), 2, "there is no device 'cuda:99'"),
    (TRAIN + " --init gone", 2, "there is no folder gone"),
    (TRAIN + " --init images", 2, "images is no model folder"),
    (TRAIN + " --init model-model", 3, "model-model/model.safetensors was changed or damaged"),
    (TRAIN + " --resume gone", 2, "there is no folder gone"),
    (TRAIN + " --resume model", 2, "model is a model, but no checkpoint"),
    (TRAIN + " --cross-validate", 2, "shards holds no folds"),
    (TRAIN.replace("tiny", "seed"), 2, "shards holds images of 48x16, grey, and the preset seed wants 56x24"),
    (TRAIN.replace("new", "file"), 2, "'--out': Directory 'file' is a file"),
    (TRAIN.replace("new", "bare"), 2, "bare holds best but no run.json"),
    (TRAIN.replace("new", "run") + " --batch-size 20", 2, "run holds another run (batch_size: 10 -> 20)"),
    (TRAIN.replace("new", "run-run"), 3, "run-run/run.json"),
    (TRAIN.replace("new", "run-newer"), 3, "run-newer/run.json was written by a newer captcha-ocr"),
    (TRAIN.replace("new", "run-model"), 3, "the best model of run-model is not whole"),
    ("curve gone --out new", 2, "gone holds no finished shards"),
    ("curve shards --out new --images 1000000", 2, "shards has only 48 images to train on"),
    ("curve shards --out new --images some", 2, "'--images': 'some' is not whole numbers"),
    ("export images --model gone", 2, "there is no folder gone"),
    ("export gone --model model", 2, "gone is not a folder"),
    ("export images --model model --int8", 2, "--int8 needs at least 400 labelled images"),
    ("export images --model model-model", 3, "model-model/model.safetensors was changed or damaged"),
    ("bench --preset best", 2, "'--preset': 'best' is not one of"),
    ("eval gone.png", 1, "gone.png: No such file or directory"),
    ("eval gone*.png", 1, "gone*.png: No such file or directory"),
    ("eval text.png", 1, "text.png: not a PNG, JPEG, GIF, BMP or WEBP image"),
    ("eval empty.png", 1, "empty.png: an empty file"),
    ("eval cut.png", 1, "cut.png: damaged image: it is truncated"),
    ("eval flipped.png", 1, "flipped.png: damaged image: the checksum"),
    ("eval bomb.png", 1, "bomb.png: 20000x1 pixels; at most 4096 a side"),
    ("eval large.png", 1, "large.png: larger than 2,000,000 bytes; --max-bytes admits more"),
    ("eval nothing", 1, "nothing: a folder, not an image"),
    ("eval fifo.png", 1, "fifo.png: not a regular file"),
    ("eval loop.png", 1, "loop.png: Too many levels of symbolic links"),
    ("eval /dev/zero", 1, "/dev/zero: not a regular file"),
    ("eval text.png/a.png", 1, "text.png/a.png: Not a directory"),
    ("eval -", 1, "-: an empty file"),
    ("eval images --max-bytes -1", 2, "--max-bytes must be 1 to"),
    ("eval images --model gone", 2, "there is no folder gone"),
    ("eval images --model images", 2, "images is no model folder"),
    ("eval images --model model-config", 3, "model-config/config.json"),
    ("eval images --model model-newer", 3, "model-newer/config.json was written by a newer captcha-ocr"),
    ("eval images --model model-model", 3, "model-model/model.safetensors was changed or damaged"),
    ("eval images --model exported-model", 3, "exported-model/model.onnx was changed or damaged"),
    ("eval images --model model --engine onnx", 2, "model holds no model.onnx; make it with: captcha-ocr export"),
    (
        "eval images --model exported --engine onnx --device cuda",
        2,
        "the engine onnx computes on the processor, not on",
    ),
    ("eval images --model model --device cuda:99", 2, "there is no device 'cuda:99'"),
    ("eval images --charset é", 2, "this model does not read 'é'"),
    ("eval images --length 9", 2, "not of 9"),
    ("eval images --min-confidence 2", 2, "--min-confidence is a number from 0 to 1"),
    ("eval images --labels gone.csv", 2, "'gone.csv' does not exist"),
    ("eval images --labels fifo.csv", 1, "fifo.csv cannot be read as a labels file: not a regular file"),
    ("eval images --labels deep.jsonl", 1, "deep.jsonl cannot be read as a labels file"),
    ("eval images --labels headless.csv", 1, "headless.csv needs a first line with filename,text"),
    ("eval --labels strangers.csv", 1, "nothing to score: of the images named in strangers.csv"),
    ("eval images --csv --json", 2, "--csv goes with neither --json nor --labels"),
]


@pytest.mark.parametrize(("command", "status", "sentence"), CASES, ids=[case[0] or "nothing" for case in CASES])
def test_a_mistake_is_a_sentence_and_the_right_exit_status(scene, monkeypatch, command, status, sentence):
    monkeypatch.chdir(scene)
    before = sorted(path for path in scene.rglob("*") if path.name != "new")
    result = CliRunner().invoke(main, command.split(" ") if command else [])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status, result.stderr
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    said = [line for line in result.stderr.splitlines() if sentence in line]
    assert all(line.isprintable() for line in said)
    assert sorted(path for path in scene.rglob("*") if path.name != "new") == before


def test_the_table_is_long_enough():
    assert len({command for command, _, _ in CASES}) == len(CASES) >= 80
