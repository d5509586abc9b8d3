"""The stretches of time a round measures. Runs in the round's own process, on its main thread.

Two rules hold for every kind. The consumer drops each batch at once and does nothing else. And batches made
before the clock started must not count as free: a steady stretch begins and ends with the window in the
same state, in the middle of an epoch, and never runs into its end, where a loader only hands out what is
made already.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import memory
from benchmarks.entries import Arguments, Case, Effort, Kind, Metric
from benchmarks.machine import LoadMark, cores

LoaderType = Callable[..., Any]


@dataclass(frozen=True)
class Measurement:
    """What one round found: per batch, or per event for the first batch and the gap."""

    wall_us: float
    cpu_us: float
    count: int
    elapsed_s: float
    foreign_cores: float
    cores: int
    signature: str
    facts: dict[str, float] = field(default_factory=dict)
    """What else was measured, by name with unit."""
    trouble: str = ""
    """Why there is no time to show: what the loader said, or why the case cannot run here."""


def measure(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    """Run one round of ``case`` with the loader class under test."""
    return _KINDS[case.kind](case, loader_type, arguments, effort)


def steady(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    """Batches from the middle of an epoch too long to end."""
    iterator = iter(loader_type(**arguments))
    signature = signature_of(next(iterator))
    window = 2 * max(1, arguments["num_workers"])
    _consume(iterator, effort.warm_seconds, window)
    before = LoadMark.now()
    # Reading the machine's clocks let the workers run ahead; these batches bring the window back to normal.
    _consume(iterator, 0.0, window)
    # One inline process makes as many batches as it can in the time; the least count is for the loaders.
    least = min(case.least_batches, effort.least_batches_cap) if arguments["num_workers"] else 1
    cpu_s, start_s = time.process_time(), time.perf_counter()
    count = _consume(iterator, effort.seconds, least)
    elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    after = LoadMark.now()
    del iterator
    return _measurement(elapsed_s, cpu_s, count, elapsed_s, before.foreign_cores(after), signature)


def _consume(iterator: Iterator[Any], at_least_s: float, at_least: int) -> int:
    """Take and drop batches until both bounds are reached; the clock is read after each."""
    clock = time.perf_counter
    end_s = clock() + at_least_s
    count = 0
    for batch in iterator:
        del batch
        count += 1
        if count >= at_least and clock() >= end_s:
            return count
    raise RuntimeError(
        f"the epoch ended after {count} batches: the case's dataset is too short to be measured"
    )


def _epoch(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    loader = loader_type(**arguments)
    before = LoadMark.now()
    cpu_s, start_s = time.process_time(), time.perf_counter()
    last_s, count, first = start_s, 0, None
    for batch in loader:
        first = batch if first is None else first
        del batch
        count += 1
        # Stopping at the last batch leaves the workers' shutdown out, which no training step waits for.
        last_s = time.perf_counter()
    cpu_s = time.process_time() - cpu_s
    foreign = before.foreign_cores(LoadMark.now())
    if count != effort.epoch_batches:
        raise RuntimeError(f"{count} batches came instead of {effort.epoch_batches}")
    elapsed_s = last_s - start_s
    return _measurement(elapsed_s, cpu_s, count, elapsed_s, foreign, signature_of(first))


def _first(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    loader = loader_type(**arguments)
    before = LoadMark.now()
    cpu_s, start_s = time.process_time(), time.perf_counter()
    iterator = iter(loader)
    batch = next(iterator)
    elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    foreign = before.foreign_cores(LoadMark.now())
    holds = any(figure.metric is Metric.BEYOND for figure in case.figures)
    # What these samples end with, the pid of their worker, is no value to compare.
    signature = signature_of(batch[:-1] if holds else batch)
    measurement = _measurement(elapsed_s, cpu_s, 1, elapsed_s, foreign, signature)
    del iterator
    if holds:
        return replace(measurement, facts=_beyond_empty(loader, loader_type, arguments))
    return measurement


def _beyond_empty(loader: Any, loader_type: LoaderType, arguments: Arguments) -> dict[str, float]:
    """What the workers of a loader hold beyond those of a dataset with nothing in it, when they have read all of it."""
    from benchmarks.datasets import Nothing

    dataset = arguments["dataset"]
    late = memory.run_epoch(loader).late
    empty = memory.run_epoch(loader_type(**{**arguments, "dataset": Nothing(dataset)})).late
    return memory.beyond(late, empty, dataset.array.nbytes)


def _memory(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    """An epoch in which the workers' memory is read, and one of a dataset with nothing in it."""
    from benchmarks.datasets import Nothing

    before, cpu_s = LoadMark.now(), time.process_time()
    epoch = memory.run_epoch(loader_type(**arguments))
    cpu_s = time.process_time() - cpu_s
    foreign = before.foreign_cores(LoadMark.now())
    idle = memory.run_epoch(loader_type(**{**arguments, "dataset": Nothing(arguments["dataset"])}))
    measurement = _measurement(
        epoch.elapsed_s, cpu_s, epoch.batches, epoch.elapsed_s, foreign, signature_of(epoch.first)
    )
    return replace(measurement, facts=memory.added(epoch, idle))


def _narrow(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    from benchmarks import narrow

    return narrow.measure(case, loader_type, arguments, effort)


def _gap(case: Case, loader_type: LoaderType, arguments: Arguments, effort: Effort) -> Measurement:
    """Time from the last batch of an epoch, through StopIteration and iter(), to the next first batch.

    The end of the epoch belongs to the gap: otherwise a loader could move work in front of StopIteration.
    """
    loader = loader_type(**arguments)
    batches = len(loader)
    iterator = iter(loader)
    signature = signature_of(next(iterator))
    gaps_s: list[float] = []
    cpus_s: list[float] = []
    before = LoadMark.now()
    end_s = time.perf_counter() + effort.seconds
    while len(gaps_s) < case.least_batches or time.perf_counter() < end_s:
        for _ in range(batches - 1):
            next(iterator)
        cpu_s, start_s = time.process_time(), time.perf_counter()
        if next(iterator, None) is not None:
            raise RuntimeError(f"more than {batches} batches in an epoch")
        iterator = iter(loader)
        next(iterator)
        gaps_s.append(time.perf_counter() - start_s)
        cpus_s.append(time.process_time() - cpu_s)
    foreign = before.foreign_cores(LoadMark.now())
    # The first gaps warm up. The median per round, because one gap is short and a scheduler tick is not.
    gaps_s, cpus_s = gaps_s[3:], cpus_s[3:]
    count = len(gaps_s)
    gap_s, cpu_s = statistics.median(gaps_s), statistics.median(cpus_s)
    return _measurement(gap_s * count, cpu_s * count, count, sum(gaps_s), foreign, signature)


def _measurement(
    wall_s: float, cpu_s: float, count: int, elapsed_s: float, foreign: float, signature: str
) -> Measurement:
    return Measurement(
        wall_us=wall_s / count * 1e6,
        cpu_us=cpu_s / count * 1e6,
        count=count,
        elapsed_s=elapsed_s,
        foreign_cores=foreign,
        cores=cores(),
        signature=signature,
    )


_KINDS = {
    Kind.STEADY: steady,
    Kind.EPOCH: _epoch,
    Kind.FIRST: _first,
    Kind.GAP: _gap,
    Kind.MEMORY: _memory,
    Kind.NARROW: _narrow,
}


def signature_of(batch: Any) -> str:
    """Return a digest of a batch's structure and values: both sides of a duel must give the same one."""
    return f"{zlib.crc32(_describe(batch).encode()):08x}"


def _describe(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        digest = zlib.crc32(value.contiguous().numpy().tobytes())
        return f"tensor {value.dtype} {tuple(value.shape)} {digest:08x}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_describe(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}(" + ", ".join(_describe(item) for item in value) + ")"
    return repr(value)
