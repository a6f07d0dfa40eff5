import pytest
import torch

from captcha_ocr.device import autocast, available_devices, choose_device, choose_precision, describe
from captcha_ocr.errors import UsageError
from captcha_ocr.progress import counted

CPU = torch.device("cpu")


def test_auto_takes_the_first_of_the_devices_there_are():
    assert str(choose_device("auto")) == available_devices()[0]


def test_the_cpu_is_always_there():
    assert choose_device("cpu") == CPU
    assert available_devices()[-1] == "cpu"


@pytest.mark.parametrize("name", ["cuda:99", "tpu", "", "meta", "CPU"])
def test_an_absent_device_is_refused_naming_those_there_are(name):
    with pytest.raises(UsageError, match=r"there is .*cpu"):
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


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_forward_pass_runs_in_the_precision(precision, dtype):
    with autocast(CPU, precision):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype


def test_the_description_of_the_cpu_has_its_threads():
    assert counted(torch.get_num_threads(), "thread") in describe(CPU)
