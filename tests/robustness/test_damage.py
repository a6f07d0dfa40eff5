"""Files of ours that were damaged: flipped bits, cut files, bombs. Each is found, and none gives a wrong answer."""

import json
import random
import re
import shutil
import tracemalloc
import zlib
from pathlib import Path

import pytest
import torch
from conftest import QUIET, TINY, amend, contents, invoke, naming, put, read_shards, weights
from safetensors.torch import load_file, save

import captcha_ocr.training.run.checkpoint
from captcha_ocr import Recognizer
from captcha_ocr.data.shards import check_shards, read_manifest
from captcha_ocr.errors import DamagedError
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.files import sha256
from captcha_ocr.training.run.checkpoint import check_files, find_last
from captcha_ocr.training.run.folder import read_run
from captcha_ocr.training.train import train


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
    run, best = folder / "run", folder / "run" / "best"
    shards = folder / "shards"
    both = [lambda: read_shards(shards), lambda: check_shards(shards, read_manifest(shards).shards)]
    found = dict.fromkeys(sorted(shards.iterdir()), both)
    found[run / "run.json"] = [lambda: read_run(run)]
    for checkpoint in (run / "last", run / "previous"):
        for path in sorted(checkpoint.iterdir()):
            found[path] = [lambda folder=checkpoint: check_files(folder)]
    found[best / "config.json"] = [
        lambda: Recognizer(best, engine="onnx"),
        lambda: load_model(best),
    ]
    found[best / "model.safetensors"] = [lambda: load_model(best), lambda: check_files(best)]
    found[best / "model.onnx"] = [
        lambda: Recognizer(best, engine="onnx"),
        lambda: check_files(best),
    ]
    return found


def all_find_it(path: Path, damaged: bytes | None, readers: list) -> None:
    """Check that every loader refuses and names a file that is damaged, or missing."""
    before = path.read_bytes()
    path.unlink() if damaged is None else path.write_bytes(damaged)
    try:
        for read in readers:
            with pytest.raises(DamagedError, match=path.name):
                read()
    finally:
        path.write_bytes(before)


def flipped_bit(data: bytes, generator: random.Random) -> bytes:
    bit = generator.randrange(8 * len(data))
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def cut(data: bytes, generator: random.Random) -> bytes:
    return data[: generator.randrange(len(data))]


@pytest.mark.parametrize(
    ("damaged", "times", "times_with_soak"), [(flipped_bit, 100, 10_000), (cut, 50, 2_000)]
)
def test_every_flipped_bit_and_every_cut_is_found(
    whole, soak, figure, damaged, times, times_with_soak
):
    files, generator, times = loaders(whole), random.Random(0), times_with_soak if soak else times
    for number in range(times):
        path = list(files)[number % len(files)]
        all_find_it(path, damaged(path.read_bytes(), generator), files[path])
    figure(f"{times:,} times over {len(files)} files, all found")


def test_every_file_that_is_gone_is_found(whole):
    for path, readers in loaders(whole).items():
        if path.name not in (
            "manifest.json",
            "config.json",
        ):  # a folder without them is no folder of ours
            all_find_it(path, None, readers)


@pytest.mark.parametrize("grown", ["the file", "its content"])
def test_a_shard_that_is_a_bomb_costs_no_memory(whole, tmp_path, grown):
    folder = shutil.copytree(whole / "shards", tmp_path / "shards")
    bomb = zlib.compress(bytes(50_000_000), wbits=31) + bytes(
        50_000_000 if grown == "the file" else 0
    )
    (folder / "train-00000.safetensors.gz").write_bytes(bomb)
    shards = json.loads((folder / "manifest.json").read_bytes())["shards"]
    next(shard for shard in shards if shard["split"] == "train")["sha256"] = sha256(bomb)
    amend(folder / "manifest.json", shards=shards)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="train-00000"):
            read_shards(folder)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def unfinished(whole: Path, folder: Path) -> Path:
    """Copy the run as one that has not finished."""
    run = shutil.copytree(whole / "run", folder)
    amend(run / "run.json", finished=None)
    return run


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_lost_checkpoint_gives_way_to_the_one_before_which_stays(
    whole, tmp_path, capsys, monkeypatch, is_missing
):
    run = unfinished(whole, tmp_path / "run")
    if is_missing:
        shutil.rmtree(run / "last")
    else:
        (run / "last" / "optimizer.safetensors").write_bytes(b"damaged")
    with monkeypatch.context() as context:
        context.setattr(
            captcha_ocr.training.run.checkpoint, "save_checkpoint", lambda *_: pytest.fail("killed")
        )
        with pytest.raises(pytest.fail.Exception, match="killed"):
            train([whole / "shards"], run, TINY.training, QUIET)
    assert str(run / "last") in capsys.readouterr().err
    assert find_last(run) == run / "previous"
    train([whole / "shards"], run, TINY.training, QUIET)
    assert weights(run / "last") == weights(whole / "run" / "last")


def test_a_best_model_of_another_run_is_no_best_model(whole, tmp_path):
    run = unfinished(whole, tmp_path / "run")
    facts = json.loads((run / "best" / "config.json").read_bytes())["facts"]
    amend(run / "best" / "config.json", facts={**facts, "run": "0" * 64})
    assert check_files(run / "best")
    for _ in range(2):
        with pytest.raises(DamagedError, match=naming(run, "`resume` never")):
            train([whole / "shards"], run, TINY.training, QUIET)
        shutil.copy(whole / "run" / "run.json", run)  # which has finished


@pytest.mark.parametrize("options", [[], ["--resume", "auto"], ["--force"]])
def test_where_all_checkpoints_are_damaged_no_run_starts_from_nothing(whole, tmp_path, options):
    run = unfinished(whole, tmp_path / "run")
    for name in ("last", "previous"):
        (run / name / "model.safetensors").write_bytes(b"damaged")
    before = contents(run)
    result = invoke("train", "--preset", "tiny", "--data", whole / "shards", "--out", run, *options)
    assert result.exit_code == 3
    assert re.search(
        naming(run / "last", run / "previous", "--resume never", "--force"), result.stderr
    )
    assert contents(run) == before


def cut_off(tensors: dict) -> None:
    name, tensor = next((name, tensor) for name, tensor in tensors.items() if tensor.dim() > 1)
    tensors[name] = tensor[1:].contiguous()


@pytest.mark.parametrize(
    "change",
    [
        cut_off,
        lambda tensors: tensors.pop("0.exp_avg"),
        lambda tensors: tensors.update({"9999.step": torch.zeros(())}),
        lambda tensors: tensors.update({"exp_avg": torch.zeros(2)}),
    ],
)
def test_an_optimizers_state_that_fits_no_parameter_is_refused(whole, tmp_path, change):
    run = unfinished(whole, tmp_path / "run")
    last = run / "last"
    tensors = load_file(last / "optimizer.safetensors")
    change(tensors)
    put(last / "optimizer.safetensors", save(tensors))
    with pytest.raises(DamagedError, match=naming(last)):
        train([whole / "shards"], run, TINY.training, QUIET)
