"""Runs one worker, watches the batches that it makes, and computes its work from them."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from stoker._host.process_memory import footprint
from stoker._runtime.simulation.work import Work
from stoker._tools.probes.batch_bytes import batch_bytes
from stoker._tools.tune.instruments.bench_loader import BenchLoader
from stoker._tools.tune.instruments.own_record import MadeBatch, made_batches
from stoker._tools.tune.instruments.probe_order import ProbeOrder

_WARM = 0.3
"""Share of the time for making the same batches again."""
_SAMPLES = 64
_BATCHES = 48
"""So many samples and batches are enough after a third of the time."""
_FEW = 4
"""So many batches have to fit into the time; otherwise they are made smaller."""
_MOST_INDICES = 4096
_MOST_REPORTED = 1024
"""The most batches whose times are reported one by one."""


@dataclass(slots=True)
class WorkerRun:
    """The observed run. Times are to be multiplied by ``scale``, because its batches may have been smaller than the target's."""

    first_ns: int
    """Time from the start to the first batch."""
    batches: list[MadeBatch] = field(default_factory=list)
    """Batches that were made for the first time."""
    again: list[tuple[MadeBatch, MadeBatch]] = field(default_factory=list)
    """The same batch, the first time and again."""
    scale: float = 1.0
    parent_ns: int = 0
    batch_bytes: int = 0
    worker_bytes: int | None = None
    read_bytes: int | None = None
    indices: tuple[Any, ...] = ()
    """Indices of samples that were made."""
    start_ns: int | None = None


def scripted(bench: BenchLoader, order: ProbeOrder, seconds: float, rows: int) -> WorkerRun:
    """Run a dataset with indices: batches of ``rows``, or of fewer if these would take too long; then the same again."""
    began_ns = time.perf_counter_ns()
    batch, run = _opened(bench)
    order.taken = 1
    if order.rows is not None:
        batch = _sized(bench, order, batch, seconds, rows, run)
    if order.rows is not None and order.rows < rows:
        run.scale = rows / order.rows
    watch = _Watch(bench)
    while not _enough(order, (time.perf_counter_ns() - began_ns) / 1e9, seconds, rows):
        batch = bench.take()
        order.taken += 1
        watch.batches += 1
    watch.finish(run)
    cold = order.taken
    order.again()
    warm_ns = time.perf_counter_ns() + int(_WARM * seconds * 1e9)
    ahead = len(order.issued) - cold
    for _ in range(cold - order.first_whole + ahead):
        if time.perf_counter_ns() >= warm_ns:
            break
        bench.take()
    found = {each.seq: each for each in made_batches(_steps(bench))}
    run.batches = [each for seq, each in found.items() if order.first_whole <= seq < cold]
    if order.first_again is not None:
        back = order.first_again - order.first_whole
        pairs = ((found.get(seq - back), each) for seq, each in found.items() if seq >= order.first_again)
        run.again = [(once, again) for once, again in pairs if once is not None]
    run.batch_bytes = batch_bytes(batch)
    asked = order.issued[order.first_whole : cold]
    each_index = (index for each in asked for index in (each if isinstance(each, list) else [each]))
    run.indices = tuple(index for index, _ in zip(each_index, range(_MOST_INDICES), strict=False))
    return run


def streamed(bench: BenchLoader, seconds: float) -> WorkerRun:
    """Run a stream: its batches, in order."""
    began_ns = time.perf_counter_ns()
    batch, run = _opened(bench)
    watch = _Watch(bench)
    while time.perf_counter_ns() - began_ns < seconds * 1e9:
        batch = bench.take()
        watch.batches += 1
    watch.finish(run)
    run.batches = made_batches(_steps(bench))
    run.batch_bytes = batch_bytes(batch)
    return run


def work_of(run: WorkerRun) -> Work:
    """The work. Pure. The first batch counts only for the start if there are others, because it includes lazy initialisation."""
    batches, again = run.batches, run.again
    if len(batches) > 2:
        first = batches[0].seq
        batches, again = batches[1:], [pair for pair in again if pair[0].seq != first]
    scale = run.scale
    reported = batches[:: -(-len(batches) // _MOST_REPORTED)] if batches else []

    def scaled(values: list[int]) -> int:
        return int(scale * statistics.median(values)) if values else 0

    def mean(values: list[int]) -> int | None:
        return int(scale * statistics.fmean(values)) if values else None

    rows = [each.rows for each in batches if each.rows > 0]
    return Work(
        rows=max(1, round(scale * statistics.median(rows))) if rows else 1,
        batch_ns=tuple(int(scale * each.batch_ns) for each in reported),
        cpu_ns=tuple(int(scale * each.cpu_ns) for each in reported),
        collate_ns=scaled([each.collate_ns for each in batches]),
        handover_ns=scaled([each.handover_ns for each in batches]),
        parent_ns=run.parent_ns,
        batch_bytes=int(scale * run.batch_bytes),
        worker_bytes=run.worker_bytes,
        cold_ns=mean([once.batch_ns for once, _ in again]),
        warm_ns=mean([twice.batch_ns for _, twice in again]),
        read_bytes=None if run.read_bytes is None else int(scale * run.read_bytes),
        start_ns=run.start_ns,
        slow_ns=tuple(each.slow_ns for each in reported) if any(each.slow_ns for each in reported) else (),
        queued_ns=tuple(int(scale * each.queued_ns) for each in reported),
    )


class _Watch:
    """The parent's CPU time and the worker's reads, from now on."""

    def __init__(self, bench: BenchLoader) -> None:
        self._pid = next(iter(bench.pids()), None)
        self.batches = 0
        self._read_bytes = _read_bytes(self._pid)
        self._cpu_ns = time.process_time_ns()

    def finish(self, run: WorkerRun) -> None:
        cpu_ns, read = time.process_time_ns() - self._cpu_ns, _read_bytes(self._pid)
        if self.batches:
            run.parent_ns = cpu_ns // self.batches
            if read is not None and self._read_bytes is not None:
                run.read_bytes = (read - self._read_bytes) // self.batches
        weight = footprint(self._pid) if self._pid is not None else None
        run.worker_bytes = None if weight is None else weight.private_bytes


def _opened(bench: BenchLoader) -> tuple[Any, WorkerRun]:
    """Take the first batch and begin the run."""
    began_ns = time.perf_counter_ns()
    bench.open()
    batch = bench.take()
    first_ns = time.perf_counter_ns() - began_ns
    run = WorkerRun(first_ns)
    first = next(iter(made_batches(_steps(bench))), None)
    if first is not None and bench.setting.workers:
        run.start_ns = max(0, first_ns - first.batch_ns - first.handover_ns)
    return batch, run


def _sized(
    bench: BenchLoader, order: ProbeOrder, batch: Any, seconds: float, rows: int, run: WorkerRun
) -> Any:
    """Batches began with one row. Now that its time is known, use as many rows as fit. Returns the last batch."""
    if run.first_ns < seconds * 1e9:  # the first batch may be slow because it is the first
        batch = bench.take()
        order.taken += 1
    row_ns = min(each.batch_ns for each in made_batches(_steps(bench)))
    fitting = int((1 - _WARM) * seconds * 1e9 / _FEW / max(1, row_ns))
    order.settle(None if fitting >= rows else max(1, fitting))
    while order.taken < order.first_whole:
        batch = bench.take()
        order.taken += 1
    return batch


def _enough(order: ProbeOrder, spent_s: float, seconds: float, rows: int) -> bool:
    """Whether there is at least one batch of the final size, and the time is over, or a part of it with many batches."""
    whole = order.taken - order.first_whole
    if whole < 1:
        return False
    if spent_s >= (1 - _WARM) * seconds:
        return True
    return spent_s >= seconds / 3 and whole >= _BATCHES and whole * rows >= _SAMPLES


def _steps(bench: BenchLoader) -> dict[str, list[int]]:
    steps: dict[str, list[int]] = bench.recorder.record(weigh=False).loaders[0].steps
    return steps


def _read_bytes(pid: int | None) -> int | None:
    """The bytes that a process has read from storage."""
    try:
        with open(f"/proc/{pid or 'self'}/io", "rb") as file:
            for line in file:
                if line.startswith(b"read_bytes:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        return None
    return None
