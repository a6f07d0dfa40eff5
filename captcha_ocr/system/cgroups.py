"""The processor time that Linux control groups grant, such as to a container (docker --cpus, limits
of Kubernetes).

Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html, cpu.max. Version 1:
https://docs.kernel.org/scheduler/sched-bwc.html, cpu.cfs_quota_us and cpu.cfs_period_us.
"""

from pathlib import Path, PurePosixPath

_MEMBERSHIP, _MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
# Of version 2, of version 1
_LIMIT_FILES = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


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
            hierarchy = mount / "cpu" if controllers else mount
            # A limit holds for the groups below it. In a container the path may be that of the
            # host: then only the root of the hierarchy is there.
            limits += [_read_limit(hierarchy / parent) for parent in (group, *group.parents)]
    return min((limit for limit in limits if limit is not None), default=None)


def _read_limit(folder: Path) -> float | None:
    """Return the limit in the folder of one control group; None if there is none ("max", or -1)."""
    for names in _LIMIT_FILES:
        try:
            quota, period = (
                int(part) for name in names for part in (folder / name).read_text().split()
            )
        except (OSError, ValueError):
            continue
        if quota > 0 and period > 0:
            return quota / period
    return None
