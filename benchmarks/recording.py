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

_PAIRS = 6
_TURNS = 6
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


def measure(pairs: int = _PAIRS, turns: int = _TURNS) -> tuple[float, float, float]:
    """(CPU share, wall share, µs of CPU a batch without a record): what recording adds, medians over all turns of all pairs.

    Two loaders that are the same in every way differ by some percent for as long as they live, by the memory and CPUs that their
    workers got: so there are several pairs, and every other one begins with the other kind.
    """
    found: list[tuple[_Cost, _Cost]] = []
    for number in range(pairs):
        kinds = (None, False) if number % 2 else (False, None)
        sides = {kind: _Side(kind) for kind in kinds}
        try:
            for turn in range(turns):
                order = kinds if turn % 2 else kinds[::-1]
                costs = {kind: sides[kind].turn() for kind in order}
                found.append((costs[None], costs[False]))
        finally:
            for side in sides.values():
                side.close()
    cpu = median(on.cpu_s / off.cpu_s for on, off in found) - 1
    wall = median(on.wall_s / off.wall_s for on, off in found) - 1
    return cpu, wall, 1e6 * median(off.cpu_s for _, off in found)


def cpu_share() -> float:
    """What recording adds to the CPU time of parent and workers."""
    return measure()[0]


if __name__ == "__main__":
    cpu, wall, base_us = measure()
    print(
        f"recording adds {cpu:+.1%} of CPU time and {wall:+.1%} of wall time to {base_us:.0f} µs of CPU a batch"
    )
