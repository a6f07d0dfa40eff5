"""Choose the device and the precision, and measure memory."""

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.options.training import Precision
from captcha_ocr.system.console import counted
from captcha_ocr.system.processors import available_workers, memory_limit

# A primitive is oneDNN's; of a "primitive descriptor", it is another error.
_OUT_OF_MEMORY = re.compile(
    "out of memory|not enough memory|can't allocate memory|could not create a memory object"
    "|^could not create a primitive$"
)
VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_PROCESS = os.getpid()  # a forked process has another number

if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    # The other threads of OpenMP stay in the parent, and the first parallel loop of a forked
    # process would wait for them forever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


def set_threads(threads: int | None = None) -> None:
    """Let torch compute with so many threads on the CPU, in this whole process.

    None: as many as torch takes itself, but no more than `available_workers`; torch sees no quota.
    A forked process keeps one.
    """
    if os.getpid() == _PROCESS:
        torch.set_num_threads(threads or min(torch.get_num_threads(), available_workers()))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread on the CPU meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def choose_device(name: str = "auto") -> torch.device:
    """Return the device of a name: `auto` (CUDA, else XPU, else MPS, else CPU), `cpu`, `cuda[:N]`,
    `mps` or `xpu[:N]`.

    ROCm devices are called `cuda`. UsageError names the devices there are if the wanted one is
    absent: the CPU is never used silently instead.
    """
    available = available_devices()
    if name == "auto":
        return torch.device(available[0])
    numbered = f"{name}:0" if name in ("cuda", "xpu") else name
    if numbered in available:
        return torch.device(numbered)
    hiding = [f"{key}={os.environ[key]}" for key in VISIBILITY_VARIABLES if key in os.environ]
    hint = ""
    if name.startswith("cuda") and torch.version.cuda is None and torch.version.hip is None:
        hint = " (this build of torch supports only the CPU)"
    elif name.startswith("cuda") and hiding:
        hint = f" ({hiding[0]} is set)"
    raise UsageError(f"there is no device {name!r} here; available: {', '.join(available)}{hint}")


def available_devices() -> list[str]:
    """Return the names of the devices of this machine, the fastest kind first.

    `cpu` is always the last.
    """
    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    names += [f"xpu:{number}" for number in range(torch.xpu.device_count())]
    names += ["mps"] if torch.backends.mps.is_available() else []
    return [*names, "cpu"]


def describe_device(device: torch.device) -> str:
    """Return the device's name for people; for the CPU with the number of threads."""
    if device.type in ("cuda", "xpu"):
        return f"{device} ({getattr(torch, device.type).get_device_name(device)})"
    if device.type == "cpu":
        return f"cpu ({counted(torch.get_num_threads(), 'thread')}, {platform.machine()})"
    return str(device)


def choose_precision(wanted: Precision, device: torch.device) -> Precision:
    """Return the wanted precision.

    For `auto` bf16 if the device computes faster in it, else fp32.
    """
    if wanted != "auto":
        return wanted
    return "bf16" if has_native_bf16(device) else "fp32"


def has_native_bf16(device: torch.device) -> bool:
    """Tell whether the device is faster in bf16 than in float32.

    On a CPU, AMD's AVX-512 instructions for bf16 are faster, and Intel's AMX; Intel's AVX-512 alone
    is slower (docs/decisions.md, Optimiser, schedule and end of a run), and without such
    instructions bf16 is far slower. The instructions decide, and not a measurement, which chose
    differently from run to run on a busy machine.
    """
    if device.type in ("cuda", "xpu"):
        return bool(getattr(torch, device.type).is_bf16_supported(including_emulation=False))
    # Which older releases of torch lack
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    is_intel = "Intel" in str(capabilities.get("cpu_name"))
    return bool(capabilities.get("amx_bf16") or (capabilities.get("avx512_bf16") and not is_intel))


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[None]:
    """Return the context in which a forward pass runs in `precision`."""
    half = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, half, enabled=precision != "fp32")


@contextlib.contextmanager
def enough_memory(device: torch.device, advice: str) -> Iterator[None]:
    """Turn an error for lack of memory into a CaptchaOcrError with the free memory and `advice`:
    what for, what to try.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_class = isinstance(error, (torch.OutOfMemoryError, MemoryError))  # only CUDA has one
        if not is_class and not _OUT_OF_MEMORY.search(str(error)):
            raise
        free = free_memory(device)
        room = "" if free is None else f", of which {free / 1e9:.1f} GB are free"
        raise CaptchaOcrError(f"the memory of {device}{room}, is too small {advice}") from None


def measure_memory(device: torch.device) -> int:
    """Return the bytes of memory of the device, used or free, so that the same machine always
    decides the same.
    """
    if device.type in ("cuda", "xpu"):
        return int(getattr(torch, device.type).get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):
        return 2**34  # Windows: 16 GiB, for lack of a simple way to ask
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(physical, memory_limit() or physical)


def free_memory(device: torch.device) -> int | None:
    """Return the bytes of memory that are free now; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(meminfo["MemAvailable"].split()[0]) if device.type == "cpu" else None
    except (OSError, ValueError, KeyError):
        return None


def peak_memory(device: torch.device) -> dict[str, float | None]:
    """Return the peak memory in MB of the process and of an accelerator so far.

    None if unknown, as on Windows.
    """
    peaks: dict[str, float | None] = {"peak_memory_mb": None, "peak_device_memory_mb": None}
    with contextlib.suppress(ImportError):
        import resource  # which Windows lacks

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, else kB
        peaks["peak_memory_mb"] = peak / (1e6 if platform.system() == "Darwin" else 1e3)
    accelerator = getattr(torch, device.type)
    if device.type != "cpu" and hasattr(accelerator, "max_memory_allocated"):
        peaks["peak_device_memory_mb"] = accelerator.max_memory_allocated(device) / 1e6
    return peaks
