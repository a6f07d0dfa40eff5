"""Two real processes that torchrun starts on the CPU; and the arithmetic by which they share."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from conftest import naming, weights

from captcha_ocr.errors import UsageError
from captcha_ocr.training.distributed import (
    BatchPartition,
    ProcessGroup,
    is_connection_error,
    local_device,
    process_group,
)

CPU = torch.device("cpu")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TRAIN = """
import contextlib, json, os, signal, sys
from dataclasses import replace
from pathlib import Path
import conftest, torch
from captcha_ocr.training import early_stopping, reporting, train as training
from captcha_ocr.training.run import recorder
from captcha_ocr.options.training import PRESETS, TrainOptions
from captcha_ocr.errors import UsageError
from captcha_ocr.training.distributed import process_group
from captcha_ocr.training.interruption import Interruption

data, whole, killed = map(Path, sys.argv[1:])
rank, first_attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
PRESETS["tiny"] = conftest.TINY
reporting.TRIAL_SECONDS = recorder.SECONDS_BETWEEN_CHECKPOINTS = 0.0
leave_after_step = Interruption.leave_after_step

def die_after_seven_steps(self, step):
    if first_attempt and step == 7 and rank == 1 and killed.exists():
        os.kill(os.getpid(), signal.SIGKILL)
    leave_after_step(self, step)

Interruption.leave_after_step = die_after_seven_steps
def exchange(group):
    part = range(2 + rank)  # the second process has one more
    sums = torch.tensor([rank + 1.0])
    sent = torch.full((2, 3, 4, 4), float(rank)).contiguous(memory_format=torch.channels_last)
    group.all_reduce(sums)
    group.broadcast([sent])
    told, content = group.broadcast_from_main(lambda: (["by the main process"], b"\\n\\0"))
    interruption = Interruption(group)
    largest = group.maximum(rank, 5 - rank)
    seen = [len(list(interruption.watch(part))) - rank]
    try:
        for number in interruption.watch(part):
            seen.append(number)
            interruption.received = 15 if rank == 1 else 0
    except SystemExit as leaving:
        seen.append(leaving.code)
    joined = group.concatenate(torch.arange(3 * rank, 3 * rank + 2 + rank)).tolist()
    found = [sums.item(), sent.sum().item(), told, list(content), largest, seen, joined]
    os.write(1, (json.dumps(found) + "\\n").encode())

    def refuse():
        raise UsageError("no")

    try:
        group.broadcast_from_main(refuse)
    except (UsageError, SystemExit) as error:
        os.write(1, f"{rank} {error}\\n".encode())

# Any network has learnt enough after three epochs, of any number of images.
early_stopping._ENOUGH = early_stopping._FEWEST_TRAINED = early_stopping._FEWEST_VALIDATED = 0
config = replace(conftest.TINY.training, patience=None, epochs=9)
with process_group(torch.device("cpu")) as group:
    training.process_group = lambda device: contextlib.nullcontext(group)
    if first_attempt:
        exchange(group)
    for out in (whole, killed):
        finished = training.train([data], out, config, TrainOptions(device="cpu"))
        ended = [rank, finished.epochs, finished.rule, finished.test["images"]]
        os.write(1, (json.dumps(ended) + "\\n").encode())
"""


def test_two_processes_train_as_one_and_go_on_by_themselves_after_one_was_killed(shards, tmp_path):
    script, out, killed = tmp_path / "train.py", tmp_path / "run", tmp_path / "killed"
    script.write_text(TRAIN)
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [*TORCHRUN, "--max-restarts", "1", *map(str, (script, shards, out, killed))],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    *exchanged, left, refused = sorted(lines[:4], reverse=True)
    arrived = [3.0, 0.0, ["by the main process"], [10, 0], [1, 5], [2, 0, 143], [0, 1, 3, 4, 5]]
    assert list(map(json.loads, exchanged)) == [arrived, arrived]
    # The first says why, and the other leaves with the same exit status.
    assert (refused, left) == ("0 no", "1 2")
    # Two runs end in the first attempt, and twice as many in the second; each scores 6 images once.
    finished = sorted(map(json.loads, lines[4:]))
    assert finished == [[rank, *finished[0][1:3], 6] for rank in (0, 0, 0, 1, 1, 1)]
    validation = json.loads((out / "best" / "config.json").read_bytes())["facts"]["validation"]
    assert validation["images"] == 6
    # Only the first speaks and writes: of the whole run, of the killed one, and of its end.
    assert result.stderr.count("ResNet-18") == 3
    assert len(re.findall(r"cpu \(.*\b2\b", result.stderr)) == 3
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    # The average has read 6 images to validate, and the 24 to train on of each process.
    assert [row["average_images"] for row in rows if row["by"] == "epoch"] == [54, 54, 54]
    assert len({row["step"] for row in rows if row["by"] == "step"}) == rows[-1]["step"]
    assert json.loads((out / "run.json").read_bytes())["processes"] == 2
    assert re.search(rf"2 steps.*{killed}/last", result.stderr)
    for name in ("best", "last"):
        assert weights(out / name) == weights(killed / name)


@pytest.mark.skipif(os.name != "posix", reason="no such signals there")
def test_a_process_that_waits_for_the_others_can_be_ended():
    waiting = """
import signal, sys, torch
from captcha_ocr.training.distributed import process_group
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("waiting", flush=True)
with process_group(torch.device("cpu")):
    pass
"""
    environment = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command, environment = [sys.executable, "-c", waiting], {**os.environ, **environment}
    processes = {
        number: subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    for process in processes.values():
        assert process.stdout.readline() == b"waiting\n"
    time.sleep(1)
    for number, process in processes.items():
        process.send_signal(number)
        # The latter where it was slow, and not yet waiting.
        with process:
            assert process.wait(timeout=60) in (-number, 128 + number)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("total", "batch_size"), [(6, 16), (100, 16), (103, 16), (1600, 100), (99, 25), (1007, 17)]
)
def test_shares_are_disjoint_cover_all_and_have_as_many_steps(total, batch_size, count):
    shares = [
        BatchPartition(total, batch_size, ProcessGroup(CPU, rank, count)) for rank in range(count)
    ]
    assert [sample for share in shares for sample in share.samples] == list(range(total))
    assert sum(share.local_batch_size for share in shares) == batch_size
    steps = {share.steps for share in shares}
    assert len(steps) == 1
    for share in shares:
        full, tail = divmod(len(share.samples), share.local_batch_size)
        assert full + (tail > 0) >= share.steps >= full - (tail == 0)
    seen = sum(shares[0].global_batch_size(step) for step in range(shares[0].steps))
    assert total - 4 * count < seen <= total  # what is left out is a tail too small for so many


def test_a_batch_too_small_for_all_processes_is_refused():
    with pytest.raises(UsageError, match=naming("`batch_size`", 6)):
        BatchPartition(100, 5, ProcessGroup(CPU, 0, 3))


def test_a_process_is_alone_or_under_torchrun_takes_the_gpu_of_its_number(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group(CPU) as alone:
        assert alone == ProcessGroup(CPU)
    assert local_device("cpu") == CPU
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert local_device("auto") == local_device("cuda") == torch.device("cuda:3")
    assert local_device("cpu") == CPU
    with pytest.raises(UsageError, match="`device` cuda"):
        local_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert local_device("auto") == CPU


def test_a_lost_process_is_told_from_another_error():
    assert is_connection_error(
        RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
    )
    assert is_connection_error(
        torch.distributed.DistBackendError("NCCL error: remote process exited")
    )
    assert not is_connection_error(RuntimeError("shapes differ"))
