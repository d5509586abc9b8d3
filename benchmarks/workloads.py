"""Loops over data whose waiting has a known cause: what ``benchmarks.causes`` holds the verdict against."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler

from benchmarks.machine import cores

ROWS = 8
_ENDLESS = 1 << 20


@dataclass(frozen=True)
class Workload:
    """One loop: the loader's arguments, what a step takes, and the cause that its waiting has by construction."""

    name: str
    expected: str
    """A cause; "starved" with who had the CPU, as in "starved/quota"; "none" when data is not the problem."""
    describe: str
    dataset: Dataset[Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    step_s: float = 0.002
    surroundings: str = "alone"
    """"alone", "quota" (in a cgroup that may use a third of a CPU), "burners" (beside processes that compute)."""
    seconds: float = 1.2
    stoker_only: bool = False


class Sleeping(Dataset[int]):
    """Samples that wait, and every ``nth`` one much longer."""

    def __init__(self, sample_s: float, nth: int = 0, slow_s: float = 0.0) -> None:
        self.sample_s, self.nth, self.slow_s = sample_s, nth, slow_s

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> int:
        slow = self.nth and index % self.nth == self.nth - 1
        time.sleep(self.slow_s if slow else self.sample_s)
        return index


class Counting(Dataset[int]):
    """Samples that compute in pure Python: about 1 ms for 20 000 rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> int:
        total = 0
        for number in range(self.rounds):
            total += number & index
        return total


class Multiplying(Dataset[torch.Tensor]):
    """Samples that compute in native code, with as many threads as the worker's pool has."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> torch.Tensor:
        matrix = torch.full((self.size, self.size), float(index % 7))
        return (matrix @ matrix)[0]


class Ready(Dataset[int]):
    """Samples that cost nothing."""

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> int:
        return index


class SlowSampler(Sampler[int]):
    """An order that is expensive to compute, in the training process."""

    def __iter__(self) -> Iterator[int]:
        for index in range(_ENDLESS):
            total = 0
            for number in range(10_000):
                total += number & index
            yield index if total >= 0 else 0

    def __len__(self) -> int:
        return _ENDLESS


class Box:
    """What a reader of annotations might make of one: quick to pickle, slow to make again."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __setstate__(self, state: dict[str, int]) -> None:
        self.index = state["index"]
        self.corners = [float(self.index + place) for place in range(8)]
        self.name = f"box {self.index}"


_BOXES = [Box(index) for index in range(4000)]


def objects(rows: list[int]) -> list[Box]:
    """A ``collate_fn`` that hands out thousands of Python objects."""
    return _BOXES


def four_threads(worker: int) -> None:
    """A ``worker_init_fn`` that turns on several threads per worker."""
    torch.set_num_threads(4)


def nice(worker: int) -> None:
    """A ``worker_init_fn`` that lets everybody else go first."""
    os.nice(10)


def slow_init(worker: int) -> None:
    """A ``worker_init_fn`` that loads something large."""
    time.sleep(0.6)


def workloads() -> list[Workload]:
    """All of them, by name."""
    many = 2 * cores()
    return [
        Workload("sleep", "io", "samples of 4 ms that sleep, 2 workers", Sleeping(0.004), {"num_workers": 2}),
        Workload("python", "compute", "samples of 2 ms in pure Python, 1 worker", Counting(40_000), {"num_workers": 1}),
        Workload(
            "native", "starved/own", f"matrix products, {many} workers of 4 threads each", Multiplying(384),
            {"num_workers": many, "worker_init_fn": four_threads},
        ),
        Workload(
            "quota", "starved/quota", "pure Python, 2 workers, in a cgroup that may use a third of a CPU", Counting(20_000),
            {"num_workers": 2}, surroundings="quota",
        ),
        Workload(
            "nice", "starved/neighbours", f"pure Python, 1 worker, nice'd beside {many} processes that compute", Counting(10_000),
            {"num_workers": 1, "worker_init_fn": nice}, surroundings="burners",
        ),
        Workload(
            "slow61", "head_of_line", "samples of 1 ms, one in 61 of 300 ms; 4 workers", Sleeping(0.001, 61, 0.3),
            {"num_workers": 4},
        ),
        Workload("sampler", "parent", "a sampler that computes 0.5 ms for each index", Ready(),
                 {"num_workers": 2, "sampler": SlowSampler()}),
        Workload("objects", "parent", "batches of 4000 Python objects", Ready(), {"num_workers": 2, "collate_fn": objects}),
        Workload("init", "start_up", "a worker_init_fn of 600 ms, then samples of 0.5 ms", Sleeping(0.0005),
                 {"num_workers": 2, "worker_init_fn": slow_init}, step_s=0.01),
        Workload("threads", "gil", "samples of 2 ms in pure Python, 4 threads", Counting(40_000),
                 {"num_workers": 4, "executor": "thread"}, step_s=0.0, stoker_only=True),
        Workload("step", "none", "ready samples and a step of 200 ms", Ready(), {"num_workers": 2}, step_s=0.2, seconds=5.0),
    ]  # fmt: skip


def loop(workload: Workload, loader: Any) -> int:
    """Take batches for the workload's time, with its steps between them. Nanoseconds waited, by this loop's own clock."""
    clock = time.perf_counter_ns
    until_ns = clock() + int(workload.seconds * 1e9)
    asked_ns = clock()
    batches = iter(loader)
    waited_ns = clock() - asked_ns
    while clock() < until_ns:
        asked_ns = clock()
        batch = next(batches)
        waited_ns += clock() - asked_ns
        del batch  # which takes its time too, but nobody waits for data then
        if workload.step_s:
            time.sleep(
                workload.step_s
            )  # an accelerator's step: the training process has nothing to do meanwhile
    return waited_ns


def burn(lifeline: int) -> None:
    """What neighbours do: compute until whoever holds the other end of ``lifeline`` is gone."""
    os.set_blocking(lifeline, False)
    while True:
        for _ in range(100_000):
            pass
        try:
            if not os.read(lifeline, 1):
                return
        except BlockingIOError:
            continue
