import contextlib
import re

import pytest
import torch

from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.network import device
from captcha_ocr.network.device import (
    autocast,
    available_devices,
    choose_device,
    choose_precision,
    describe_device,
    enough_memory,
    one_thread,
    set_threads,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("before", "processors", "wanted", "threads"),
    [
        (4, 8, None, 4),
        (4, 2, None, 2),
        (1, 8, None, 1),
        (1, 2, 3, 3),
        (4, 8, 1, 1),
        (2, 1, None, 1),
    ],
)
def test_torch_computes_with_the_wanted_threads_or_what_the_machine_grants(
    monkeypatch, torch_threads, before, processors, wanted, threads
):
    monkeypatch.setattr(device, "available_workers", lambda: processors)
    torch.set_num_threads(before)
    set_threads(wanted)
    assert torch.get_num_threads() == threads


def test_one_thread_computes_until_the_end_of_a_block_or_an_error(torch_threads):
    torch.set_num_threads(2)
    with contextlib.suppress(ValueError), one_thread():
        assert torch.get_num_threads() == 1
        raise ValueError
    assert torch.get_num_threads() == 2


def test_a_forked_process_keeps_its_one_thread(monkeypatch, torch_threads):
    torch.set_num_threads(1)
    monkeypatch.setattr(device, "_PROCESS", 0)
    set_threads(2)
    assert torch.get_num_threads() == 1


def test_auto_takes_the_first_device_and_the_cpu_is_always_there():
    assert str(choose_device("auto")) == available_devices()[0]
    assert available_devices()[-1] == str(choose_device("cpu")) == "cpu"
    assert all(word in describe_device(CPU) for word in ("cpu", str(torch.get_num_threads())))


@pytest.mark.parametrize("name", ["cuda:99", "tpu", "", "meta", "CPU"])
def test_an_absent_device_is_refused_and_the_present_ones_are_named(name):
    with pytest.raises(UsageError, match=r"\bcpu\b"):
        choose_device(name)


def test_a_hidden_gpu_is_explained(monkeypatch):
    monkeypatch.setattr(device, "available_devices", lambda: ["cpu"])
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(UsageError, match="CPU"):
        choose_device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        choose_device("cuda:0")


@pytest.mark.parametrize(
    ("cpu_name", "instructions", "precision"),
    [
        ("AMD EPYC", ["avx512_bf16"], "bf16"),
        ("Intel Xeon", ["avx512_bf16"], "fp32"),
        ("Intel Xeon", ["avx512_bf16", "amx_bf16"], "bf16"),
        ("AMD EPYC", ["avx512_f"], "fp32"),
        ("a processor that torch cannot ask", None, "fp32"),
    ],
)
def test_auto_precision_follows_the_processor(monkeypatch, cpu_name, instructions, precision):
    if instructions is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        known = {"cpu_name": cpu_name, "avx512_bf16": False, "amx_bf16": False} | dict.fromkeys(
            instructions, True
        )
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert choose_precision("auto", CPU) == precision


@pytest.mark.parametrize(
    ("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_forward_pass_runs_in_the_named_precision(name, dtype):
    with autocast(CPU, choose_precision(name, CPU)):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype


def test_a_container_may_have_less_memory_than_the_machine(monkeypatch):
    whole, peaks = device.measure_memory(CPU), device.peak_memory(CPU)
    assert whole / 1e6 > peaks["peak_memory_mb"] > 50
    assert peaks["peak_device_memory_mb"] is None  # the CPU has none of its own
    for limit, memory in ((None, whole), (123456, 123456), (2**62, whole)):
        monkeypatch.setattr(device, "memory_limit", lambda limit=limit: limit)
        assert device.measure_memory(CPU) == memory


def test_a_lack_of_memory_is_explained_with_advice():
    with (
        pytest.raises(CaptchaOcrError, match="try that") as refusal,
        enough_memory(CPU, "for this: try that"),
    ):
        torch.empty(10**15)
    assert re.search(r"\bcpu\b.*\b[\d.]+ GB\b", str(refusal.value))


OUT_OF_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError(),
    RuntimeError("MPS backend out of memory"),
    RuntimeError("could not create a primitive"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_every_device_reports_a_lack_of_memory_in_its_own_way(error):
    with pytest.raises(CaptchaOcrError, match="for this"), enough_memory(CPU, "for this"):
        raise error


@pytest.mark.parametrize(
    "words", ["shapes differ", "could not create a primitive descriptor for a convolution"]
)
def test_another_error_stays_as_it_is(words):
    with pytest.raises(RuntimeError, match=words), enough_memory(CPU, "for this"):
        raise RuntimeError(words)
