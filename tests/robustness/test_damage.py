"""Files of ours that were damaged: flipped bits, cut files, bombs. Each is found, and none gives a wrong answer."""

import json
import random
import re
import shutil
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from conftest import TINY, naming, read_shards
from safetensors.torch import load_file, save_file

import captcha_ocr.resume
from captcha_ocr import Recognizer
from captcha_ocr.checkpoint import load_model
from captcha_ocr.cli import main
from captcha_ocr.errors import DamagedError
from captcha_ocr.files import sealed, sha256
from captcha_ocr.resume import check_whole, load_last
from captcha_ocr.run import read_run
from captcha_ocr.shards import read_manifest
from captcha_ocr.train import train


@pytest.fixture(scope="module")
def whole(run, shards, exported, tmp_path_factory) -> Path:
    """Shards and a run with an exported model, in a folder of their own."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(shards, folder / "shards")
    shutil.copytree(run, folder / "run")
    shutil.copytree(exported, folder / "run" / "best", dirs_exist_ok=True)
    return folder


def loaders(folder: Path) -> dict[Path, list]:
    """Every file of ours that a loader reads, with all that read it."""
    run, found = folder / "run", {}
    for path in sorted((folder / "shards").iterdir()):
        found[path] = [lambda: read_shards(folder / "shards")]
    found[run / "run.json"] = [lambda: read_run(run)]
    for name in ("last", "previous"):
        for path in sorted((run / name).iterdir()):
            found[path] = [lambda name=name: check_whole(run / name)]
    best = run / "best"
    found[best / "config.json"] = [lambda: Recognizer(best, engine="onnx"), lambda: load_model(best)]
    found[best / "model.safetensors"] = [lambda: load_model(best), lambda: check_whole(best)]
    found[best / "model.onnx"] = [lambda: Recognizer(best, engine="onnx"), lambda: check_whole(best)]
    return found


def all_find_it(path: Path, damaged: bytes, readers: list) -> None:
    """Every loader of a file refuses it, and names it, while it is damaged."""
    before = path.read_bytes()
    path.write_bytes(damaged)
    try:
        for read in readers:
            with pytest.raises(DamagedError, match=path.name):
                read()
    finally:
        path.write_bytes(before)


def test_every_flipped_bit_is_found(whole, soak, figure):
    chance, flips = random.Random(0), 10_000 if soak else 300
    files = loaders(whole)
    for number in range(flips):
        path = list(files)[number % len(files)]
        data = bytearray(path.read_bytes())
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        all_find_it(path, bytes(data), files[path])
    figure(f"{flips:,} flipped bits over {len(files)} files, all found")


def test_every_file_that_was_cut_is_found_wherever_it_was_cut(whole, soak, figure):
    chance, cuts = random.Random(1), 2_000 if soak else 100
    files = loaders(whole)
    for number in range(cuts):
        path = list(files)[number % len(files)]
        data = path.read_bytes()
        all_find_it(path, data[: chance.randrange(len(data))], files[path])
    figure(f"{cuts:,} cut files, all found")


def test_every_file_that_is_gone_is_found(whole):
    for path, readers in loaders(whole).items():
        if path.name in ("manifest.json", "config.json"):
            continue  # without which there is nothing: a mistake in an option
        path.rename(path.with_name("gone"))
        for read in readers:
            with pytest.raises(DamagedError, match=path.name):
                read()
        path.with_name("gone").rename(path)


@pytest.mark.parametrize("grown", ["the file", "what is in it"])
def test_a_shard_that_is_a_bomb_costs_no_memory(whole, tmp_path, grown):
    folder = shutil.copytree(whole / "shards", tmp_path / "shards")
    bomb = zlib.compress(bytes(50_000_000), wbits=31)
    if grown == "the file":
        bomb += bytes(50_000_000)
    (folder / "train-00000.safetensors.gz").write_bytes(bomb)
    document = json.loads((folder / "manifest.json").read_bytes())
    next(shard for shard in document["shards"] if shard["split"] == "train")["sha256"] = sha256(bomb)
    (folder / "manifest.json").write_bytes(sealed(document))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="train-00000"):
            read_shards(folder)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def unfinished(whole: Path, folder: Path) -> Path:
    """A copy of the run that has yet to be ended."""
    run = shutil.copytree(whole / "run", folder)
    document = json.loads((run / "run.json").read_bytes()) | {"finished": None}
    (run / "run.json").write_bytes(sealed(document))
    return run


def test_a_damaged_newest_checkpoint_is_passed_over_aloud_for_the_one_before(whole, tmp_path, capsys):
    run = unfinished(whole, tmp_path / "run")
    (run / "last" / "optimizer.safetensors").write_bytes(b"damaged")
    train([whole / "shards"], run, TINY.training, "cpu", quiet=True)
    assert str(run / "last") in capsys.readouterr().err
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (run / "last" / name).read_bytes() == (whole / "run" / "last" / name).read_bytes()


def test_the_checkpoint_before_a_damaged_one_stays_until_there_is_another(whole, tmp_path, monkeypatch):
    run = unfinished(whole, tmp_path / "run")
    (run / "last" / "optimizer.safetensors").write_bytes(b"damaged")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(captcha_ocr.resume, "save_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        train([whole / "shards"], run, replace(TINY.training, epochs=9), "cpu", quiet=True)
    assert load_last(run) == run / "previous"


def another_run(whole: Path, folder: Path) -> Path:
    """A run of another seed on the same shards."""
    train([whole / "shards"], folder, replace(TINY.training, seed=1, epochs=1), "cpu", quiet=True)
    return folder


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_best_model_of_another_run_is_no_best_model(whole, tmp_path, has_ended):
    run = unfinished(whole, tmp_path / "run")
    if has_ended:
        shutil.copy(whole / "run" / "run.json", run)
    shutil.rmtree(run / "best")
    shutil.copytree(another_run(whole, tmp_path / "other") / "best", run / "best")
    assert check_whole(run / "best")
    with pytest.raises(DamagedError, match="--resume never"):
        train([whole / "shards"], run, TINY.training, "cpu", quiet=True)


def test_a_run_that_ended_and_lost_its_checkpoints_is_not_silently_begun_anew(whole, tmp_path):
    run = shutil.copytree(whole / "run", tmp_path / "run")
    for name in ("last", "previous"):
        shutil.rmtree(run / name)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(DamagedError, match="--resume never"):
        train([whole / "shards"], run, replace(TINY.training, epochs=99), "cpu", quiet=True)


@pytest.mark.parametrize("options", [[], ["--resume", "auto"], ["--force"]])
def test_where_all_checkpoints_are_damaged_nothing_is_begun_anew(whole, tmp_path, options):
    run = unfinished(whole, tmp_path / "run")
    for name in ("last", "previous"):
        (run / name / "model.safetensors").write_bytes(b"damaged")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    command = ["train", "--preset", "tiny", "--data", str(whole / "shards"), "--out", str(run), *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 3
    assert re.search(naming(run / "last", run / "previous", "--resume never", "--force"), result.stderr)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def cut_off(tensors: dict) -> None:
    name, tensor = next((name, tensor) for name, tensor in tensors.items() if tensor.dim() > 1)
    tensors[name] = tensor[1:].contiguous()


@pytest.mark.parametrize(
    "change",
    [
        cut_off,
        lambda tensors: tensors.pop("0.exp_avg"),
        lambda tensors: tensors.update({"9999.step": torch.zeros(())}),
        lambda tensors: tensors.update({"0.step": torch.zeros(2)}),
        lambda tensors: tensors.update({"exp_avg": torch.zeros(2)}),
    ],
)
def test_an_optimizers_state_that_fits_no_parameter_is_refused(whole, tmp_path, change):
    run = unfinished(whole, tmp_path / "run")
    last = run / "last"
    tensors = load_file(last / "optimizer.safetensors")
    change(tensors)
    save_file(tensors, last / "optimizer.safetensors")
    document = json.loads((last / "config.json").read_bytes())
    document["files"]["optimizer.safetensors"] = sha256((last / "optimizer.safetensors").read_bytes())
    (last / "config.json").write_bytes(sealed(document))
    with pytest.raises(DamagedError, match=r"optimizer\.safetensors"):
        train([whole / "shards"], run, TINY.training, "cpu", quiet=True)


@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("shards/manifest.json", lambda folder: read_manifest(folder / "shards")),
        ("run/run.json", lambda folder: read_run(folder / "run")),
        ("run/best/config.json", lambda folder: Recognizer(folder / "run")),
    ],
)
def test_a_newer_version_is_refused_by_name(whole, tmp_path, file, read):
    folder = shutil.copytree(whole, tmp_path / "copy")
    document = json.loads((folder / file).read_bytes())
    (folder / file).write_bytes(sealed({**document, "version": document["version"] + 1}))
    with pytest.raises(DamagedError, match=naming(file, document["version"] + 1)):
        read(folder)
