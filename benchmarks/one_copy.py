"""The cases about one copy of the data: what ``stoker.share`` costs and saves, what shipping a dataset takes, a small /dev/shm.

Importing this module is cheap: see ``cases``.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from benchmarks.entries import Arguments, Case, Effort, Figure, Kind, Metric, Micro

PATHS = 400_000
PACKED_PATHS = 2_000_000
TUPLES = 1_000_000
ARRAY_ROWS, ROW_BYTES = 1 << 16, 1 << 13
"""512 MiB."""


def path(number: int) -> str:
    """A file name as image folders have them, 34 characters long."""
    return f"/data/train/n{number // 1000:08d}/{number:08d}.jpg"


def _path_list(effort: Effort) -> Arguments:
    from benchmarks import datasets

    return {
        "dataset": datasets.Paths([path(number) for number in range(PATHS)]),
        "batch_size": 1000,
        "persistent_workers": True,
        "multiprocessing_context": "fork",
    }


def _share(arguments: Arguments) -> Arguments:
    import stoker

    return {**arguments, "dataset": stoker.share(arguments["dataset"])}


def _array(effort: Effort) -> Arguments:
    from benchmarks import datasets

    return {
        "dataset": datasets.ArrayRows(ARRAY_ROWS, ROW_BYTES),
        "batch_size": 256,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    }


def _tuples(effort: Effort) -> Arguments:
    from benchmarks import datasets

    rows = [(path(number), number % 1000) for number in range(TUPLES)]
    return {"dataset": datasets.Labelled(rows), "batch_size": 64, "multiprocessing_context": "forkserver"}


def _large_batches(effort: Effort) -> Arguments:
    import torch

    from benchmarks import datasets

    return {"dataset": datasets.ReadyMade(datasets.images((1 << 20,), torch.uint8)), "batch_size": 32}


def _packed_share() -> float:
    """Size of the shared container over that of the list: the list itself and every distinct string."""
    import stoker
    from benchmarks import memory

    paths = [path(number) for number in range(PACKED_PATHS)]
    before = memory.mapped_bytes()
    shared = stoker.share(paths)
    packed_bytes = memory.mapped_bytes() - before + sys.getsizeof(shared)
    if len(shared) != len(paths) or packed_bytes < len(paths):
        raise RuntimeError(f"{len(shared)} strings in {packed_bytes} bytes of shared memory")
    distinct = {id(text): sys.getsizeof(text) for text in paths}
    return packed_bytes / (sys.getsizeof(paths) + sum(distinct.values()))


def _access_us(count: int = 200_000, repeats: int = 5) -> float:
    """CPU µs per string, in random order, the best of a few runs; the loop around it is included."""
    import stoker

    paths = [path(number) for number in range(count)]
    shared: Any = stoker.share(paths)
    order = list(range(count))
    random.Random(0).shuffle(order)
    if [shared[number] for number in order[:1000]] != [paths[number] for number in order[:1000]]:
        raise RuntimeError("the shared list holds other strings")
    runs_ns = []
    for _ in range(repeats):
        start_ns = time.thread_time_ns()
        for number in order:
            shared[number]
        runs_ns.append(time.thread_time_ns() - start_ns)
    return min(runs_ns) / count / 1e3


CASES: tuple[Case, ...] = (
    Case(
        "paths",
        "400k path strings in a list, one epoch, 4 forked workers; ours after stoker.share",
        Kind.MEMORY,
        _path_list,
        (Figure(Metric.ADDED, 3.0),),
        workers=4,
        quick=False,
        ours=_share,
    ),
    Case(
        "array",
        "512 MiB numpy array, spawn: the first batch, and what workers hold after an epoch",
        Kind.FIRST,
        _array,
        (Figure(Metric.WALL, 4.0), Figure(Metric.BEYOND, 0.05)),
        most_rounds=3,
        quick=False,
    ),
    Case(
        "tuples",
        "1M (path, label) tuples, forkserver, 4 workers: the first batch",
        Kind.FIRST,
        _tuples,
        (Figure(Metric.WALL, 3.0),),
        workers=4,
        most_rounds=3,
        quick=False,
    ),
    Case(
        "shm16",
        "batches of 32 MiB with a /dev/shm of 16 MiB",
        Kind.NARROW,
        _large_batches,
        (Figure(Metric.SPEED, 0.9),),
        quick=False,
    ),
)

MICROS: tuple[Micro, ...] = (
    Micro(
        "packed",
        "2M path strings: the shared container over the Python list",
        _packed_share,
        0.45,
        Metric.PACKED,
        most_rounds=1,
        quick=False,
    ),
    Micro("access", "one string of a shared list", _access_us, 1.5),
)
