"""Measures one loader for a moment: the time to its first batch, and its rows a second after that.

Both kinds are made with the same arguments, torch's workers as torch recommends: persistent, with its own prefetching.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
import torch.utils.data

import stoker
from stoker._tools.probes.loader_timing import NEVER_NS, consume, end_workers

TORCH, STOKER = "torch", "stoker"
LOADERS = (TORCH, STOKER)
BATCH = 8
_FEWEST = 4
"""Batches that are counted, however long they take."""
_DRAINING_S = 1.0
"""Longest time in which batches that were made before the count are taken away."""


@dataclass(frozen=True, slots=True)
class LoaderRate:
    """What was seen. None: the system does not tell."""

    first_s: float
    """From ``iter()`` to the first batch, the start of the workers included."""
    rows: int
    seconds: float
    row_cpu_s: float | None
    """Of the workers."""
    row_switches: float | None
    """How often a worker was taken off its CPU for another process."""

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


@contextmanager
def loader_of(kind: str, dataset: Any, workers: int, **more: Any) -> Iterator[Any]:
    """A loader of this kind; its workers have ended behind this."""
    made = torch.utils.data.DataLoader if kind == TORCH else stoker.DataLoader
    given: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers, "persistent_workers": workers > 0}
    loader = made(dataset, worker_init_fn=ignore_interrupts if workers else None, **{**given, **more})
    try:
        yield loader
    finally:
        close(loader)


def started(loader: Any) -> Iterator[Any]:
    """``iter(loader)``, with Ctrl-C held back until it has returned.

    torch's iterator prints a traceback from ``__del__`` when its constructor is interrupted.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def close(loader: Any) -> None:
    """End the workers of a loader, of either kind."""
    if isinstance(loader, stoker.DataLoader):
        loader.close()
        return
    iterator, loader._iterator = loader._iterator, None
    end_workers(iterator)


def ignore_interrupts(worker: int) -> None:
    """Ctrl-C is for the command, which ends its workers; torch's would each print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def measure_rate(kind: str, dataset: Any, workers: int, seconds: float, settle_s: float = 0.0) -> LoaderRate:
    """Let it come under way, for ``settle_s`` at least, and count for ``seconds``. The consumer only drops. Main thread.

    Workers have things to do with their first batches that they do once: stoker's weigh themselves after the fourth.
    """
    with loader_of(kind, dataset, workers) as loader:
        began = time.perf_counter()
        batches = started(loader)
        next(batches)
        first_s = time.perf_counter() - began
        _settle(batches, 6 * workers, settle_s, settle_s + seconds)
        before = workers_cpu_usage()
        drained = _settle(batches, 2 * workers, 0.0, _DRAINING_S)  # what was made while nobody asked
        times = consume(batches.__next__, None, seconds=seconds, least=_FEWEST, limit_ns=NEVER_NS)
        after = workers_cpu_usage()
    rows, spent = BATCH * len(times.given_ns), (times.ended_ns - times.asked_ns[0]) / 1e9
    if before is None or after is None or not workers:
        return LoaderRate(first_s, rows, spent, None, None)
    made = rows + drained * BATCH
    return LoaderRate(first_s, rows, spent, (after[0] - before[0]) / made, (after[1] - before[1]) / made)


def _settle(batches: Iterator[Any], fewest: int, least_s: float, most_s: float) -> int:
    """Take one batch or more, until both so many have come and so much time has passed, or a longer time alone; how many came."""
    limit_ns = time.perf_counter_ns() + int(most_s * 1e9)
    return len(consume(batches.__next__, None, seconds=least_s, least=fewest, limit_ns=limit_ns).given_ns)


def workers_cpu_usage() -> tuple[float, int] | None:
    """CPU seconds of all workers so far, and how often one was taken off its CPU. None where the system does not tell."""
    cpu_s, switches = 0.0, 0
    try:
        children = psutil.Process(os.getpid()).children(recursive=True)
    except psutil.Error:
        return None
    for each in children:
        with suppress(psutil.NoSuchProcess):
            try:
                times, switched = each.cpu_times(), each.num_ctx_switches()
            except (psutil.AccessDenied, NotImplementedError):
                return None
            cpu_s += times.user + times.system
            switches += switched.involuntary
    return cpu_s, switches
