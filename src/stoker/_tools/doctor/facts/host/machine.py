"""The machine, as far as loaders depend on it, and the limits of this process. Read in milliseconds, without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from stoker._host import environment, limits
from stoker._host.cgroup_memory import cgroup_memory
from stoker._host.cpus import Cpus, cpus
from stoker._host.kernel_files import number, space
from stoker._host.memory_available import Gauge
from stoker._tools.doctor.facts.host.leftovers import Leftovers, left_over
from stoker._tools.doctor.facts.host.tmpdir import Tmpdir, temporary_folder

ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Unknown values are None."""

    cpus: Cpus | None = None
    quota_periods: int | None = None
    """Periods of the cgroup's CPU quota so far, since the cgroup was made."""
    throttled_periods: int | None = None
    """Those in which it had used its quota up and had to stand still."""
    throttled_s: float | None = None

    memory_bytes: int | None = None
    """Of the machine, or of the cgroup where that has less room."""
    available_bytes: int | None = None
    """What can still be taken there; files that the kernel could drop count as available."""
    cgroup_limit_bytes: int | None = None
    cgroup_used_bytes: int | None = None
    swap_bytes: int | None = None
    swap_free_bytes: int | None = None
    overcommit: int | None = None
    """vm.overcommit_memory: 0 refuses what is obviously too much, 1 nothing, 2 all beyond the commit limit."""
    commit_limit_bytes: int | None = None
    committed_bytes: int | None = None

    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    shm_type: str | None = None
    """The file system that is mounted at /dev/shm: "tmpfs"; "" when it is a plain folder."""
    shm_shared: bool | None = None
    """Whether processes that cannot be seen from here may use it: this is a container, and the mount is not its own."""

    descriptors: int | None = None
    """RLIMIT_NOFILE: what a process may have open, and what it may raise that to. Unlimited counts as 2**63 - 1."""
    descriptors_hard: int | None = None
    descriptors_open: int | None = None
    """By this process, now."""
    max_maps: int | None = None
    """vm.max_map_count."""
    maps: int | None = None
    """Of this process, now."""
    processes: int | None = None
    """RLIMIT_NPROC: threads and processes of this user. root is not bound by it."""
    pids_limit: int | None = None
    """pids.max of the cgroup that has the least left, and its pids.current."""
    pids_now: int | None = None

    tmpdir: Tmpdir | None = None
    leftovers: Leftovers | None = None
    thread_variables: dict[str, str] = field(default_factory=dict)
    """Those that are set: OMP_NUM_THREADS and its like."""

    system: str | None = None
    """ "Linux", "Darwin", "Windows"."""
    container: str | None = None
    """What says that this is a container: "docker", "kubernetes", ...; None when nothing does."""
    gil: bool = True
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python, the system, and of torch and others as they are installed, whether loaded or not."""


def gather(*, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> MachineFacts:
    """Read it now, in 10 to 50 ms. Any thread. Never raises. ``root`` stands in for the folder that has proc, sys and dev."""
    proc, sys = root / "proc", root / "sys" / "fs" / "cgroup"
    room = Gauge(sys=sys, proc=proc).read()
    group = cgroup_memory(sys=sys, proc=proc)
    container = environment.container(root, environ)
    mount = environment.shm_mount(proc)
    shared = None if mount is None else environment.is_shared(mount, container)
    quota = _throttling(sys, proc)
    memory = limits.memory_accounts(proc)
    tasks = limits.pids(sys, proc)
    shm_bytes, shm_free_bytes = space(root / "dev" / "shm")
    descriptors, descriptors_hard = limits.descriptors(proc)
    return MachineFacts(
        cpus=cpus(environ=environ, sys=sys, proc=proc),
        quota_periods=quota.periods,
        throttled_periods=quota.throttled,
        throttled_s=quota.throttled_s,
        memory_bytes=room.total_bytes,
        available_bytes=room.available_bytes,
        cgroup_limit_bytes=group.limit_bytes,
        cgroup_used_bytes=group.used_bytes,
        swap_bytes=memory.get("SwapTotal"),
        swap_free_bytes=memory.get("SwapFree"),
        overcommit=number(proc / "sys" / "vm" / "overcommit_memory"),
        commit_limit_bytes=memory.get("CommitLimit"),
        committed_bytes=memory.get("Committed_AS"),
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
        shm_type=None if mount is None else mount.type,
        shm_shared=shared,
        descriptors=descriptors,
        descriptors_hard=descriptors_hard,
        descriptors_open=limits.descriptors_open(root),
        max_maps=number(proc / "sys" / "vm" / "max_map_count"),
        maps=limits.maps(proc),
        processes=limits.processes(proc),
        pids_limit=None if tasks is None else tasks.limit,
        pids_now=None if tasks is None else tasks.now,
        tmpdir=temporary_folder(environ),
        leftovers=left_over(root / "dev" / "shm", proc),
        thread_variables=environment.thread_variables(environ),
        system=environment.system(),
        container=container,
        gil=environment.gil(),
        versions=environment.versions(),
    )


class _Throttling(NamedTuple):
    """Periods of a CPU quota, how many were cut short, and for how long in all."""

    periods: int | None = None
    throttled: int | None = None
    throttled_s: float | None = None


def _throttling(sys: Path, proc: Path) -> _Throttling:
    """Return the throttling of the cgroup that was throttled most, since it was made."""
    from stoker._record.readings.machine import (
        CounterReader,  # brings the record, which nothing else here needs
    )

    found = CounterReader(sys_root=sys, proc=proc).read()
    lost_s = None if found.throttled_ns is None else found.throttled_ns / 1e9
    return _Throttling(found.quota_periods, found.throttled_periods, lost_s)
