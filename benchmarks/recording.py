"""What keeping a record costs: the 16-byte case with ``record=None`` against ``record=False``, in turns within one process.

CPU time is that of the parent and of the workers together, read from the kernel's accounts of each process.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

_TURNS = 24
_BATCHES = 1500


class _Cost(NamedTuple):
    wall_s: float
    cpu_s: float


class _Side:
    """One loader with workers of its own, which stay idle while it is the other's turn."""

    def __init__(self, record: bool | None) -> None:
        import torch

        import stoker
        from benchmarks import datasets

        rows = datasets.ReadyMade(datasets.images((4,), torch.float32), length=64 * _BATCHES * (_TURNS + 2))
        self._loader: Any = stoker.DataLoader(rows, batch_size=64, num_workers=2, record=record)
        self._batches = iter(self._loader)
        self.turn()

    def turn(self) -> _Cost:
        """Some batches, and what each of them cost."""
        pids = [os.getpid(), *(worker.pid for worker in self._batches._workers)]
        cpu_s, wall_s = _cpu_s(pids), time.perf_counter()
        for _ in itertools.islice(self._batches, _BATCHES):
            pass
        wall_s, cpu_s = time.perf_counter() - wall_s, _cpu_s(pids) - cpu_s
        return _Cost(wall_s / _BATCHES, cpu_s / _BATCHES)

    def close(self) -> None:
        self._loader.close()


def _cpu_s(pids: list[int]) -> float:
    """On a CPU so far, all threads of these processes."""
    return (
        sum(
            int(path.read_text().split()[0])
            for pid in pids
            for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )
        / 1e9
    )


def measure(turns: int = _TURNS) -> tuple[float, float, float]:
    """(CPU share, wall share, µs of CPU a batch without a record): what recording adds, medians over pairs of turns."""
    on, off = _Side(None), _Side(False)
    try:
        pairs = []
        for number in range(turns):
            first, second = (on, off) if number % 2 else (off, on)
            costs = {first: first.turn(), second: second.turn()}
            pairs.append((costs[on], costs[off]))
    finally:
        on.close()
        off.close()
    cpu = median(a.cpu_s / b.cpu_s for a, b in pairs) - 1
    wall = median(a.wall_s / b.wall_s for a, b in pairs) - 1
    return cpu, wall, 1e6 * median(b.cpu_s for _, b in pairs)


def cpu_share() -> float:
    """What recording adds to the CPU time of parent and workers."""
    return measure()[0]


if __name__ == "__main__":
    cpu, wall, base_us = measure()
    print(
        f"recording adds {cpu:+.1%} of CPU time and {wall:+.1%} of wall time to {base_us:.0f} µs of CPU a batch"
    )
