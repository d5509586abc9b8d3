"""Reads the memory limit and use of this process's cgroup, and how often the OOM killer acted.

Reads cgroup v2 and v1. A figure is None where the kernel does not tell, the machine's kills are 0 then: a container may hide its
own cgroup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker._host import cgroups
from stoker._host.kernel_files import keyed_number, number

UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""

_NAMES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
    2: ("memory.max", "memory.current", "memory.events"),
}
"""Limit, use and events, by the version of the cgroup."""


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """Limit and use of the tightest cgroup that this process is in, and OOM kills in its own."""

    limit_bytes: int | None
    used_bytes: int | None
    oom_kills: int | None


@dataclass(frozen=True, slots=True)
class OomKills:
    """Counters at one moment: kills in this process's cgroup (None: not told), and on the whole machine with all its cgroups."""

    cgroup: int | None
    machine: int


def cgroup_memory(*, sys: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> CgroupMemory:
    """What this process's cgroup says about memory. Never raises."""
    limit: int | None = None
    used: int | None = None
    kills: int | None = None
    for folder, limit_name, used_name, events_name in levels(sys, proc):
        here = number(folder / limit_name)
        if here is not None and here < UNLIMITED_BYTES and (limit is None or here < limit):
            limit, used = here, number(folder / used_name)
        if kills is None:
            kills = keyed_number(folder / events_name, "oom_kill")
    return CgroupMemory(limit, used, kills)


def oom_kills(*, sys: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> OomKills:
    """How often the OOM killer struck so far. Never raises."""
    return OomKills(
        cgroup_memory(sys=sys, proc=proc).oom_kills, keyed_number(proc / "vmstat", "oom_kill") or 0
    )


def available_bytes(*, proc: Path = Path("/proc")) -> int | None:
    """What the machine could still give without swapping."""
    kilobytes = keyed_number(proc / "meminfo", "MemAvailable:")
    return None if kilobytes is None else kilobytes * 1024


def levels(sys: Path, proc: Path) -> Iterator[tuple[Path, str, str, str]]:
    """This process's memory cgroup and all above it, with the names of the files to read there."""
    for folder, version in cgroups.folders("memory", sys=sys, proc=proc):
        yield (folder, *_NAMES[version])
