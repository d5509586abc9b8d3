"""Runs the target's kind of loader at full speed, on batches that were made before, without workers."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from stoker._record.readings.machine import CounterReader
from stoker._tools.probes.loader_timing import NEVER_NS, consume, end_workers, may_have_children
from stoker._tools.sandbox.subject import Subject

_TIMEOUT_S = 4.0
_MOST_WORKERS = 8
_ENOUGH_S = 0.8
_ROUNDS = 4
"""Batches of each worker that are needed, beside those of the warm-up."""


class LoaderPace(NamedTuple):
    """Seconds a batch; None, and why, when there are none."""

    workers: int
    loader_s: float | None = None
    parent_s: float | None = None
    why_not: str = ""
    foreign_cpus: float | None = None
    """CPUs that other processes had meanwhile; None where the kernel does not tell."""


def worker_count(subject: Subject) -> int:
    """Workers to race with: the target's, 2 when it has none, and never more than a probe may start."""
    return min(_MOST_WORKERS, int(subject.arguments.get("num_workers") or 2))


def race(subject: Subject, batches: Sequence[Sequence[Any]], rows: int) -> LoaderPace:
    """Takes the batches as fast as they come. The first ones are not counted: workers start, and have made some ahead."""
    workers = worker_count(subject)
    may_have_children()
    others = _Others()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = _loader(subject, batches, rows, workers)
            came, cpu_s = _came(loader, 2 * workers, _ROUNDS * workers, len(batches))
    except Exception as error:
        return LoaderPace(
            workers, why_not=f"a trial with {workers} workers failed: {type(error).__name__}: {_first(error)}"
        )
    # Rounds in which each worker makes a batch, and the one in the middle: some workers start late, and others have the CPU.
    rounds = [(later - sooner) / workers for sooner, later in zip(came, came[workers:], strict=False)][
        ::workers
    ]
    if len(rounds) < _ROUNDS - 1:
        return LoaderPace(workers, why_not="it has too few batches for a trial with workers")
    return LoaderPace(workers, statistics.median(rounds), cpu_s, foreign_cpus=others.cpus())


class _Others:
    """What others have of the CPUs, from when it is made. Workers count as ours once they have ended."""

    def __init__(self) -> None:
        self._counters = CounterReader()
        self._busy_s, self._own_s, self._began_s = self._read_s(), _own_s(), time.monotonic()

    def cpus(self) -> float | None:
        """Return how many; None where the kernel does not tell."""
        busy_s, passed_s = self._read_s(), time.monotonic() - self._began_s
        if busy_s is None or self._busy_s is None or passed_s <= 0:
            return None
        return max(0.0, busy_s - self._busy_s - (_own_s() - self._own_s)) / passed_s

    def _read_s(self) -> float | None:
        read = self._counters.read()
        return None if read.busy_cpu_ns is None else (read.busy_cpu_ns + (read.steal_ns or 0)) / 1e9


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _came(loader: Any, warm_up: int, enough: int, most: int) -> tuple[list[float], float]:
    """When batches came after the warm-up, and the CPU time of this thread for one."""
    iterator = iter(loader)
    take = islice(iterator, most).__next__
    try:
        consume(take, None, seconds=0, least=warm_up, limit_ns=NEVER_NS)
        cpu = time.thread_time()
        times = consume(take, None, seconds=_ENOUGH_S, least=enough, limit_ns=NEVER_NS)
        cpu_s = (time.thread_time() - cpu) / max(1, len(times.given_ns))
    finally:
        # As its end would do, but now: an error's traceback holds it, and found by the garbage collector it waits 5 s a worker.
        if hasattr(loader, "close"):
            loader.close()
        else:
            end_workers(iterator)
        del iterator, take
    return [each / 1e9 for each in (*times.asked_ns[:1], *times.given_ns)], cpu_s


def _loader(subject: Subject, batches: Sequence[Sequence[Any]], rows: int, workers: int) -> Any:
    from torch.utils.data import DataLoader

    from stoker.loader import DataLoader as OurLoader

    kind: Any = OurLoader if isinstance(subject.loader, OurLoader) else DataLoader
    arguments = {
        "num_workers": workers,
        "collate_fn": subject.arguments.get("collate_fn"),
        "worker_init_fn": subject.arguments.get("worker_init_fn"),
        "multiprocessing_context": "fork",
        "timeout": _TIMEOUT_S,
    }
    if subject.is_stream:
        return kind(subject.dataset, batch_size=rows, **arguments)
    if subject.arguments.get("batch_size", rows) is None and subject.arguments.get("batch_sampler") is None:
        single = [each for batch in batches for each in batch]
        return kind(subject.dataset, batch_size=None, sampler=single, **arguments)
    return kind(subject.dataset, batch_sampler=[list(batch) for batch in batches], **arguments)


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:120] if lines else ""
