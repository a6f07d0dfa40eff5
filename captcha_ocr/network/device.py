"""Which device computes, and in which precision."""

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import torch

from captcha_ocr.config import Precision
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.system.console import counted

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of Linux's control groups, in bytes, or `max`
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def choose_device(name: str = "auto") -> torch.device:
    """`auto` (CUDA, else XPU, else MPS, else CPU), `cpu`, `cuda`, `cuda:N`, `mps`, `xpu` or `xpu:N`; ROCm is `cuda`.

    UsageError, saying what there is, for a device that is absent: never a silent CPU.
    """
    present = available_devices()
    if name == "auto":
        return torch.device(present[0])
    numbered = f"{name}:0" if name in ("cuda", "xpu") else name
    if numbered not in present:
        raise UsageError(f"there is no device {name!r} here; there is {', '.join(present)}{hidden_hint(name)}")
    return torch.device(numbered)


def available_devices() -> list[str]:
    """The names of the devices here, the fastest kind first; `cpu` is always the last."""
    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    names += [f"xpu:{number}" for number in range(torch.xpu.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return [*names, "cpu"]


def hidden_hint(name: str) -> str:
    """A word on why a GPU that is there may not be seen."""
    if not name.startswith("cuda"):
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return " (this build of torch is for the CPU alone)"
    hiding = [variable for variable in HIDING if variable in os.environ]
    return f" ({hiding[0]}={os.environ[hiding[0]]} is set)" if hiding else ""


def describe(device: torch.device) -> str:
    """A device in words: its name, and for the CPU the number of threads."""
    if device.type in ("cuda", "xpu"):
        return f"{device} ({getattr(torch, device.type).get_device_name(device)})"
    if device.type == "cpu":
        return f"cpu ({counted(torch.get_num_threads(), 'thread')}, {platform.machine()})"
    return str(device)


def choose_precision(wanted: Precision, device: torch.device) -> Precision:
    """`fp32`, `bf16` or `fp16`; `auto` takes bf16 where the device is faster in it, and else fp32."""
    if wanted != "auto":
        return wanted
    return "bf16" if has_native_bf16(device) else "fp32"


def has_native_bf16(device: torch.device) -> bool:
    """Whether the device is faster in bf16 than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "xpu":
        return bool(torch.xpu.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and has_fast_bf16()


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
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)


@contextlib.contextmanager
def enough_memory(device: torch.device, advice: str) -> Iterator[None]:
    """Within it, running out of memory is a CaptchaOcrError that says what there was, and what for and what to try."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        free = free_memory(device)
        room = "" if free is None else f", of which {free / 1e9:.1f} GB are free"
        raise CaptchaOcrError(f"the memory of {device}{room}, is too small {advice}") from None


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether an error says that memory ran out; only CUDA has a class for it."""
    words = ("out of memory", "not enough memory", "can't allocate memory", "could not create a memory object")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(word in str(error) for word in words)


def memory_of(device: torch.device) -> int:
    """The bytes of memory that the device has in all, used or free, so that the same machine decides alike."""
    if device.type in ("cuda", "xpu"):
        return int(getattr(torch, device.type).get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):
        return 2**34  # Windows does not say without more ado: 16 GiB
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(CONTAINER_LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return physical


def free_memory(device: torch.device) -> int | None:
    """The bytes of memory that are free now, as far as the system tells."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(meminfo["MemAvailable"].split()[0]) if device.type == "cpu" else None
    except (OSError, ValueError, KeyError):
        return None


def peak_memory(device: torch.device) -> dict[str, float | None]:
    """The most memory used so far in MB, of the process and of an accelerator; None where it is not to be had."""
    accelerator = getattr(torch, device.type)
    known = device.type != "cpu" and hasattr(accelerator, "max_memory_allocated")
    return {
        "peak_memory_mb": peak_of_process_mb(),
        "peak_device_memory_mb": accelerator.max_memory_allocated(device) / 1e6 if known else None,
    }


def peak_of_process_mb() -> float | None:
    """The most memory that this process has held, in MB; None on Windows, which does not say without more ado."""
    try:
        import resource
    except ImportError:
        return None
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (1e6 if platform.system() == "Darwin" else 1e3)


def keep_freed_memory() -> None:
    """Have glibc keep what it frees, for the next step asks for the same again; elsewhere nothing is done.

    By default large blocks go back to the system at once, and every page is cleared anew when it is next
    touched: kept, training was 6 to 15 % faster on a CPU, and reading too (docs/lab-notebook.md, 2026-11-21).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, at its highest: blocks below come from the heap
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: of which nothing is given back
