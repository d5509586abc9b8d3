"""Counts the CPUs that this process can use: its affinity, within its cgroup's quota, shared with the other local ranks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stoker._host import cgroups
from stoker._host.kernel_files import text
from stoker._host.local_ranks import local_ranks


@dataclass(frozen=True, slots=True)
class Cpus:
    """``usable`` is the result, at least 1; the other numbers are what it came from, and ``reason`` says how."""

    usable: int
    machine: int
    affinity: int
    quota: float | None
    ranks: int
    reason: str


def cpus(
    *,
    environ: Mapping[str, str] = os.environ,
    machine: int | None = None,
    affinity: int | None = None,
    sys: Path = cgroups.SYS,
    proc: Path = cgroups.PROC,
) -> Cpus:
    """Read it now, in about 0.2 ms. Any thread. Never raises. Arguments stand in for what this machine would say.

    The quota is the cgroup's and so all ranks' together: it is divided by them. So is the affinity, unless it is so small that
    it must be this rank's alone: as often as there are ranks, it still fits into the machine.
    """
    machine = machine or os.cpu_count() or 1
    affinity = affinity or _affinity() or machine
    quota = cpu_quota(sys=sys, proc=proc)
    ranks, source = local_ranks(environ)
    own = ranks > 1 and affinity * ranks <= machine
    share = affinity if own else affinity / ranks
    reason = f"this machine has {machine} CPUs"
    if affinity < machine:
        reason = f"this process may run on {affinity} of {machine} CPUs"
    if quota is not None and quota / ranks < share:
        share, own = quota / ranks, False
        reason = f"the cgroup's quota is {quota:.3g} CPUs"
    if own:
        reason += f", its own share beside {ranks} local ranks ({source})"
    elif ranks > 1:
        reason += f", divided by {ranks} local ranks ({source})"
    return Cpus(max(1, math.floor(share)), machine, affinity, quota, ranks, reason)


def cpu_quota(*, sys: Path = cgroups.SYS, proc: Path = cgroups.PROC) -> float | None:
    """CPU seconds per second that the tightest of this process's cgroups grants; None where there is no bound."""
    tightest: float | None = None
    for folder, version in cgroups.folders("cpu", sys=sys, proc=proc):
        if version == 2:
            words = text(folder / "cpu.max").split()
        else:
            words = [*text(folder / "cpu.cfs_quota_us").split(), *text(folder / "cpu.cfs_period_us").split()]
        try:
            granted_us, period_us = (float(word) for word in words)
        except ValueError:  # "max", or not told
            continue
        if 0 < granted_us < math.inf and period_us > 0:  # version 1 writes "no bound" as -1
            here = granted_us / period_us
            tightest = here if tightest is None else min(tightest, here)
    return tightest


def _affinity() -> int:
    """How many CPUs the calling thread may run on; 0 where the platform does not tell."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return 0
