"""Finds what used the CPU while workers were ready to run: the cgroup's quota, this job itself, or other processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stoker._record.causes.thresholds import LEAST_SHARE, LEAST_TASK_NS, MORE_THAN_ONE, MOST_HELD, THROTTLED
from stoker._record.schema import Load, LoaderRecord, Machine, WorkerRecord


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured quantity, the threshold it was held against, and both in words. None: not measured, or no threshold."""

    code: str
    value: float | None
    limit: float | None
    text: str


def culprit(
    loader: LoaderRecord, machine: Machine, evidence: list[Measurement], missing: list[str]
) -> str | None:
    """ "quota", "own" or "neighbours", for a loader whose workers were kept waiting; None if unknown.

    The job itself is to blame for the CPUs that its threads want beyond those there are, others for those that it would have
    used and did not get. Whoever took more is named.
    """
    load = loader.load
    if load.quota_periods and load.throttled_periods is not None:
        share = load.throttled_periods / load.quota_periods
        if share > THROTTLED:
            text = f"the cgroup throttled the job in {share:.0%} of its periods (the quota is the limit from {THROTTLED:.0%})"
            evidence.append(Measurement("throttled_share", share, THROTTLED, text))
            return "quota"
    elif load.quota_periods is None and machine.quota is not None:
        missing.append("how often the cgroup throttled the job")
    usable = machine.usable
    if usable is None or not load.wall_ns:
        missing.append("how many CPUs there are, so other users of them are not known")
        return None
    wanted, excess = _wanted_cpus(loader, usable, machine.gil is not False)
    got = (load.own_cpu_ns if load.own_cpu_ns is not None else _job_cpu_ns(loader)) / load.wall_ns
    taken = max(0.0, min(wanted, float(usable)) - got)
    foreign = foreign_cpus(load)
    if foreign is None:
        missing.append("how much CPU other processes used")
    else:
        taken = min(taken, foreign)
        text = (
            f"others used {foreign:.1f} of {machine.cpus or usable} CPUs at that time, and this job {got:.1f}"
        )
        evidence.append(Measurement("foreign_cpus", foreign, None, text))
    text = f"this job could use {wanted:.1f} CPUs, and has {usable}"
    evidence.append(Measurement("wanted_cpus", wanted, float(usable), text))
    if load.pressure_ns is not None:
        share = load.pressure_ns / load.wall_ns
        text = f"some process of the machine waited for a CPU {share:.0%} of the time (PSI)"
        evidence.append(Measurement("cpu_pressure", share, None, text))
    return "own" if excess > 0 and excess >= taken else "neighbours"


def foreign_cpus(load: Load) -> float | None:
    """How many CPUs others had on average, the hypervisor's other guests included. None: the kernel does not tell."""
    if not load.wall_ns or load.busy_cpu_ns is None or load.own_cpu_ns is None:
        return None
    return max(0, load.busy_cpu_ns - load.own_cpu_ns + (load.steal_ns or 0)) / load.wall_ns


def active_threads(worker: WorkerRecord) -> float:
    """How many threads of a worker compute at once: CPU time of the process over that of the thread that makes batches."""
    if not worker.process_cpu_ns or not worker.cpu_ns or worker.busy_ns < worker.tasks * LEAST_TASK_NS:
        return 1.0
    ratio = worker.process_cpu_ns / worker.cpu_ns
    others_ns = worker.process_cpu_ns - worker.cpu_ns
    if ratio < MORE_THAN_ONE or others_ns < LEAST_SHARE * worker.busy_ns:
        return 1.0
    return min(ratio, float(worker.threads or ratio))


def _wanted_cpus(loader: LoaderRecord, usable: int, gil: bool) -> tuple[float, float]:
    """CPUs that the job would use if all were free, while its workers are busy; and by how much that exceeds those there are,
    averaged over the whole time."""
    wall_ns = loader.load.wall_ns
    peak = float(parent_cpu_ns(loader))
    if loader.kind.workers:  # without workers the loop is the worker
        peak += loader.load.loop_runq_ns or 0
    peak /= wall_ns
    busy = at_work = 0.0
    for each in loader.workers:
        if each.metered_ns:
            # Readings reach back to the one before, and so a little beyond the time at work.
            at_work += min(1.0, (each.cpu_ns + each.runq_ns) / each.metered_ns) * active_threads(each)
            busy += min(1.0, each.busy_ns / wall_ns)
    # Threads that used no more than one CPU all together may share Python's lock: then they cannot use more.
    if loader.kind.threads and gil and sum(each.cpu_ns for each in loader.workers) <= MOST_HELD * wall_ns:
        at_work = min(at_work, 1.0)
    peak += at_work
    return peak, max(0.0, peak - usable) * busy / max(1, len(loader.workers))


def parent_cpu_ns(loader: LoaderRecord) -> int:
    """What the training process used beside making batches, which threads, or the loop itself without workers, do in it too."""
    used_ns = loader.load.parent_cpu_ns or 0
    if not loader.kind.processes:
        used_ns -= sum(each.cpu_ns for each in loader.workers)
    return max(0, used_ns)


def _job_cpu_ns(loader: LoaderRecord) -> int:
    return sum(each.process_cpu_ns or each.cpu_ns for each in loader.workers) + parent_cpu_ns(loader)
