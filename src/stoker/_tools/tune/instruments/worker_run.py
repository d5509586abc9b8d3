"""A stint: one worker that makes batches, watched; and what it comes to."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from stoker._host.process_memory import footprint
from stoker._runtime.simulation.work import Work
from stoker._tools.tune.instruments.bench_loader import Rig
from stoker._tools.tune.instruments.memory import batch_bytes
from stoker._tools.tune.instruments.own_record import Made, made
from stoker._tools.tune.instruments.probe_order import Script

_WARM = 0.3
"""Share of the time for the same batches again."""
_SAMPLES = 64
_BATCHES = 48
"""Enough of both, when a third of the time is over."""
_FEW = 4
"""Batches that have to fit into the time, or they are made smaller."""
_MOST_INDICES = 4096
_TOLD = 1024
"""Batches that are told one by one, at most."""


@dataclass(slots=True)
class Stint:
    """What was seen. ``scale`` is what its times are to be multiplied by: its batches may have been smaller than the target's."""

    first_ns: int
    """From the start to the first batch."""
    batches: list[Made] = field(default_factory=list)
    """Asked for the first time."""
    again: list[tuple[Made, Made]] = field(default_factory=list)
    """The same batch the first time and again."""
    scale: float = 1.0
    parent_ns: int = 0
    batch_bytes: int = 0
    worker_bytes: int | None = None
    read_bytes: int | None = None
    indices: tuple[Any, ...] = ()
    """Of samples that were made."""
    start_ns: int | None = None


def scripted(rig: Rig, script: Script, seconds: float, rows: int) -> Stint:
    """Of a dataset with indices: batches of ``rows``, or fewer where these would take too long; then the same again."""
    began_ns = time.perf_counter_ns()
    batch, stint = _opened(rig)
    script.taken = 1
    if script.rows is not None:
        batch = _sized(rig, script, batch, seconds, rows, stint)
    if script.rows is not None and script.rows < rows:
        stint.scale = rows / script.rows
    watch = _Watch(rig)
    while not _enough(script, (time.perf_counter_ns() - began_ns) / 1e9, seconds, rows):
        batch = rig.take()
        script.taken += 1
        watch.batches += 1
    watch.told(stint)
    cold = script.taken
    script.again()
    warm_ns = time.perf_counter_ns() + int(_WARM * seconds * 1e9)
    ahead = len(script.issued) - cold
    for _ in range(cold - script.first_whole + ahead):
        if time.perf_counter_ns() >= warm_ns:
            break
        rig.take()
    found = {each.seq: each for each in made(_steps(rig))}
    stint.batches = [each for seq, each in found.items() if script.first_whole <= seq < cold]
    if script.first_again is not None:
        back = script.first_again - script.first_whole
        pairs = ((found.get(seq - back), each) for seq, each in found.items() if seq >= script.first_again)
        stint.again = [(once, again) for once, again in pairs if once is not None]
    stint.batch_bytes = batch_bytes(batch)
    asked = script.issued[script.first_whole : cold]
    each_index = (index for each in asked for index in (each if isinstance(each, list) else [each]))
    stint.indices = tuple(index for index, _ in zip(each_index, range(_MOST_INDICES), strict=False))
    return stint


def streamed(rig: Rig, seconds: float) -> Stint:
    """Of a stream: its batches, as they come."""
    began_ns = time.perf_counter_ns()
    batch, stint = _opened(rig)
    watch = _Watch(rig)
    while time.perf_counter_ns() - began_ns < seconds * 1e9:
        batch = rig.take()
        watch.batches += 1
    watch.told(stint)
    stint.batches = made(_steps(rig))
    stint.batch_bytes = batch_bytes(batch)
    return stint


def work_of(stint: Stint) -> Work:
    """Pure. Of the first batch only the start counts, where there are others: lazy things happen in it."""
    batches, again = stint.batches, stint.again
    if len(batches) > 2:
        first = batches[0].seq
        batches, again = batches[1:], [pair for pair in again if pair[0].seq != first]
    scale = stint.scale
    told = batches[:: -(-len(batches) // _TOLD)] if batches else []

    def scaled(values: list[int]) -> int:
        return int(scale * statistics.median(values)) if values else 0

    def mean(values: list[int]) -> int | None:
        return int(scale * statistics.fmean(values)) if values else None

    rows = [each.rows for each in batches if each.rows > 0]
    return Work(
        rows=max(1, round(scale * statistics.median(rows))) if rows else 1,
        batch_ns=tuple(int(scale * each.batch_ns) for each in told),
        cpu_ns=tuple(int(scale * each.cpu_ns) for each in told),
        collate_ns=scaled([each.collate_ns for each in batches]),
        handover_ns=scaled([each.handover_ns for each in batches]),
        parent_ns=stint.parent_ns,
        batch_bytes=int(scale * stint.batch_bytes),
        worker_bytes=stint.worker_bytes,
        cold_ns=mean([once.batch_ns for once, _ in again]),
        warm_ns=mean([twice.batch_ns for _, twice in again]),
        read_bytes=None if stint.read_bytes is None else int(scale * stint.read_bytes),
        start_ns=stint.start_ns,
        slow_ns=tuple(each.slow_ns for each in told) if any(each.slow_ns for each in told) else (),
        queued_ns=tuple(int(scale * each.queued_ns) for each in told),
    )


class _Watch:
    """The parent's CPU time and what the worker reads, from now on."""

    def __init__(self, rig: Rig) -> None:
        self._pid = next(iter(rig.pids()), None)
        self.batches = 0
        self._read_bytes = _read_bytes(self._pid)
        self._cpu_ns = time.process_time_ns()

    def told(self, stint: Stint) -> None:
        cpu_ns, read = time.process_time_ns() - self._cpu_ns, _read_bytes(self._pid)
        if self.batches:
            stint.parent_ns = cpu_ns // self.batches
            if read is not None and self._read_bytes is not None:
                stint.read_bytes = (read - self._read_bytes) // self.batches
        weight = footprint(self._pid) if self._pid is not None else None
        stint.worker_bytes = None if weight is None else weight.private_bytes


def _opened(rig: Rig) -> tuple[Any, Stint]:
    """The first batch, and the stint that begins with it."""
    began_ns = time.perf_counter_ns()
    rig.open()
    batch = rig.take()
    first_ns = time.perf_counter_ns() - began_ns
    stint = Stint(first_ns)
    first = next(iter(made(_steps(rig))), None)
    if first is not None and rig.setting.workers:
        stint.start_ns = max(0, first_ns - first.batch_ns - first.handover_ns)
    return batch, stint


def _sized(rig: Rig, script: Script, batch: Any, seconds: float, rows: int, stint: Stint) -> Any:
    """Batches began with one row: now that it is known what one takes, as many as fit. The last batch that was taken."""
    if stint.first_ns < seconds * 1e9:  # the first may have been slow because it was the first
        batch = rig.take()
        script.taken += 1
    row_ns = min(each.batch_ns for each in made(_steps(rig)))
    fitting = int((1 - _WARM) * seconds * 1e9 / _FEW / max(1, row_ns))
    script.settle(None if fitting >= rows else max(1, fitting))
    while script.taken < script.first_whole:
        batch = rig.take()
        script.taken += 1
    return batch


def _enough(script: Script, spent_s: float, seconds: float, rows: int) -> bool:
    """At least one batch of the size that was settled; then until the time is over, or a part of it if there were many."""
    whole = script.taken - script.first_whole
    if whole < 1:
        return False
    if spent_s >= (1 - _WARM) * seconds:
        return True
    return spent_s >= seconds / 3 and whole >= _BATCHES and whole * rows >= _SAMPLES


def _steps(rig: Rig) -> dict[str, list[int]]:
    steps: dict[str, list[int]] = rig.recorder.record(weigh=False).loaders[0].steps
    return steps


def _read_bytes(pid: int | None) -> int | None:
    """What a process has read from storage."""
    try:
        with open(f"/proc/{pid or 'self'}/io", "rb") as file:
            for line in file:
                if line.startswith(b"read_bytes:"):
                    return int(line.split()[1])
    except (OSError, ValueError):
        return None
    return None
