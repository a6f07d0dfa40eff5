import os

import pytest

from captcha_ocr.system import processors
from captcha_ocr.system.processors import available_workers, memory_limit, processor_quota

HOST = "0::/user.slice/session-1.scope\n"
OLD = "12:memory:/a\n4:cpu,cpuacct:/docker/0123\n1:name=systemd:/docker/0123\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),  # docker --cpus 1.5
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),  # the root group of a host has no such file
        ("0::/kubepods/pod1/c1\n", {"kubepods/pod1/c1/cpu.max": "50000 100000\n"}, 0.5),
        (
            "0::/kubepods/pod1/c1\n",
            {"kubepods/pod1/c1/cpu.max": "max 100000", "kubepods/cpu.max": "200000 100000"},
            2.0,
        ),
        (
            HOST,
            {
                "user.slice/cpu.max": "300000 100000",
                "user.slice/session-1.scope/cpu.max": "100000 50000",
            },
            2.0,
        ),
        (
            "0::/../..\n",
            {"cpu.max": "100000 100000\n"},
            1.0,
        ),  # a namespace that does not show the group
        (
            OLD,
            {
                "cpu/docker/0123/cpu.cfs_quota_us": "250000\n",
                "cpu/docker/0123/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            OLD,
            {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            1.0,
        ),  # docker, version 1
        (OLD, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        (
            "3:cpuacct,cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "40000", "cpu/cpu.cfs_period_us": "20000"},
            2.0,
        ),
        (
            "3:cpuset:/\n2:cpuacct:/\n",
            {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"},
            None,
        ),
        (OLD, {"cpu/cpu.cfs_quota_us": "100000\n"}, None),
        ("0::/\n", {"cpu.max": "nonsense\n"}, None),
    ],
)
def test_the_quota_of_a_process_is_the_smallest_of_its_control_groups(
    tmp_path, membership, files, quota
):
    assert processor_quota(*write_groups(tmp_path, membership, files)) == quota


def write_groups(folder, membership, files):
    """Write what Linux says about control groups; return the paths of both parts."""
    (folder / "membership").write_text(membership)
    for name, text in files.items():
        file = folder / "mount" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "membership", folder / "mount"


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "2000000000\n"}, 2 * 10**9),  # docker --memory
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {}, None),
        (HOST, {"user.slice/memory.max": "3000\n", "cpu.max": "100000 100000\n"}, 3000),
        (HOST, {"user.slice/memory.max": "3000", "memory.max": "2000"}, 2000),
        ("0::/kubepods/pod1\n", {"kubepods/pod1/memory.max": "7", "memory.max": "max"}, 7),
        (OLD, {"memory/a/memory.limit_in_bytes": "5000\n"}, 5000),
        (OLD, {"memory/memory.limit_in_bytes": "6000\n"}, 6000),  # docker, version 1
        (OLD, {"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 2**63 - 4096),  # none
        ("3:cpu:/\n", {"memory/memory.limit_in_bytes": "6000\n"}, None),
    ],
)
def test_the_memory_of_a_process_is_the_least_of_its_control_groups(
    tmp_path, membership, files, limit
):
    assert memory_limit(*write_groups(tmp_path, membership, files)) == limit


def test_a_system_without_control_groups_has_no_limits(tmp_path):
    assert processor_quota(tmp_path / "none", tmp_path) is None
    assert memory_limit(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize(
    ("count", "quota", "workers"),
    [(8, None, 8), (8, 2.0, 2), (8, 1.5, 2), (8, 0.1, 1), (2, 64.0, 2), (1, 0.5, 1)],
)
def test_there_are_as_many_workers_as_processors_and_quota_allow(
    monkeypatch, count, quota, workers
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)
    monkeypatch.setattr(processors, "processor_quota", lambda: quota)
    assert available_workers() == workers
