"""The limits of a loader's speed. Each is a time per batch with a name and a sentence; the longest one explains the speed.

    interval ≥ max(S / N, (cpu + m + step's cpu) / CPUs, bytes / disk, bytes / memory, T + m)

S is one worker's time for a batch, m the training process's, and T the step. The usual rules follow from it: as many workers as
CPUs for work that computes, more for work that waits, and on very large hosts whatever is full before the CPUs are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stoker._record.finding import counted, duration, size
from stoker._runtime.simulation.work import Demand, Host, Work

HEADROOM = 0.85
HEADROOM_UNEVEN = 0.7
UNEVEN = 0.5
"""The busy share of workers that keep up. A larger share makes batches late by chance. It is lower if batch times vary a lot."""

SCRAP = 0.3
"""A worker that would have no more of a CPU than this is not worth starting."""

COPIES = 3
"""How often a batch crosses memory: samples are made, collated, and read."""

FILLERS = 8
FILLERS_SHARE = 4
"""The number of cores that fill a machine's memory bandwidth by copying, if only one was measured: 8, or a quarter of a large
machine's cores. The guess is rather high, so that it is no limit where it may be wrong.
"""

LAST_RESORT = 32
"""The most workers if no measured limit is lower and no step needs more: sockets, caches and SMT are limits that nobody measured.
"""

WORKERS_SHARE = 2
"""Workers and their window may take half of the free memory."""


class Limit(NamedTuple):
    """A limit: batches do not come faster than this."""

    name: str
    """ "workers", "cpus", "storage", "memory", "parent", "step"."""
    interval_ns: float
    sentence: str


class UsefulWorkers(NamedTuple):
    """The most workers that help, and the reason."""

    workers: int
    name: str
    """ "step", "cpus", "parent", "memory", "storage", "room", "descriptors", "last resort"."""
    reason: str


def limits(
    work: Work, host: Host, demand: Demand, *, workers: int, disk_bytes_per_s: float | None = None
) -> tuple[Limit, ...]:
    """All known limits for so many workers, the tightest first. 0 workers: the training process makes batches itself."""
    batch_ns, loop_ns = work.whole_ns, demand.batch_ns + work.handling_ns
    found = _shared_limits(work, host, demand, disk_bytes_per_s)
    if workers < 1:
        alone_ns = batch_ns + demand.batch_ns
        return (
            Limit(
                "workers",
                alone_ns,
                f"the training process makes every batch itself, {_span(batch_ns)} between steps",
            ),
            *found,
        )
    one = "s" * (workers == 1)
    sentence = f"{_workers(workers)} that take{one} {_span(batch_ns)} for a batch"
    found.append(
        Limit("workers", batch_ns / workers, f"{sentence} make{one} one every {_span(batch_ns / workers)}")
    )
    if demand.step_ns and demand.batch_ns >= work.handling_ns:
        found.append(
            Limit(
                "step",
                loop_ns,
                f"the training loop itself takes {_span(loop_ns)} for a batch, whatever the loader does",
            )
        )
    elif work.handling_ns:
        found.append(
            Limit(
                "parent", loop_ns, f"the training process is at work for {_span(work.handling_ns)} per batch"
            )
        )
    return tuple(sorted(found, key=lambda each: -each.interval_ns))


def _shared_limits(work: Work, host: Host, demand: Demand, disk_bytes_per_s: float | None) -> list[Limit]:
    """The limits that do not depend on the number of workers."""
    found = []
    cpu_ns = work.typical_cpu_ns + work.handling_ns + _step_cpu_ns(demand)
    if cpu_ns and host.cpus > 0:
        are = "is" if host.cpus == 1 else "are"
        whose = f", this rank's share of {host.machine_cpus}" if host.ranks > 1 else ""
        found.append(
            Limit(
                "cpus",
                cpu_ns / host.cpus,
                f"a batch takes {_span(cpu_ns)} of CPU time in all, and there {are} {_cpus(host)}{whose}",
            )
        )
    if disk_bytes_per_s and work.read_bytes:
        took_ns = work.read_bytes / disk_bytes_per_s * 1e9
        found.append(
            Limit(
                "storage",
                took_ns,
                f"storage delivers the {size(work.read_bytes)} of a batch in {_span(took_ns)}",
            )
        )
    memory_ns = _memory_ns(work, host)
    if memory_ns:
        found.append(
            Limit(
                "memory",
                memory_ns,
                f"{size(work.batch_bytes)} per batch cross memory {COPIES} times: {_span(memory_ns)} at the rate that "
                f"{_fillers(host):.3g} cores would copy at",
            )
        )
    return found


def need(work: Work, demand: Demand) -> int | None:
    """Workers that keep up with the training loop, with a reserve. None: the demand is unknown."""
    if demand.batch_ns <= 0:
        return None
    headroom = HEADROOM_UNEVEN if work.variation > UNEVEN else HEADROOM
    loop_ns = demand.batch_ns + work.handling_ns
    return max(1, math.ceil(work.whole_ns / (headroom * loop_ns) - 1e-9))


def knee(work: Work, host: Host, demand: Demand) -> int | None:
    """Workers that fill the CPUs. More would only take turns. None: they do not compute.

    The training process takes as much of a CPU as it uses; if it only waits, a worker can use that CPU.
    """
    cpu_ns = work.typical_cpu_ns
    if cpu_ns <= 0:
        return None
    own_ns = work.handling_ns + _step_cpu_ns(demand)
    interval_ns = max(demand.batch_ns + work.handling_ns, (cpu_ns + own_ns) / max(host.cpus, 0.01))
    free = host.cpus - min(1.0, own_ns / interval_ns)
    return max(1, math.ceil(free * work.whole_ns / cpu_ns - SCRAP))


def most(work: Work, host: Host, demand: Demand, *, disk_bytes_per_s: float | None = None) -> UsefulWorkers:
    """The most workers that help, with the reason: the tightest known limit."""
    batch_ns = work.whole_ns
    found: list[UsefulWorkers] = []
    wanted, full = need(work, demand), knee(work, host, demand)
    if full is not None:
        found.append(UsefulWorkers(full, "cpus", _knee_reason(work, host, full)))
    handled = f"the training process, at work for {_span(work.handling_ns)} per batch,"
    if wanted is not None and demand.batch_ns >= work.handling_ns:
        found.append(
            UsefulWorkers(
                wanted,
                "step",
                f"{_workers(wanted)} keep{'s' * (wanted == 1)} up with a step of {_span(demand.batch_ns)}",
            )
        )
    elif wanted is not None:
        found.append(
            UsefulWorkers(wanted, "parent", f"{handled} takes no more than {_workers(wanted)} can make")
        )
    elif work.handling_ns:
        count = max(1, math.ceil(batch_ns / work.handling_ns))
        found.append(
            UsefulWorkers(count, "parent", f"{handled} takes no more than {_workers(count)} can make")
        )
    for limit in _shared_limits(work, host, demand, disk_bytes_per_s):
        if limit.name != "cpus":
            count = max(1, math.ceil(batch_ns / limit.interval_ns))
            found.append(UsefulWorkers(count, limit.name, f"{limit.sentence}, which takes {_workers(count)}"))
    found.extend(_room(work, host))
    tightest = min(found, key=lambda each: each.workers, default=None)
    if wanted is None and (tightest is None or tightest.workers > LAST_RESORT):
        binds = (
            f"the first limit is at {_workers(tightest.workers)} ({tightest.name})"
            if tightest
            else "nothing is known to bind"
        )
        reason = (
            f"{binds}; without a step that needs more the search ends at {LAST_RESORT}: sockets, caches and memory that cores "
            "share bind before that many cores do"
        )
        return UsefulWorkers(LAST_RESORT, "last resort", reason)
    assert tightest is not None
    return tightest


def _knee_reason(work: Work, host: Host, full: int) -> str:
    computes = work.typical_cpu_ns / work.whole_ns if work.whole_ns else 1.0
    cpus = _cpus(host)
    if host.ranks > 1:
        cpus += f" (a rank's share; {host.ranks} ranks are on this machine)"
    return f"batches compute for {computes:.0%} of their time, so {_workers(full)} fill{'s' * (full == 1)} {cpus}"


def _room(work: Work, host: Host) -> list[UsefulWorkers]:
    """The workers that memory and descriptors allow."""
    found = []
    if host.room_bytes is not None and work.worker_bytes:
        each_bytes = work.worker_bytes + 2 * work.batch_bytes
        count = max(1, host.room_bytes // WORKERS_SHARE // each_bytes)
        reason = f"a worker and its window take {size(each_bytes)}, and {size(host.room_bytes)} are free"
        found.append(UsefulWorkers(count, "room", reason))
    if host.descriptors is not None:
        # Four in the parent for a spawned worker; half of all stay for the user.
        count = max(1, host.descriptors // 8)
        found.append(UsefulWorkers(count, "descriptors", f"a process may open {host.descriptors} files here"))
    return found


def _memory_ns(work: Work, host: Host) -> float:
    """The memory's time for a batch when all cores copy; 0 if unknown. One worker's copies are part of its CPU time."""
    if not host.copy_bytes_per_s or not work.batch_bytes:
        return 0.0
    alone_ns = COPIES * work.batch_bytes / host.copy_bytes_per_s * 1e9
    return min(alone_ns, work.typical_cpu_ns or alone_ns) / _fillers(host)


def _fillers(host: Host) -> float:
    """The number of cores that fill this rank's share of the memory bandwidth."""
    cores = host.machine_cpus
    return max(1.0, max(min(FILLERS, cores), cores / FILLERS_SHARE) / max(1, host.ranks))


def _step_cpu_ns(demand: Demand) -> float:
    return min(demand.cpu_ns, demand.step_ns) / max(1, demand.burst)


def _cpus(host: Host) -> str:
    return "1 CPU" if host.cpus == 1 else f"{host.cpus:g} CPUs"


def _workers(count: int) -> str:
    return counted(count, "worker")


def _span(time_ns: float) -> str:
    return duration(time_ns / 1e9)
