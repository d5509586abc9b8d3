"""The replay: predicts what a setting does with batches that take as long as they were measured to take.

It is not a formula. Batches go to workers that share CPUs, and are delivered in order, one after the other.

    tickets (at most a window of them) ─► idle workers, oldest first ─► off-CPU and CPU parts ─► reorder ─► step

All running workers share the CPUs evenly. With more of them than CPUs all get slower, the training process included. Time jumps
from event to event, so a replay costs some microseconds per batch, whatever the length of the dataset.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stoker._runtime.scheduler.policy import DEEPEN_LIMIT
from stoker._runtime.simulation.setting import Setting
from stoker._runtime.simulation.simulator import BatchTiming, Simulation
from stoker._runtime.simulation.work import Demand, Work
from stoker.arguments import DEFAULT_EXECUTOR, executor_kind

LANE_ROW_NS = 30_000
"""CPU time for each row that goes through one of a worker's threads."""

TORCH_PARENT_NS = 600_000
TORCH_SEND_NS = 300_000
"""The additional time of torch's loader for a small batch, in the training process and in the worker. It needs a shared-memory
file for each tensor, a descriptor, and two more threads. Large batches need more.
"""

_MOST_BURST = 256
"""Batches that a simulated step takes at once. A damaged tuning may say millions."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulated run."""

    interval_ns: float
    """The time between two batches that the training loop takes."""
    stall: float
    """Share of the wall time in which the loop waits for data."""
    busy: float
    """Share of the time in which workers are busy."""


def replay(
    work: Work,
    demand: Demand,
    *,
    workers: int,
    window: int,
    cpus: float,
    in_order: bool = True,
    split: bool = False,
    threads: int = 1,
    batches: int = 512,
    executor: str = DEFAULT_EXECUTOR,
    bound: bool = False,
    deepest: int = 0,
) -> SimulationResult:
    """Predict so many workers with such a window on ``cpus`` CPUs, the training process's included. 0: it makes all batches
    itself.

    - ``split`` lets idle workers share a batch.
    - ``threads`` fetch a batch's rows inside each worker.
    - ``executor`` "thread": the workers are threads and share the GIL as ``work.threads_gain`` says.
    - ``bound`` deals batches to workers round-robin (torch's loader, streams).
    - ``deepest``: the window deepens by itself up to this, as it does if ``prefetch_factor`` was left open.
    - ``batches``: the number of simulated batches.

    Raises ValueError if ``work`` has no batch.
    """
    demand = _bounded(demand)
    if not work.batch_ns or len(work.batch_ns) != len(work.cpu_ns):
        raise ValueError("nothing to replay: no batch times")
    if workers < 1 or not executor_kind(executor).workers:
        return _alone(work, demand, cpus)
    capacity = max(cpus, 0.01)
    if executor_kind(executor).threads:
        capacity = min(capacity, threads_speed(work, workers + 1))
    simulation = Simulation(
        _makings(work, threads),
        workers=workers,
        window=window,
        capacity=capacity,
        in_order=in_order,
        split_rows=work.rows if split else 0,
        parent_ns=work.handling_ns,
        step_cpu_ns=min(demand.cpu_ns, demand.step_ns),
        step_off_ns=max(0, demand.step_ns - demand.cpu_ns),
        burst=demand.burst,
        bound=bound,
        deepest=deepest if in_order else 0,
    )
    # Workers that begin together finish together: count whole rounds of them, after the window has filled.
    round_of = min(workers, max(1, window)) * max(1, demand.burst)
    simulation.advance(min(batches // 2, window + workers) + demand.burst)
    began = simulation.progress()
    simulation.advance(began.batches + -(-max(1, batches // 2) // round_of) * round_of)
    ended = simulation.progress()
    wall_ns = ended.now_ns - began.now_ns
    if wall_ns <= 0.0:
        return SimulationResult(0.0, 0.0, 0.0)
    return SimulationResult(
        interval_ns=wall_ns / (ended.batches - began.batches),
        stall=min(1.0, (ended.stalled_ns - began.stalled_ns) / wall_ns),
        busy=min(1.0, (ended.busy_ns - began.busy_ns) / wall_ns / workers),
    )


def replay_setting(
    work: Work,
    demand: Demand,
    setting: Setting,
    cpus: float,
    *,
    in_order: bool = True,
    window: int = 0,
    batches: int = 512,
) -> SimulationResult:
    """The same for a setting, with the behaviour of its engine. ``window``: in batches, if it is not the setting's."""
    ours = setting.engine == "stoker"
    if not ours and setting.workers:
        work = dataclasses.replace(
            work, parent_ns=work.parent_ns + TORCH_PARENT_NS, handover_ns=work.handover_ns + TORCH_SEND_NS
        )
    return replay(
        work,
        demand,
        workers=setting.workers,
        window=window or setting.window,
        cpus=cpus,
        in_order=in_order,
        split=ours and setting.split is not False,
        threads=setting.threads,
        batches=batches,
        executor=setting.executor,
        bound=not ours,
        deepest=DEEPEN_LIMIT * setting.workers if ours and setting.prefetch is None and not window else 0,
    )


def _bounded(demand: Demand) -> Demand:
    """The same time for a batch, in steps that can be simulated: a whole step at least has to be."""
    if demand.burst <= _MOST_BURST:
        return demand
    share = _MOST_BURST / demand.burst
    return dataclasses.replace(
        demand, step_ns=int(demand.step_ns * share), cpu_ns=int(demand.cpu_ns * share), burst=_MOST_BURST
    )


def threads_speed(work: Work, threads: int) -> float:
    """How much faster so many threads compute than one, from a measurement of two (Amdahl). Unmeasured: not faster."""
    measured = min(2.0, max(1.0, work.threads_gain or 1.0))
    serial = 2.0 / measured - 1.0
    return threads / (1.0 + serial * (threads - 1))


def _parts(work: Work) -> list[tuple[float, float]]:
    """(CPU, off-CPU) time of each batch. If a library's threads make the CPU time longer than the batch, all of it is CPU time.

    The load of other programs is assumed to stay: a batch that waited for them waits again.
    """
    queued_ns = work.queued_ns if len(work.queued_ns) == len(work.batch_ns) else (0,) * len(work.batch_ns)
    return [
        (float(min(cpu, whole)), float(max(0, whole - cpu) + queued))
        for cpu, whole, queued in zip(work.cpu_ns, work.batch_ns, queued_ns, strict=True)
    ]


def _alone(work: Work, demand: Demand, cpus: float) -> SimulationResult:
    """The training process makes every batch itself: nothing overlaps."""
    speed = min(1.0, max(cpus, 0.01))
    making_ns = sum(cpu / speed + off for cpu, off in _parts(work)) / len(work.batch_ns)
    step_cpu_ns = min(demand.cpu_ns, demand.step_ns)
    step_ns = step_cpu_ns / speed + demand.step_ns - step_cpu_ns
    interval_ns = making_ns + step_ns / max(1, demand.burst)
    share = making_ns / interval_ns if interval_ns else 0.0
    return SimulationResult(interval_ns, share, share)


def _makings(work: Work, threads: int) -> list[BatchTiming]:
    """All batches, if so many threads fetch their rows."""
    slow_ns = work.slow_ns if len(work.slow_ns) == len(work.batch_ns) else (0,) * len(work.batch_ns)
    return [
        _making(work, cpu, off, threads, min(off, slow))
        for (cpu, off), slow in zip(_parts(work), slow_ns, strict=True)
    ]


def _making(work: Work, cpu_ns: float, off_ns: float, threads: int, slow_ns: float) -> BatchTiming:
    """A batch whose rows are fetched by ``threads`` threads: waits overlap with each other and with computing."""
    lanes = min(threads, work.rows)
    sent_ns = cpu_ns + work.handover_ns
    if lanes < 2:
        return BatchTiming(sent_ns, off_ns, slow_ns=slow_ns)
    fetch_ns = max(0.0, cpu_ns - work.collate_ns)
    speed = threads_speed(work, lanes)
    rounds = -(-work.rows // lanes) / work.rows
    # The part of the waits that remains visible: at least the first row's, before there is anything to compute.
    exposed_ns = max(off_ns / work.rows, (fetch_ns + off_ns) * rounds - fetch_ns / speed, slow_ns)
    return BatchTiming(
        sent_ns + LANE_ROW_NS * work.rows,
        min(off_ns, exposed_ns),
        speed if fetch_ns > work.collate_ns else 1.0,
        slow_ns,
    )
