"""The memory of a setting: its workers, and the batches that wait."""

from __future__ import annotations

from stoker._host.process_memory import footprint
from stoker._tools.tune.instruments.bench_loader import BenchLoader

_WEIGHED = 4
"""The number of workers that are examined, 10 ms each. The others are assumed to be alike."""


def taken_bytes(bench: BenchLoader) -> int | None:
    """Private memory of worker processes and memory of undelivered batches; None if the kernel does not report it."""
    pids = bench.pids()
    taken = 0
    if pids:
        found = [footprint(pid) for pid in pids[:_WEIGHED]]
        weights = [each.private_bytes for each in found if each is not None]
        if not weights:
            return None
        taken = sum(weights) * len(pids) // len(weights)
    return taken + _waiting(bench)


def _waiting(bench: BenchLoader) -> int:
    if bench.setting.engine == "torch" or not bench.setting.kind.processes or not bench.setting.workers:
        return bench.window * bench.batch_bytes
    return sum(pool.arena.resident_bytes() for pool in bench.loader._pools() if pool.arena is not None)
