"""Every mistake a user can make: a sentence that names the file or the option, the right exit status, no traceback."""

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ONE_WORKER
from hostile import BOMBS

from captcha_ocr.cli.app import main
from captcha_ocr.config import PrepareConfig
from captcha_ocr.data.folds import prepare_folds
from captcha_ocr.system.documents import sealed


@pytest.fixture(scope="module")
def scene(images, shards, run, exported, tmp_path_factory) -> Path:
    """A folder in which everything there is has a damaged, an empty and a foreign relative."""
    folder = tmp_path_factory.mktemp("scene")
    sources = {"images": images, "shards": shards, "run": run, "model": run / "best", "exported": exported}
    for name, source in sources.items():
        shutil.copytree(source, folder / name)
    prepare_folds(images, folder / "folds", 2, PrepareConfig(preset="tiny"), ONE_WORKER)
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
    (folder / "deep.jsonl").write_text('{"path": "a.png", "text": "12"}\n' + "[" * 100_000)
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
CASES = [  # command, exit status, what one line on stderr names
    ("", 2, "Usage:"),
    ("genrate", 2, "'genrate'"),
    ("generate --cuont 5", 2, "--cuont"),
    ("generate --out new --count 0", 2, "--count 0"),
    ("generate --out new --count x", 2, "--count 'x'"),
    ("generate --out new --start -1", 2, "--start -1"),
    ("generate --out new --length 0", 2, "1 64 0"),
    ("generate --out new --length 65", 2, "1 64 65"),
    ("generate --out new --length 4-2", 2, "1 64 4-2"),
    ("generate --out new --length four", 2, "'four'"),
    ("generate --out new --charset=", 2, ""),
    ("generate --out new --charset abca", 2, "'a'"),
    ("generate --out new --charset a\tb", 2, "'\\t'"),
    ("generate --out new --charset 字", 2, "'字'"),
    ("generate --out new --size 160", 2, "--size '160'"),
    ("generate --out new --size 10x60", 2, "10 64"),
    ("generate --out new --size 160x5000", 2, "5000 4096"),
    ("generate --out new --fonts gone.ttf", 2, "gone.ttf"),
    ("generate --out new --fonts text.png", 2, "text.png"),
    ("generate --out new --font-sizes big", 2, "--font-sizes 'big'"),
    ("generate --out new --font-sizes 1", 2, "4 512"),
    ("generate --out new --warp strong", 2, "--warp 'strong'"),
    ("generate --out new --renderer gl", 2, "--renderer 'gl'"),
    ("generate --out new --seed -1", 2, "--seed -1"),
    ("generate --out new --seed 99999999999", 2, "--seed 99999999999"),
    ("generate --out new --workers 0", 2, "--workers 0"),
    ("generate --out file", 2, "--out 'file'"),
    ("generate --out one", 2, "one/12.png --out"),
    ("generate --out images --count 5", 2, "images count 60 5 --out --force"),
    ("generate --out images-generator --count 5", 3, "images-generator/generator.json --out"),
    ("prepare gone --out new", 2, "gone"),
    ("prepare nothing --out new", 2, "nothing"),
    ("prepare signs --out new", 2, "a-b_c.png '_' '-' --label-pattern"),
    ("prepare serial --out new", 2, "serial --label-pattern"),
    ("prepare alike --out new", 2, "3 '12' --label-pattern"),
    ("prepare one --out new", 1, "1"),
    ("prepare broken --out new", 1, "12.png 34.png"),
    ("prepare images --out new --label-pattern (", 2, "--label-pattern '('"),
    ("prepare images --out new --label-pattern zzz", 2, "00000-15.png --label-pattern"),
    ("prepare images --out new --labels gone.csv", 2, "--labels 'gone.csv'"),
    ("prepare images --out new --labels headless.csv", 1, "headless.csv filename,text"),
    ("prepare images --out new --labels latin.csv", 1, "latin.csv"),
    ("prepare images --out new --labels fifo.csv", 1, "fifo.csv"),
    ("prepare images --out new --labels /dev/zero", 1, "/dev/zero"),
    ("prepare images --out new --labels twice.csv", 1, "twice.csv filename,text"),
    ("prepare images --out new --corrections deep.jsonl", 1, "deep.jsonl"),
    ("prepare images --out to-nothing", 2, "to-nothing --out"),
    ("prepare images --out foreign", 3, "foreign/manifest.json --out"),
    (
        "prepare images --out new --label-pattern a{99999999999999999999}",
        2,
        "--label-pattern 'a{99999999999999999999}'",
    ),
    ("prepare images --out new --labels strangers.csv", 2, "strangers.csv images z.png"),
    ("prepare images --out new --labels leaving.csv", 2, "leaving.csv images ../images/a.png"),
    ("prepare images --out new --corrections strangers.csv", 2, "strangers.csv images z.png"),
    ("prepare images --out new --labels headless.csv --label-pattern x", 2, "--labels --label-pattern"),
    ("prepare images --out new --charset xyz", 2, "xyz 00000-15.png"),
    ("prepare images --out new --length 9", 2, "--length 9"),
    ("prepare images --out new --split 50/50", 2, "--split 100"),
    ("prepare images --out new --split 80/20/0", 2, "--split 100"),
    ("prepare images --out new --folds 1", 2, "--folds 1"),
    ("prepare images --out new --folds 5 --split 70/20/10", 2, "--folds --split"),
    ("prepare images --out shards --folds 5", 2, "shards --out"),
    ("prepare images --out folds --folds 3", 2, "folds 2 --out --force"),
    ("prepare images --out new --channels 2", 2, "--channels '2'"),
    ("prepare images --out new --preset best", 2, "--preset 'best'"),
    ("prepare images --out new --size 4x4", 2, "8 1024"),
    ("prepare images --out new --max-bytes 0", 2, "--max-bytes 0"),
    ("prepare images --out new --max-bytes 10", 1, "10 --max-bytes"),
    ("prepare images --out shards --preset seed", 2, "shards --out --force"),
    ("prepare images --out shards-manifest", 3, "shards-manifest/manifest.json"),
    ("prepare images --out shards-newer", 3, "shards-newer/manifest.json 99"),
    ("prepare images --out foreign --force", 2, "foreign/manifest.json --out"),
    ("prepare images --out file", 2, "--out 'file'"),
    ("inspect gone", 2, "gone"),
    ("inspect images --out images/looked", 2, "images/looked --out"),
    ("inspect images --model gone --out new", 2, "gone"),
    ("train --data gone --out new", 2, "gone"),
    ("train --data folds --out new", 2, "folds --cross-validate"),
    ("train --data shards-manifest --out new", 3, "shards-manifest/manifest.json"),
    ("train --data shards-newer --out new", 3, "shards-newer/manifest.json 99"),
    (TRAIN.replace("shards", "shards-train-00000.safetensors"), 3, "train-00000.safetensors.gz"),
    (TRAIN.replace("shards", "shards-gone"), 3, "shards-gone/val-00000.safetensors.gz"),
    ("train --data shards --data shards --out new", 2, "shards"),
    (TRAIN + " --epochs 0", 2, "--epochs"),
    (TRAIN + " --patience 0", 2, "--patience"),
    (TRAIN + " --batch-size 1", 2, "--batch-size"),
    (TRAIN + " --lr 0", 2, "--lr"),
    (TRAIN + " --lr nan", 2, "--lr"),
    (TRAIN + " --images 1", 2, "--images 2"),
    (TRAIN + " --images 1000000", 2, "shards 48"),
    (TRAIN + " --schedule steep", 2, "--schedule 'steep'"),
    (TRAIN + " --loss mse", 2, "--loss 'mse'"),
    (TRAIN + " --precision int4", 2, "--precision 'int4'"),
    (TRAIN + " --keep-every 0", 2, "--keep-every 0"),
    (TRAIN.replace("cpu", "tpu"), 2, "'tpu'"),
    (TRAIN.replace("cpu", "cuda:99"), 2, "'cuda:99'"),
    (TRAIN + " --init gone", 2, "gone"),
    (TRAIN + " --init images", 2, "images config.json"),
    (TRAIN + " --init model-model", 3, "model-model/model.safetensors"),
    (TRAIN + " --resume gone", 2, "gone"),
    (TRAIN + " --resume model", 2, "model"),
    (TRAIN + " --cross-validate", 2, "shards --folds"),
    (TRAIN.replace("tiny", "seed"), 2, "shards 48x16 seed 56x24"),
    (TRAIN.replace("new", "file"), 2, "--out 'file'"),
    (TRAIN.replace("new", "bare"), 2, "bare best run.json --out"),
    (TRAIN.replace("new", "run") + " --batch-size 20", 2, "run batch_size 10 20 --out --force"),
    (TRAIN.replace("new", "run-run"), 3, "run-run/run.json --force"),
    (TRAIN.replace("new", "run-newer"), 3, "run-newer/run.json 99 --force"),
    (TRAIN.replace("new", "run-model"), 3, "run-model/best/model.safetensors --force"),
    ("curve gone --out new", 2, "gone"),
    ("curve shards --out new --images 1000000", 2, "shards 48"),
    ("curve shards --out new --images some", 2, "--images 'some'"),
    ("export images --model gone", 2, "gone"),
    ("export gone --model model", 2, "gone"),
    ("export images --model model --int8", 2, "--int8 400 60"),
    ("export images --model model-model", 3, "model-model/model.safetensors"),
    ("bench --preset best", 2, "--preset 'best'"),
    ("eval gone.png", 1, "gone.png"),
    ("eval gone*.png", 1, "gone*.png"),
    ("eval text.png", 1, "text.png"),
    ("eval empty.png", 1, "empty.png"),
    ("eval cut.png", 1, "cut.png"),
    ("eval flipped.png", 1, "flipped.png"),
    ("eval bomb.png", 1, "bomb.png 20000x1"),
    ("eval large.png", 1, "large.png --max-bytes"),
    ("eval nothing", 1, "nothing"),
    ("eval fifo.png", 1, "fifo.png"),
    ("eval loop.png", 1, "loop.png"),
    ("eval /dev/zero", 1, "/dev/zero"),
    ("eval text.png/a.png", 1, "text.png/a.png"),
    ("eval -", 1, "-:"),
    ("eval images --max-bytes -1", 2, "--max-bytes -1"),
    ("eval images --model gone", 2, "gone"),
    ("eval images --model images", 2, "images config.json"),
    ("eval images --model model-config", 3, "model-config/config.json"),
    ("eval images --model model-newer", 3, "model-newer/config.json 99"),
    ("eval images --model model-model", 3, "model-model/model.safetensors"),
    ("eval images --model exported-model", 3, "exported-model/model.onnx"),
    ("eval images --model model --engine onnx", 2, "model.onnx captcha-ocr export --model"),
    ("eval images --model exported --engine onnx --device cuda", 2, "onnx cuda --engine"),
    ("eval images --model model --device cuda:99", 2, "'cuda:99'"),
    ("eval images --charset é", 2, "'é'"),
    ("eval images --length 9", 2, "9"),
    ("eval images --min-confidence 2", 2, "--min-confidence"),
    ("eval images --labels gone.csv", 2, "--labels 'gone.csv'"),
    ("eval images --labels fifo.csv", 1, "fifo.csv"),
    ("eval images --labels deep.jsonl", 1, "deep.jsonl"),
    ("eval images --labels headless.csv", 1, "headless.csv filename,text"),
    ("eval --labels strangers.csv", 1, "strangers.csv"),
    ("eval images --csv --json", 2, "--csv --json --labels"),
]


@pytest.mark.parametrize(("command", "status", "names"), CASES, ids=[case[0] or "nothing" for case in CASES])
def test_a_mistake_is_a_sentence_and_the_right_exit_status(scene, monkeypatch, command, status, names):
    monkeypatch.chdir(scene)
    before = sorted(path for path in scene.rglob("*") if path.name != "new")
    result = CliRunner().invoke(main, command.split(" ") if command else [])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status, result.stderr
    said = [line for line in result.stderr.splitlines() if all(name in line for name in names.split())]
    assert said, result.stderr
    assert "Traceback" not in result.stderr
    assert all(line.isprintable() for line in said)
    assert sorted(path for path in scene.rglob("*") if path.name != "new") == before


def test_the_table_is_long_enough():
    assert len({command for command, _, _ in CASES}) == len(CASES) >= 80
