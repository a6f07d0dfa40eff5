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
from captcha_ocr.training.batches import BatchPartition
from captcha_ocr.training.distributed import ProcessGroup, is_connection_error, local_device, process_group

CPU = torch.device("cpu")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TRAIN = """
import json, os, signal, sys
from dataclasses import replace
from pathlib import Path
import conftest
from captcha_ocr.training import loop, train as training
from captcha_ocr.training.run import TrainOptions
from captcha_ocr.config import PRESETS
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.training.distributed import ProcessGroup

data, out, victim = sys.argv[1:]
rank, first_attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
PRESETS["tiny"] = conftest.TINY
training.TRIAL_SECONDS = loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0
agreed = ProcessGroup.agree_on_signal

def die_after_seven_steps(self, number, step):
    if first_attempt and step == 7 and rank == int(victim):
        os.kill(os.getpid(), signal.SIGKILL)
    return agreed(self, number, step)

ProcessGroup.agree_on_signal = die_after_seven_steps
# Nothing is learnt at this rate, so that early stopping has to end the run.
config = replace(conftest.TINY.training, schedule="constant", learning_rate=9.9, patience=2, epochs=200)
try:
    finished = training.train([Path(data)], Path(out), config, TrainOptions(device="cpu"))
    os.write(1, (json.dumps([rank, finished.epochs, finished.rule, finished.test["images"]]) + "\\n").encode())
except CaptchaOcrError as error:
    os.write(1, (json.dumps([rank, type(error).__name__]) + "\\n").encode())
    sys.exit(error.exit_code)
"""
EXCHANGE = """
import json, os
import torch
from captcha_ocr.errors import UsageError
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.training.distributed import process_group
from captcha_ocr.training.loop import until_signal

def dump(text): return text.encode()
def load(data): return data.decode()

with process_group(torch.device("cpu")) as group:
    rank = group.rank
    part = range(2 + rank)  # the second process has one more
    sums, sent = torch.tensor([rank + 1.0]), torch.full((2, 3, 4, 4), float(rank))
    sent = sent.contiguous(memory_format=torch.channels_last)
    group.all_reduce(sums)
    group.broadcast([sent])
    told = group.broadcast_from_main(lambda: "only the main process does this", dump, load)
    agreed = group.agree_on_signal(15 if rank == 1 else None, 3), group.agree_on_signal(None, 4)
    interruption = Interruption()
    seen = [len(list(until_signal(part, group, interruption))) - rank]
    try:
        for number in until_signal(part, group, interruption):
            seen.append(number)
            interruption.wanted = 15 if rank == 1 else None
    except SystemExit as leaving:
        seen.append(leaving.code)
    found = [sums.item(), sent.sum().item(), told, agreed, seen]
    os.write(1, (json.dumps(found) + "\\n").encode())

    def refuse():
        raise UsageError("no")

    try:
        group.broadcast_from_main(refuse, dump, load)
    except UsageError as error:
        os.write(1, b"refused by the main process\\n")
    except SystemExit as leaving:
        os.write(1, b"told to leave with %d\\n" % leaving.code)
"""


def run_two(*arguments: object, options=()) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [*TORCHRUN, *options, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def documents(result: subprocess.CompletedProcess) -> list:
    assert result.returncode == 0, result.stderr
    return sorted((json.loads(line) for line in result.stdout.splitlines()), key=str)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.fixture(scope="module")
def pair(shards, script, tmp_path_factory):
    """The output and the folder of an undisturbed run of two processes."""
    out = tmp_path_factory.mktemp("pair") / "run"
    return run_two(script, shards, out, -1), out


def test_both_stop_in_the_same_epoch_and_score_each_image_once_and_only_the_first_speaks_and_writes(pair):
    result, out = pair
    (rank, *first), (other_rank, *second) = documents(result)
    assert (rank, other_rank) == (0, 1)
    assert first == second
    assert first[2] == 6
    validation = json.loads((out / "best" / "config.json").read_bytes())["facts"]["validation"]
    assert validation["images"] == 6
    assert result.stderr.count("ResNet-18") == 1
    assert len(re.findall(r"cpu \(.*\b2\b", result.stderr)) == 1
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len({row["step"] for row in rows if row["by"] == "step"}) == rows[-1]["step"]
    assert json.loads((out / "run.json").read_bytes())["processes"] == 2


def test_after_a_killed_process_torchrun_goes_on_by_itself_and_ends_with_the_same_weights(
    pair, shards, script, tmp_path
):
    result = run_two(script, shards, tmp_path / "run", 1, options=["--max-restarts", "1"])
    lost, *finished = documents(result)
    assert lost == [0, "CaptchaOcrError"]
    assert finished == documents(pair[0])
    assert re.search(rf"2 steps.*{tmp_path}/run/last", result.stderr)
    for name in ("best", "last"):
        assert weights(pair[1] / name) == weights(tmp_path / "run" / name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.skipif(os.name != "posix", reason="no such signals there")
def test_a_process_that_waits_for_the_others_can_be_ended(number):
    waiting = """
import signal, sys, torch
from captcha_ocr.training.distributed import process_group
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("waiting", flush=True)
with process_group(torch.device("cpu")):
    pass
"""
    environment = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", waiting], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "waiting\n"
        time.sleep(1)
        process.send_signal(number)
        assert process.wait(timeout=60) in (-number, 128 + number)  # the latter where it was slow, and not yet waiting


def test_what_processes_exchange_arrives(tmp_path):
    (tmp_path / "exchange.py").write_text(EXCHANGE)
    result = run_two(tmp_path / "exchange.py")
    lines = sorted(result.stdout.splitlines())
    found = [3.0, 0.0, "only the main process does this", [15, None], [2, 0, 143]]
    assert [json.loads(line) for line in lines[:2]] == [found, found]
    assert lines[2:] == ["refused by the main process", "told to leave with 2"]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize(("total", "batch_size"), [(6, 16), (100, 16), (103, 16), (1600, 100), (99, 25), (1007, 17)])
def test_shares_are_disjoint_cover_all_and_have_as_many_steps(total, batch_size, count):
    shares = [BatchPartition(total, batch_size, ProcessGroup(CPU, rank, count)) for rank in range(count)]
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
    with pytest.raises(UsageError, match=naming("--batch-size", 6)):
        BatchPartition(100, 5, ProcessGroup(CPU, 0, 3))


def test_a_process_without_torchrun_is_alone_and_exchanges_nothing(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group(CPU) as alone:
        assert alone == ProcessGroup(CPU)
    assert alone.is_main
    tensor = torch.ones(2)
    alone.all_reduce(tensor)
    alone.broadcast([tensor])
    assert tensor.tolist() == [1, 1]
    assert alone.agree_on_signal(15, 1) == 15
    assert alone.broadcast_from_main(lambda: "x", str.encode, bytes.decode) == "x"
    model = torch.nn.Linear(1, 1)
    assert alone.wrap(model) is model
    assert local_device("auto") == "auto"


def test_under_torchrun_each_process_takes_the_gpu_of_its_number(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert local_device("auto") == local_device("cuda") == "cuda:3"
    assert local_device("cpu") == "cpu"
    with pytest.raises(UsageError, match="--device cuda"):
        local_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert local_device("auto") == "auto"


def test_a_lost_process_is_told_from_another_error():
    assert is_connection_error(RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"))
    assert is_connection_error(torch.distributed.DistBackendError("NCCL error: remote process exited"))
    assert not is_connection_error(RuntimeError("shapes differ"))
