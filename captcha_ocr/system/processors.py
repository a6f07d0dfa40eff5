"""The processors that this process may use, beside others and among those of a launcher.

The processor time that Linux control groups grant, such as to a container (docker --cpus, limits of
Kubernetes), is in files. Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max.
Version 1: https://docs.kernel.org/scheduler/sched-bwc.html, cpu.cfs_quota_us and cpu.cfs_period_us.
"""

import math
import os
from pathlib import Path, PurePosixPath

from captcha_ocr.errors import check

_MEMBERSHIP, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
# The files with a limit, of version 2 and of version 1
_LIMIT, _OLD_LIMIT = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")


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
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpu" in controllers.split(","):
            group = PurePosixPath(path.lstrip("/"))
            hierarchy, names = (mount / "cpu", _OLD_LIMIT) if controllers else (mount, _LIMIT)
            # A limit holds for the groups below it. In a container the path may be that of the
            # host: then only the root of the hierarchy is there.
            limits += [_read_limit(hierarchy / parent, names) for parent in (group, *group.parents)]
    return min(filter(None, limits), default=None)


def _read_limit(folder: Path, names: tuple[str, ...]) -> float | None:
    """Return the limit in files of a control group; None if there is none ("max", or -1)."""
    try:
        quota, period = map(int, " ".join((folder / name).read_text() for name in names).split())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None


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
