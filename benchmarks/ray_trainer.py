"""The CPU time that a batch of 256 Ray actors costs the trainer, against a double of Ray's API.

    python -m benchmarks.ray_trainer

The double's own thread is not counted: on a cluster, Ray's native threads and the nodes do its work.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any
from unittest import mock

import stoker
from stoker._runtime.executors.ray import cluster, dataset_objects
from stoker._runtime.executors.ray import executor as ray_executor
from tests.ray.fake_ray import FakeApi

ACTORS = 256
BATCHES = 6000
ROUNDS = 5


class TimedApi(FakeApi):
    """Says how much CPU time its own thread took."""

    spent_s = 0.0

    def _work(self, hold: int, losses: int) -> None:
        super()._work(hold, losses)
        self.spent_s = time.thread_time()


def one_round() -> tuple[float, float]:
    """CPU and wall time of one batch, in microseconds."""
    rows: Any = range(BATCHES)
    api = TimedApi(prompt=True, hold=ACTORS - 56)
    patches: list[Any] = [
        mock.patch.object(cluster, "connect", return_value=None),
        mock.patch.object(cluster, "free_cpus", return_value=1e9),
        mock.patch.object(cluster, "head_address", return_value=None),
        mock.patch.object(dataset_objects, "put", return_value=[]),
        mock.patch.object(ray_executor, "RayApi", return_value=api),
    ]
    for patch in patches:
        patch.start()
    try:
        with stoker.DataLoader(rows, 1, num_workers=ACTORS, executor="ray") as loader:
            batches = iter(loader)
            next(batches)
            cpu_s, wall_s = time.process_time(), time.perf_counter()
            count = sum(1 for _ in batches)
            cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    finally:
        api.stop()
        for patch in patches:
            patch.stop()
    assert count == BATCHES - 1
    assert threading.active_count() < 6
    return (cpu_s - api.spent_s) / count * 1e6, wall_s / count * 1e6


if __name__ == "__main__":
    rounds = [one_round() for _ in range(ROUNDS)]
    cpu_us, wall_us = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"{ACTORS} actors, {BATCHES} batches of 1 row, median of {ROUNDS} rounds")
    print(
        f"trainer: {cpu_us:.0f} us of CPU time a batch (target: below 100); with the double's own work {wall_us:.0f} us of time"
    )
