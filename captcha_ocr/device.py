"""Which device computes, and in which precision."""

import contextlib
import ctypes
import platform

import torch

from captcha_ocr.config import Precision
from captcha_ocr.errors import UsageError


def choose_device(name: str = "auto") -> torch.device:
    """`auto` (CUDA, else MPS, else CPU), `cpu`, `cuda`, `cuda:N` or `mps`.

    UsageError, saying what there is, for a device that is absent: never a silent CPU.
    """
    if name == "auto":
        return torch.device(available_devices()[0])
    present = available_devices()
    if name not in present and not (name == "cuda" and "cuda:0" in present):
        raise UsageError(f"there is no device {name!r} here; there is {', '.join(present)}")
    return torch.device("cuda:0" if name == "cuda" else name)


def available_devices() -> list[str]:
    """The names of the devices here, the fastest kind first; `cpu` is always the last."""
    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def describe(device: torch.device) -> str:
    """A device in words: its name, and for the CPU the number of threads."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    if device.type == "cpu":
        return f"cpu ({torch.get_num_threads()} threads, {platform.machine()})"
    return str(device)


def choose_precision(wanted: Precision, device: torch.device) -> Precision:
    """`fp32` or `bf16`; `auto` takes bf16 where the device is faster in it."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if device.type == "cpu" and has_fast_bf16():
        return "bf16"
    return "fp32"


def has_fast_bf16() -> bool:
    """Whether this processor's bf16 instructions, which convolutions use, are faster than its float32.

    AMD's AVX-512 ones are and Intel's AMX; Intel's AVX-512 ones alone are slower (docs/lab-notebook.md, 2026-11-22),
    and without any bf16 is far slower. Asked, not timed: a busy machine made a timing choose otherwise from run to run.
    """
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    intel = "Intel" in str(capabilities.get("cpu_name"))
    return bool(capabilities.get("amx_bf16") or (capabilities.get("avx512_bf16") and not intel))


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[None]:
    """The context in which a forward pass runs in `precision`."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext()


def keep_freed_memory() -> None:
    """Have glibc keep what it frees, for the next step asks for the same again; elsewhere nothing is done.

    By default large blocks go back to the system at once, and every page is cleared anew when it is next
    touched: kept, training was 6 to 15 % faster on a CPU, and reading too (docs/lab-notebook.md, 2026-11-21).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, at its highest: blocks below come from the heap
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: of which nothing is given back
