"""What a shuffled order of 20 million samples costs: time per index and memory, through ``ElasticDistributedSampler``.

``python -m benchmarks.shuffle`` prints the same for torch's way, a permutation as a list, each in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.entries import Metric, Micro

SAMPLES = 20_000_000
TIMED = 2_000_000
MIB = 1 << 20


def index_us(repeats: int = 3) -> float:
    """CPU µs per index in iteration, from the first on, best of a few runs."""
    from itertools import islice

    runs_ns = []
    for _ in range(repeats):
        order = _ours()
        start_ns = time.thread_time_ns()
        deque(islice(order, TIMED), maxlen=0)
        runs_ns.append(time.thread_time_ns() - start_ns)
    return min(runs_ns) / TIMED / 1e3


def access_us(count: int = 20_000, repeats: int = 5) -> float:
    """CPU µs for one element at a random position."""
    from stoker._runtime.plan.permutation import Permutation

    order = Permutation(SAMPLES, 0)
    runs_ns = []
    for _ in range(repeats):
        start_ns = time.thread_time_ns()
        for number in range(count):
            order[number * 997]
        runs_ns.append(time.thread_time_ns() - start_ns)
    return min(runs_ns) / count / 1e3


def added_mib() -> float:
    """What a whole epoch adds to this process at its highest."""
    return _peak_mib(_ours)


def _ours(samples: int = SAMPLES) -> Iterable[int]:
    import stoker

    return stoker.ElasticDistributedSampler(range(samples), 1, 0)


def _theirs(samples: int = SAMPLES) -> Iterable[int]:
    from torch.utils.data import RandomSampler

    return RandomSampler(range(samples))


def _peak_mib(make: Callable[[int], Iterable[int]]) -> float:
    deque(make(100), maxlen=0)  # what is loaded at first use is not the order's
    order = make(SAMPLES)
    # The kernel forgets the highest mark so far; what follows is this epoch's alone.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_kib("VmRSS:")
    deque(order, maxlen=0)
    return (_status_kib("VmHWM:") - before) * 1024 / MIB


def _status_kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel does not tell {name}")


MICROS: tuple[Micro, ...] = (
    Micro("shuffle", "one index of a shuffled order of 20M, in iteration", index_us, 2.0),
    Micro("shuffle-at", "one element of that order at a random position", access_us, 10.0),
    Micro(
        "shuffle-ram",
        "what a whole epoch of it adds to the process",
        added_mib,
        4.0,
        Metric.ADDED,
        most_rounds=3,
        quick=False,
    ),
)


def main() -> None:
    """One side when it is named, else both."""
    if len(sys.argv) > 1:
        import torch  # noqa: F401

        make = _ours if sys.argv[1] == "stoker" else _theirs
        added = _peak_mib(make)
        order = make(SAMPLES)
        start_s = time.perf_counter()
        next(iter(order))
        first_s = time.perf_counter() - start_s
        start_s = time.perf_counter()
        deque(order, maxlen=0)
        whole_s = time.perf_counter() - start_s
        print(
            f"{sys.argv[1]:7} first index {first_s * 1e3:8.2f} ms, epoch {whole_s:.2f} s, {added:7.1f} MiB added"
        )
        return
    for side in ("torch", "stoker"):
        subprocess.run([sys.executable, "-m", "benchmarks.shuffle", side], check=True)


if __name__ == "__main__":
    main()
