import re

import pytest
import torch

from captcha_ocr.device import (
    autocast,
    available_devices,
    choose_device,
    choose_precision,
    describe,
    enough_memory,
    hidden_hint,
    memory_of,
    peak_memory,
)
from captcha_ocr.errors import CaptchaOcrError, UsageError

CPU = torch.device("cpu")


def test_auto_takes_the_first_of_the_devices_there_are():
    assert str(choose_device("auto")) == available_devices()[0]


def test_the_cpu_is_always_there():
    assert choose_device("cpu") == CPU
    assert available_devices()[-1] == "cpu"


@pytest.mark.parametrize("name", ["cuda:99", "tpu", "", "meta", "CPU"])
def test_an_absent_device_is_refused_naming_those_there_are(name):
    with pytest.raises(UsageError, match=r"\bcpu\b"):
        choose_device(name)


def test_a_wanted_precision_is_kept():
    assert choose_precision("fp32", CPU) == "fp32"
    assert choose_precision("bf16", CPU) == "bf16"


@pytest.mark.parametrize(
    ("cpu_name", "instructions", "precision"),
    [
        ("AMD EPYC", ["avx512_bf16"], "bf16"),
        ("Intel Xeon", ["avx512_bf16"], "fp32"),
        ("Intel Xeon", ["avx512_bf16", "amx_bf16"], "bf16"),
        ("AMD EPYC", ["avx512_f"], "fp32"),
    ],
)
def test_auto_precision_follows_the_processor(monkeypatch, cpu_name, instructions, precision):
    capabilities = {"cpu_name": cpu_name, "avx512_bf16": False, "amx_bf16": False} | dict.fromkeys(instructions, True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert choose_precision("auto", CPU) == precision


def test_a_processor_that_torch_cannot_ask_gets_float32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert choose_precision("auto", CPU) == "fp32"


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_forward_pass_runs_in_the_precision(precision, dtype):
    with autocast(CPU, precision):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype


def test_the_description_of_the_cpu_has_its_threads():
    assert all(word in describe(CPU) for word in ("cpu", str(torch.get_num_threads())))


def test_this_machine_has_some_memory_and_a_container_may_have_less(tmp_path, monkeypatch):
    monkeypatch.setattr("captcha_ocr.device.CONTAINER_LIMIT", tmp_path / "memory.max")
    whole = memory_of(CPU)
    assert whole > 2**28
    for limit, memory in (("max\n", whole), ("123456\n", 123456), (f"{2**62}\n", whole)):
        (tmp_path / "memory.max").write_text(limit)
        assert memory_of(CPU) == memory


def test_a_device_that_this_build_or_the_environment_hides_is_explained(monkeypatch):
    assert hidden_hint("cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        choose_device("cuda:0")


def test_memory_that_runs_out_is_a_sentence_with_what_to_try():
    with pytest.raises(CaptchaOcrError) as refusal, enough_memory(CPU, "for this: try that"):
        torch.empty(10**15)
    sentence = str(refusal.value)
    assert all(word in sentence for word in ("cpu", "for this: try that"))
    assert re.search(r"\b[\d.]+ GB\b", sentence)


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError(), RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)")]
)
def test_every_device_says_in_its_own_way_that_memory_ran_out(error):
    with pytest.raises(CaptchaOcrError, match="for this"), enough_memory(CPU, "for this"):
        raise error


def test_another_error_is_left_as_it_is():
    with pytest.raises(RuntimeError, match="shapes differ"), enough_memory(CPU, "for this"):
        raise RuntimeError("shapes differ")


def test_the_process_has_a_peak_of_memory_and_the_cpu_none_of_its_own():
    peaks = peak_memory(CPU)
    assert peaks["peak_memory_mb"] > 50
    assert peaks["peak_device_memory_mb"] is None
