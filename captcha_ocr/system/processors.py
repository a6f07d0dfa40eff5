"""The processors and the memory that this process may use, beside others and among those of a
launcher.

What Linux control groups grant, such as to a container (docker --cpus --memory, limits of
Kubernetes), is in files. Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max and
memory.max. Version 1: https://docs.kernel.org/scheduler/sched-bwc.html, and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from captcha_ocr.errors import check

_MEMBERSHIP, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_LimitFiles = tuple[tuple[str, ...], tuple[str, ...]]  # of version 2, and of version 1
_QUOTA: _LimitFiles = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")
_MEMORY: _LimitFiles = ("memory.max",), ("memory.limit_in_bytes",)


def available_workers() -> int:
    """Return the number of processors that this process may use, by its affinity and its quota,
    which is rounded up.
    """
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    return min(processors, math.ceil(processor_quota() or processors))


def processor_quota(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> float | None:
    """Return how many processors' time this process may use, such as 1.5.

    None if nothing limits it.
    """
    limits = _read_limits("cpu", _QUOTA, membership, mount)
    quotas = (quota / period for quota, period in limits if quota > 0 and period > 0)
    return min(quotas, default=None)


def memory_limit(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> int | None:
    """Return how many bytes of memory this process may use; None if nothing limits it."""
    limits = _read_limits("memory", _MEMORY, membership, mount)
    return min((limit for (limit,) in limits), default=None)


def _read_limits(
    controller: str, files: _LimitFiles, membership: Path, mount: Path
) -> Iterator[list[int]]:
    """Yield the numbers in the files with a limit, for each control group that has one.

    A limit holds for the groups below it. In a container the path may be that of the host: then
    only the root of the hierarchy is there.
    """
    lines: list[str] = []
    with suppress(OSError):
        lines = membership.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = PurePosixPath(path.lstrip("/"))
        hierarchy, names = (mount / controller, files[1]) if controllers else (mount, files[0])
        for folder in (hierarchy / parent for parent in (group, *group.parents)):
            with suppress(OSError, ValueError):  # there is none, or it is "max"
                yield [*map(int, " ".join((folder / name).read_text() for name in names).split())]


def rank_and_world_size() -> tuple[int, int]:
    """Return the rank and the world size that torchrun, or a similar launcher, gave this process:
    (0, 1) without one.

    UsageError if the launcher's environment variables are wrong.
    """
    rank_text, size_text = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    try:
        world_size = max(1, int(size_text))
        rank = int(rank_text) if world_size > 1 else 0
    except ValueError:
        rank = world_size = 0
    check(
        0 <= rank < world_size,
        f"WORLD_SIZE={size_text} and RANK={rank_text} in the environment "
        "are not torchrun's numbers",
    )
    return rank, world_size
