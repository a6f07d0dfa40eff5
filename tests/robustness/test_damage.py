"""Files of ours that were damaged: flipped bits, cut files, bombs.

Each is found, and none gives a wrong answer.
"""

import json
import os
import random
import re
import shutil
import tracemalloc
import zlib
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from conftest import QUIET, TINY, amend, contents, invoke, naming, put, read_shards, weights
from safetensors.torch import load_file, save

from captcha_ocr import Recognizer
from captcha_ocr.data.shards import check_shards, read_dataset
from captcha_ocr.errors import DamagedError
from captcha_ocr.network.weights import load_model
from captcha_ocr.system.files import sha256
from captcha_ocr.training.run.folder import check_files, find_last, read_run
from captcha_ocr.training.train import train


def _list_loaders(whole: Path) -> dict[Path, list]:
    """Return every file of ours that a loader reads, with all that read it."""
    run, model, shards = (whole / name for name in ("run", "model", "shards"))

    read_all = [lambda: read_shards(shards), lambda: check_shards(read_dataset([shards]).refs)]
    loaders = dict.fromkeys(sorted(shards.iterdir()), read_all)
    for path in sorted([*(run / "last").iterdir(), *(run / "previous").iterdir()]):
        loaders[path] = [partial(check_files, path.parent)]
    read_by_onnx = partial(Recognizer, model, engine="onnx")
    return loaders | {
        run / "run.json": [lambda: read_run(run)],
        model / "config.json": [read_by_onnx, lambda: load_model(model)],
        model / "model.safetensors": [lambda: load_model(model), lambda: check_files(model)],
        model / "model.onnx": [read_by_onnx, lambda: check_files(model)],
    }


def _flip_bit(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def _remove(path: Path, _: random.Random) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "times", "times_with_soak"),
    [(_flip_bit, 64, 10_000), (_cut, 32, 2_000), (_remove, 16, 16)],
)
def test_every_flipped_bit_every_cut_and_every_missing_file_is_found(
    whole, soak, figure, damage, times, times_with_soak
):
    loaders, chance = _list_loaders(whole), random.Random(0)
    times = times_with_soak if soak else times
    for path in islice(cycle(loaders), times):
        if damage is _remove and path.name in ("manifest.json", "config.json"):
            continue  # without them, the folder is not ours
        before = path.read_bytes()
        damage(path, chance)
        for read in loaders[path]:
            with pytest.raises(DamagedError, match=path.name):
                read()
        path.write_bytes(before)
    figure(f"{times:,} times over {len(loaders)} files, all found")


@pytest.mark.parametrize("zeros_after_it", [0, 50_000_000])
def test_a_shard_that_is_a_bomb_costs_no_memory(whole, zeros_after_it):
    folder = whole / "shards"
    bomb = zlib.compress(bytes(50_000_000), wbits=31) + bytes(zeros_after_it)
    shards = json.loads((folder / "manifest.json").read_bytes())["shards"]
    shard = shards[0]
    (folder / shard["file"]).write_bytes(bomb)
    shard["sha256"] = sha256(bomb)
    amend(folder / "manifest.json", shards=shards)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match=shard["file"]):
            read_shards(folder)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "lose", [shutil.rmtree, lambda last: (last / "optimizer.safetensors").write_bytes(b"damaged")]
)
def test_a_lost_checkpoint_gives_way_to_the_one_before_which_stays(
    whole, capsys, monkeypatch, lose
):
    run, save = whole / "run", "captcha_ocr.training.run.checkpoint.save_checkpoint"
    expected = weights(run / "last")
    lose(run / "last")
    with monkeypatch.context() as context:
        context.setattr(save, lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            train([whole / "shards"], run, TINY.training, QUIET)
    assert str(run / "last") in capsys.readouterr().err
    assert find_last(run) == run / "previous"
    train([whole / "shards"], run, TINY.training, QUIET)
    assert weights(run / "last") == expected


def test_a_best_model_of_another_run_is_no_best_model(run, whole):
    best = whole / "run" / "best"
    facts = json.loads((best / "config.json").read_bytes())["facts"]
    amend(best / "config.json", facts={**facts, "run": "0" * 64})
    assert check_files(best)
    for _ in range(2):
        with pytest.raises(DamagedError, match=naming(best.parent, "`resume` never")):
            train([whole / "shards"], best.parent, TINY.training, QUIET)
        shutil.copy(run / "run.json", best.parent)  # which has finished


@pytest.mark.parametrize("options", [[], ["--resume", "auto"], ["--force"]])
def test_where_all_checkpoints_are_damaged_no_run_starts_from_nothing(whole, options):
    run = whole / "run"
    for name in ("last", "previous"):
        (run / name / "model.safetensors").write_bytes(b"damaged")
    before = contents(run)
    result = invoke("train", "--preset", "tiny", "--data", whole / "shards", "--out", run, *options)
    names = naming(run / "last", run / "previous", "--resume never", "--force")
    assert result.exit_code == 3
    assert re.search(names, result.stderr)
    assert contents(run) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.update({"0.exp_avg": tensors["0.exp_avg"][1:].contiguous()}),
        lambda tensors: tensors.pop("0.exp_avg"),
        lambda tensors: tensors.update({"9999.step": torch.zeros(())}),
        lambda tensors: tensors.update({"exp_avg": torch.zeros(2)}),
    ],
)
def test_an_optimizers_state_that_fits_no_parameter_is_refused(whole, change):
    path = whole / "run" / "last" / "optimizer.safetensors"
    tensors = load_file(path)
    change(tensors)
    put(path, save(tensors))
    with pytest.raises(DamagedError, match=naming(path.parent)):
        train([whole / "shards"], whole / "run", TINY.training, QUIET)
