"""Reclassifies the causes of waits, using evidence from the whole run. Pure.

A row says what a thread did: it was on the CPU, waited for one, or neither. Only facts of the whole run tell whether a thread off
the CPU waited for the GIL or for a disk. Each function takes sums and returns sums: it moves time, and loses none.
"""

from __future__ import annotations

from collections.abc import Iterable

from stoker._record.causes.contention import Measurement, active_threads
from stoker._record.causes.thresholds import (
    BANDWIDTH,
    BUSY,
    CROWDED,
    EXPLAINED,
    FULL,
    HELD,
    LATE_SHARE,
    LATE_WAKE_US,
    LEAST_BLAMED,
    LEAST_CPU_NS,
    LEAST_ROWS,
    LEAST_WORKER_ROWS,
    MORE_THAN_ONE,
    MOST_HELD,
    OFF_FOR_GIL,
    SLOW,
    SLOW_WORKER,
)
from stoker._record.schema import STAGES, Concurrency, LoaderRecord, Machine, WorkerRecord

Sums = dict[tuple[str, str], int]
"""Nanoseconds by (stage, cause)."""


def sums_of(loader: LoaderRecord) -> Sums:
    sums: Sums = {}
    for each in loader.blame:
        key = (each.stage, each.cause)
        sums[key] = sums.get(key, 0) + each.ns
    left_ns = loader.totals.wait_ns - sum(sums.values())
    if left_ns > 0:
        sums["other", "unknown"] = sums.get(("other", "unknown"), 0) + left_ns
    return sums


def total(sums: Sums, *causes: str) -> int:
    return sum(ns for (_, cause), ns in sums.items() if cause in causes)


def moved(sums: Sums, cause: str, to: str, *, stages: Iterable[str] = STAGES) -> Sums:
    """The same time under another cause."""
    found: Sums = {}
    for (stage, each), ns in sums.items():
        key = (stage, to if each == cause and stage in stages else each)
        found[key] = found.get(key, 0) + ns
    return found


def part_moved(sums: Sums, cause: str, to: str, share: float) -> Sums:
    """Move a share of that cause's time, in every stage, to another cause. The cost of recording stays where it is."""
    found: Sums = {}
    for (stage, each), ns in sums.items():
        lost_ns = int(ns * share) if each == cause and stage != "record" else 0
        for key, part_ns in (((stage, each), ns - lost_ns), ((stage, to), lost_ns)):
            found[key] = found.get(key, 0) + part_ns
    return found


def gil(sums: Sums, loader: LoaderRecord, machine: Machine, evidence: list[Measurement]) -> Sums:
    """Threads that are off the CPU while wake-ups come late wait for the interpreter, and not for I/O."""
    if not loader.kind.threads or machine.gil is False:
        return sums
    late_us = median_us(loader.totals.wake_ns)
    off = _off_share(loader.workers)
    if off is None or off <= OFF_FOR_GIL:
        return sums
    held = sum(each.cpu_ns for each in loader.workers) / max(1, loader.load.wall_ns)
    if held > HELD:
        text = f"its threads compute {held:.0%} of the time and are off the CPU {off:.0%} of theirs"
        evidence.append(Measurement("gil_held", held, HELD, text))
    if late_us is None:
        return sums
    late = _late_share(loader.totals.wake_ns)
    if late_us > LATE_WAKE_US:
        text = f"the training loop notices a batch {late_us / 1000:.1f} ms late (median; over 2 ms, something holds the GIL)"
        evidence.append(Measurement("late_wake_us", late_us, LATE_WAKE_US, text))
    elif FULL <= held <= MOST_HELD and late >= LATE_SHARE:
        text = f"the threads use {held:.0%} of one CPU, all together, and {late:.0%} of batches are noticed over 2 ms late"
        evidence.append(Measurement("gil_full", held, FULL, text))
    else:
        return sums
    text = f"threads are off the CPU {off:.0%} of their time"
    evidence.append(Measurement("off_share", off, OFF_FOR_GIL, text))
    return moved(moved(sums, "io", "gil"), "parent", "gil", stages=("wake",))


def helpers(sums: Sums, loader: LoaderRecord, evidence: list[Measurement]) -> Sums:
    """torch's workers send batches, and descriptors when they are opened, from threads of their own. While a worker computes in
    Python they wait for its GIL, or a CPU: a parent that is off the CPU meanwhile is not slow, it waits for a worker that computes.
    """
    load, parent_ns = loader.load, total(sums, "parent")
    if loader.engine != "torch" or not loader.kind.processes or load.loop_cpu_ns is None or not parent_ns:
        return sums
    cpu_ns, runq_ns, metered_ns = (
        sum(getattr(each, name) for each in loader.workers) for name in ("cpu_ns", "runq_ns", "metered_ns")
    )
    off_ns = parent_ns - load.loop_cpu_ns - (load.loop_runq_ns or 0)
    if cpu_ns + runq_ns <= BUSY * metered_ns or off_ns <= CROWDED * parent_ns:
        return sums
    share = off_ns / sum(sums.values())
    text = (
        f"for {share:.0%} of it torch's loop waits, off the CPU, for helper threads of workers that compute"
    )
    evidence.append(Measurement("helpers_share", share, None, text))
    starved_ns = off_ns * runq_ns // (cpu_ns + runq_ns)
    sums = part_moved(sums, "parent", "starved", starved_ns / parent_ns)
    return part_moved(sums, "parent", "compute", (off_ns - starved_ns) / (parent_ns - starved_ns))


def own_threads(sums: Sums, loader: LoaderRecord, evidence: list[Measurement]) -> Sums:
    """A worker that computes with several threads is off the CPU while it waits for the last of them. That is not I/O."""
    busy_ns = sum(each.busy_ns for each in loader.workers)
    if not busy_ns or not loader.kind.processes:
        return sums
    threads = sum(active_threads(each) * each.busy_ns for each in loader.workers) / busy_ns
    off_ns, cpu_ns = (sum(getattr(each, name) for each in loader.workers) for name in ("off_ns", "cpu_ns"))
    others_ns = sum(each.process_cpu_ns or 0 for each in loader.workers) - cpu_ns
    if threads < MORE_THAN_ONE or others_ns < EXPLAINED * off_ns:
        return sums
    text = f"a worker computes with {threads:.1f} threads at once"
    evidence.append(Measurement("threads_per_worker", threads, MORE_THAN_ONE, text))
    return moved(sums, "io", "compute")


def slow_samples(sums: Sums, loader: LoaderRecord, evidence: list[Measurement]) -> Sums:
    """Blame slow samples for the waits for them, whether or not a later batch was ready."""
    rows, busy_ns = (sum(getattr(each, name) for each in loader.workers) for name in ("rows", "busy_ns"))
    if len(loader.workers) < 2 or not rows:
        return sums
    slow = [each for each in loader.slowest if each.blamed_ns and each.ns > SLOW * busy_ns / rows]
    blamed_ns = sum(each.blamed_ns for each in slow)
    held_ns = total(sums, "head_of_line")
    moved_ns = min(blamed_ns - held_ns, total(sums, "io"))
    if moved_ns <= 0:
        return sums
    text = f"{len(slow)} samples that took over {SLOW} times the usual caused {blamed_ns / sum(sums.values()):.0%} of it"
    evidence.append(Measurement("slow_samples", blamed_ns / sum(sums.values()), None, text))
    return part_moved(sums, "io", "head_of_line", moved_ns / total(sums, "io"))


def slow_worker(sums: Sums, loader: LoaderRecord, evidence: list[Measurement]) -> None:
    """One worker whose samples all take many times those of the others: what differs is the worker. A few slow samples of its
    own do not count."""
    paces_ns = {}
    for each in loader.workers:
        slow = [one.ns for one in loader.slowest if one.worker == each.worker]
        rows = each.rows - len(slow)
        if rows >= LEAST_WORKER_ROWS:
            paces_ns[each.worker] = max(1.0, (each.busy_ns - sum(slow)) / rows)
    if len(paces_ns) < 2 or len(paces_ns) < len(loader.workers):
        return
    worst = max(paces_ns, key=paces_ns.__getitem__)
    next_ns = max(ns for worker, ns in paces_ns.items() if worker != worst)
    share = sum(each.ns for each in loader.blame if each.worker == worst) / max(1, sum(sums.values()))
    if paces_ns[worst] < SLOW_WORKER * next_ns or share < LEAST_BLAMED:
        return
    ratio = paces_ns[worst] / next_ns
    text = f"worker {worst} takes {ratio:.1f} times as long for a sample as any other, and causes {share:.0%} of the waiting"
    evidence.append(Measurement("slow_worker", share, LEAST_BLAMED, text))


def _off_share(workers: list[WorkerRecord]) -> float | None:
    metered_ns = sum(each.metered_ns for each in workers)
    return sum(each.off_ns for each in workers) / metered_ns if metered_ns else None


def bandwidth(
    sums: Sums, loader: LoaderRecord, machine: Machine, evidence: list[Measurement], missing: list[str]
) -> Sums:
    """Compute that costs more CPU per row the more workers are at it waits for memory."""
    if not total(sums, "compute") or len(loader.workers) < 2:
        return sums
    pair = _low_and_high(loader.concurrency, machine.usable)
    ratio = 0.0 if pair is None else _cost(pair[1]) / _cost(pair[0])
    # Workers that share a bus slow each other down by no more than their number: beyond it, other rows were made then.
    if pair is None or ratio > pair[1].workers / max(1, pair[0].workers) * BANDWIDTH:
        if 2 * total(sums, "compute") > sum(sums.values()):
            missing.append(
                "CPU per row with few and with many workers, so compute and memory bandwidth are not separated"
            )
        return sums
    low, high = pair
    text = f"a row costs {ratio:.2f} × as much CPU with {high.workers} workers at work as with {low.workers}"
    text += f" (memory bandwidth: from {BANDWIDTH})"
    evidence.append(Measurement("cpu_per_row_ratio", ratio, BANDWIDTH, text))
    return moved(sums, "compute", "bandwidth") if ratio > BANDWIDTH else sums


def _cost(each: Concurrency) -> float:
    return each.cpu_ns / each.rows


def _low_and_high(
    concurrency: list[Concurrency], usable: int | None
) -> tuple[Concurrency, Concurrency] | None:
    """Few and many workers at work, with enough rows each, and as many CPUs as workers: more would share them."""
    enough = sorted(
        (
            each
            for each in concurrency
            if each.rows >= LEAST_ROWS
            and each.cpu_ns >= LEAST_CPU_NS
            and (usable is None or each.workers <= usable)
        ),
        key=lambda each: each.workers,
    )
    if len(enough) < 2 or enough[-1].workers < 2 * enough[0].workers:
        return None
    return enough[0], enough[-1]


def starved_parent(sums: Sums, loader: LoaderRecord, evidence: list[Measurement]) -> Sums:
    """Move the time that the training process spent in the run queue from "parent" to "starved": it waited for a CPU."""
    load = loader.load
    if load.loop_cpu_ns is None or load.loop_runq_ns is None or not total(sums, "parent"):
        return sums
    share = load.loop_runq_ns / max(1, load.loop_runq_ns + load.loop_cpu_ns)
    if share <= CROWDED:
        return sums
    text = f"the training loop itself waited for a CPU {share:.0%} of that time"
    evidence.append(Measurement("loop_runq_share", share, CROWDED, text))
    return part_moved(sums, "parent", "starved", share)


def _late_share(histogram: list[int]) -> float:
    """Return the share of the histogram beyond LATE_WAKE_US."""
    return sum(histogram[12:]) / max(1, sum(histogram))


def median_us(histogram: list[int]) -> float | None:
    """The median of a histogram by powers of two (bucket i: below 2^i µs), as the middle of its bucket; None when it is empty."""
    left = sum(histogram) / 2
    for place, count in enumerate(histogram):
        left -= count
        if count and left <= 0:
            return 0.75 * 2.0**place
    return None
