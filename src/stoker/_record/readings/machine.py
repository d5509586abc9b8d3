"""Reads facts and counters of the machine for a record. None: the system does not say."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stoker._host import cgroups
from stoker._host.cgroup_memory import cgroup_memory
from stoker._host.cpus import cpus
from stoker._host.environment import gil
from stoker._host.kernel_files import space, text
from stoker._host.limits import resource_limit
from stoker._host.memory_available import Gauge
from stoker._record.schema import Load, Machine

_TICK_NS = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)


def facts(*, sys_root: Path = cgroups.SYS, proc: Path = cgroups.PROC, shm: str = "/dev/shm") -> Machine:
    """Read it now, in about a millisecond. Any thread. Never raises."""
    found = cpus(sys=sys_root, proc=proc)
    room = Gauge(sys=sys_root, proc=proc).read()
    machine = Machine(
        cpus=found.machine,
        affinity=found.affinity,
        quota=found.quota,
        usable=found.usable,
        usable_reason=found.reason,
        local_ranks=found.ranks,
        memory_bytes=room.total_bytes,
        available_bytes=room.available_bytes,
        cgroup_limit_bytes=cgroup_memory(sys=sys_root, proc=proc).limit_bytes,
        gil=gil(),
        accelerators=_accelerators(),
        versions=_versions(),
    )
    machine.shm_bytes, machine.shm_free_bytes = space(shm)
    machine.descriptors = resource_limit("RLIMIT_NOFILE")[0]
    missing = machine.missing
    if not any(cgroups.folders("cpu", sys=sys_root, proc=proc)):
        missing["quota"] = "no cgroup files of the cpu controller can be seen"
    elif machine.quota is None:
        missing["quota"] = "no quota is set"
    if machine.cgroup_limit_bytes is None:
        missing["cgroup_limit_bytes"] = "no limit is set, or no cgroup files can be seen"
    if machine.shm_bytes is None:
        missing["shm_bytes"] = f"there is no {shm}"
    if machine.memory_bytes is None:
        missing["memory_bytes"] = "neither /proc/meminfo nor psutil has it"
    if machine.descriptors is None:
        missing["descriptors"] = "this platform has no limit to read"
    return machine


@cache
def known() -> Machine:
    """The facts as they were first read, in this process or the one that forked it."""
    return facts()


def _accelerators() -> list[str]:
    """Names of devices that this process has initialised: asking for others would initialise them."""
    torch: Any = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            return [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]
    except Exception:  # a driver that is half there: no fact is worth a crash
        return []
    return []


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    for name in ("torch", "numpy", "stoker"):
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


@dataclass(frozen=True, slots=True)
class Counters:
    """Readings of counters at one moment, as the kernel has them; None where it does not tell."""

    at_ns: int
    parent_cpu_ns: int
    loop_cpu_ns: int | None
    loop_runq_ns: int | None
    busy_cpu_ns: int | None
    steal_ns: int | None
    iowait_ns: int | None
    quota_periods: int | None
    throttled_periods: int | None
    throttled_ns: int | None
    pressure_ns: int | None

    def since(self, before: Counters, workers_cpu_ns: int) -> Load:
        """What happened between two readings. ``workers_cpu_ns`` is what this job's workers used meanwhile."""
        parent_ns = self.parent_cpu_ns - before.parent_cpu_ns
        return Load(
            wall_ns=self.at_ns - before.at_ns,
            own_cpu_ns=parent_ns + workers_cpu_ns,
            parent_cpu_ns=parent_ns,
            loop_cpu_ns=_less(self.loop_cpu_ns, before.loop_cpu_ns),
            loop_runq_ns=_less(self.loop_runq_ns, before.loop_runq_ns),
            busy_cpu_ns=_less(self.busy_cpu_ns, before.busy_cpu_ns),
            steal_ns=_less(self.steal_ns, before.steal_ns),
            iowait_ns=_less(self.iowait_ns, before.iowait_ns),
            quota_periods=_less(self.quota_periods, before.quota_periods),
            throttled_periods=_less(self.throttled_periods, before.throttled_periods),
            throttled_ns=_less(self.throttled_ns, before.throttled_ns),
            pressure_ns=_less(self.pressure_ns, before.pressure_ns),
        )


def _less(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)


class CounterReader:
    """Reads the counters again and again, in about 0.1 ms. It keeps paths and no descriptors. Any thread. Never raises.

    The thread that makes it is the one that iterates.
    """

    def __init__(self, *, sys_root: Path = cgroups.SYS, proc: Path = cgroups.PROC) -> None:
        self._stat = proc / "stat"
        self._schedstat = proc / "self" / "task" / str(threading.get_native_id()) / "schedstat"
        self._pressure = proc / "pressure" / "cpu"
        self._quotas = [
            (folder / "cpu.stat", version)
            for folder, version in cgroups.folders("cpu", sys=sys_root, proc=proc)
        ]

    def read(self) -> Counters:
        """Now."""
        busy_ns, steal_ns, iowait_ns = self._machine()
        return Counters(
            time.monotonic_ns(),
            time.process_time_ns(),
            *self._loop(),
            busy_ns,
            steal_ns,
            iowait_ns,
            *self._quota(),
            self._waiting(),
        )

    def _loop(self) -> tuple[int | None, int | None]:
        words = text(self._schedstat).split()
        if len(words) < 2 or not (words[0].isdigit() and words[1].isdigit()):
            return None, None
        return int(words[0]), int(words[1])

    def _machine(self) -> tuple[int | None, int | None, int | None]:
        """CPU time that everybody used, that the hypervisor took, and that was idle for want of storage."""
        try:
            words = text(self._stat).split("\n", 1)[0].split()[1:]
            user, nice, system, _, iowait, irq, softirq, steal = (int(word) * _TICK_NS for word in words[:8])
        except ValueError:
            return None, None, None
        return user + nice + system + irq + softirq, steal, iowait

    def _quota(self) -> tuple[int | None, int | None, int | None]:
        """Periods, throttled ones and throttled time of the cgroup that was throttled most."""
        worst: tuple[int | None, int | None, int | None] = (None, None, None)
        for path, version in self._quotas:
            facts = dict(line.split(" ", 1) for line in text(path).splitlines() if " " in line)
            try:
                periods, throttled = int(facts["nr_periods"]), int(facts["nr_throttled"])
                lost_ns = (
                    int(facts["throttled_usec"]) * 1000 if version == 2 else int(facts["throttled_time"])
                )
            except (KeyError, ValueError):
                continue
            if worst[0] is None or (lost_ns, periods) > (worst[2] or 0, worst[0]):
                worst = periods, throttled, lost_ns
        return worst

    def _waiting(self) -> int | None:
        for line in text(self._pressure).splitlines():
            if line.startswith("some ") and "total=" in line:
                total = line.rpartition("total=")[2]
                return int(total) * 1000 if total.isdigit() else None
        return None
