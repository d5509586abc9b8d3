"""Figures of ``executor="ray"`` on this machine: ``python -m benchmarks.ray [--only NAME,…] [--json FILE]``.

Each figure is a ratio inside one run, or a count. Ray runs on loopback, below a stage of ``tests.ray`` that ends it. What is
compared takes turns, and the median of the turns counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.ray import namespaces
from tests.ray.stage import run

_STORE_BYTES = 1 << 30
_TURNS = 3


class Figure(NamedTuple):
    """One line of the table: what is played, how its result reads, and what it has to reach."""

    stage: str
    target: str
    read: Callable[[dict[str, Any]], str]
    reached: Callable[[dict[str, Any]], bool]
    within_s: float = 200.0
    isolated: bool = False


def scaling(few: int = 2, many: int = 16, row_s: float = 0.005, rows: int = 32) -> dict[str, Any]:
    """Samples that sleep: batches per second with few and with many actors."""
    ray = _cluster(many + 2)
    rates = {count: _rate(_sleepy(row_s), count, rows, seconds=4.0) for count in (few, many)}
    ray.shutdown()
    return {"rates": rates, "of_linear": rates[many] / rates[few] / (many / few)}


def jpeg(workers: int = 2) -> dict[str, Any]:
    """JPEG decoding: actors against local worker processes, in turns."""
    from benchmarks.datasets import Jpegs

    ray = _cluster(workers + 1)
    found: dict[str, list[float]] = {"ray": [], "process": []}
    for _ in range(_TURNS):
        for executor, rates in found.items():
            rates.append(_rate(Jpegs(), workers, 32, seconds=5.0, executor=executor))
    ray.shutdown()
    return {"rates": found, "ratio": median(found["ray"]) / median(found["process"])}


def large(workers: int = 2, batches: int = 60) -> dict[str, Any]:
    """Ready-made batches of 9.6 MB: MB/s into the arena, against Ray Data's ``iter_torch_batches``, in turns."""
    import torch

    from benchmarks.datasets import ReadyMade, images

    ray = _cluster(workers + 1)
    samples = images((3, 224, 224), torch.uint8)
    size = 64 * samples[0].numel() / 1e6
    found: dict[str, list[float]] = {"stoker": [], "ray data": []}
    for _ in range(_TURNS):
        found["stoker"].append(size * _rate(ReadyMade(samples), workers, 64, seconds=4.0))
        found["ray data"].append(size * _data_rate(ray, batches))
    ray.shutdown()
    return {"mb_s": found, "ratio": median(found["stoker"]) / median(found["ray data"])}


def first_batch(workers: int = 2) -> dict[str, Any]:
    """Seconds from ``iter()`` to the first batch in a new driver on a running node, against Ray Data, in turns."""
    from tests.ray.nodes import LoopbackNodes

    address = LoopbackNodes(0, head_cpus=workers + 1).address
    found: dict[str, list[float]] = {"stoker": [], "ray data": []}
    for _ in range(_TURNS):
        for side, seconds in found.items():
            code = f"from benchmarks.ray import first; first({side!r}, {address!r}, {workers})"
            ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
            seconds.append(float(ran.stdout.splitlines()[-1]))
    return {"seconds": found, "ratio": median(found["stoker"]) / median(found["ray data"])}


def first(side: str, address: str, workers: int) -> None:
    """The driver of ``first_batch``: prints the seconds. Imports and the connection are not counted."""
    import ray
    import ray.data
    import torch

    from benchmarks.datasets import ReadyMade, images

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    if side == "stoker":
        loader = _loader(ReadyMade(images((3, 224, 224), torch.uint8)), workers, 64)
        began_s = time.perf_counter()
        next(iter(loader))
    else:
        began_s = time.perf_counter()
        next(_data_batches(ray, 4))
    print(time.perf_counter() - began_s, flush=True)
    os._exit(0)


def store(workers: int = 2, budget: int = 64_000_000) -> dict[str, Any]:
    """The most bytes that were in the object store while 9.6 MB batches were read slowly, against ``memory_budget``."""
    import torch

    from benchmarks.datasets import ReadyMade, images

    ray = _cluster(workers + 1)
    idle = _stored(ray)
    most = 0
    loader = _loader(ReadyMade(images((3, 224, 224), torch.uint8)), workers, 64, memory_budget=budget)
    for number, _ in enumerate(loader):
        most = max(most, _stored(ray) - idle)
        time.sleep(0.02 if number % 2 else 0.2)
        if number == 40:
            break
    loader.close()
    ray.shutdown()
    return {"budget": budget, "most": most}


def many_actors(actors: int = 256, batches: int = 4000) -> dict[str, Any]:
    """CPU time a batch of the trainer's two threads, with a double of Ray that has so many actors at work."""
    import threading
    from unittest import mock

    import stoker
    from stoker._runtime.executors.ray import cluster, dataset_objects
    from stoker._runtime.executors.ray import executor as ray_executor
    from tests.ray.fake_ray import FakeApi

    api = FakeApi(prompt=True, hold=actors - 8)
    rows: Any = range(4 * batches + 8 * actors)
    with (
        mock.patch.object(cluster, "connect", return_value=None),
        mock.patch.object(cluster, "head_address", return_value=None),
        mock.patch.object(dataset_objects, "put", return_value=[]),
        mock.patch.object(ray_executor, "RayApi", return_value=api),
        stoker.DataLoader(rows, 4, num_workers=actors, executor="ray") as loader,
    ):
        iterator = iter(loader)
        for _ in range(2 * actors):
            next(iterator)
        bridge = next(each for each in threading.enumerate() if each.name == "stoker-ray")
        assert bridge.ident is not None
        clock = time.pthread_getcpuclockid(bridge.ident)
        loop_s, bridge_s = time.thread_time(), time.clock_gettime(clock)
        for _ in range(batches - 2 * actors):
            next(iterator)
        loop_s, bridge_s = time.thread_time() - loop_s, time.clock_gettime(clock) - bridge_s
    api.stop()
    count = batches - 2 * actors
    return {"loop_us": 1e6 * loop_s / count, "bridge_us": 1e6 * bridge_s / count}


FIGURES = {
    "scaling": Figure(
        "scaling", "≥ 0.9 of linear", lambda found: f"{found['of_linear']:.2f}", lambda found: found["of_linear"] >= 0.9
    ),
    "jpeg": Figure("jpeg", "≥ 0.8 of local", lambda found: f"{found['ratio']:.2f}", lambda found: found["ratio"] >= 0.8),
    "large": Figure("large", "≥ 2 × Ray Data", lambda found: f"{found['ratio']:.1f}", lambda found: found["ratio"] >= 2),
    "first": Figure("first_batch", "≤ ½ of Ray Data", lambda found: f"{found['ratio']:.2f}", lambda found: found["ratio"] <= 0.5),
    "store": Figure(
        "store", "≤ budget", lambda found: f"{found['most']:,} of {found['budget']:,}",
        lambda found: found["most"] <= found["budget"],
    ),
    "actors": Figure(
        "many_actors", "256 actors: < 100 µs of the loop", lambda found: f"{found['loop_us']:.0f} µs and {found['bridge_us']:.0f}",
        lambda found: found["loop_us"] < 100,
    ),
    "cut-off": Figure(
        "scenarios.cut_off", "0 findings; wait ≤ detection + 2 s",
        lambda found: f"{len(found['findings'])}; {found['longest_wait_s']:.1f} s of {found['detection_s'] + 2:.1f} s",
        lambda found: not found["findings"] and found["longest_wait_s"] <= found["detection_s"] + 2, isolated=True,
    ),
    "kills": Figure(
        "scenarios.node_kills", "0 findings",
        lambda found: f"{len(found['findings'])} in {found['kills']} kills, {found['batches']} batches",
        lambda found: not found["findings"],
    ),
}  # fmt: skip
"""By name, in the order of the table."""


def main() -> int:
    """Measure, print a table, and say by the exit code whether all was reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray", description=__doc__)
    parser.add_argument(
        "--only", default=",".join(FIGURES), metavar="NAMES", help="some of them, with commas"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    missed = 0
    for name in options.only.split(","):
        figure = FIGURES[name]
        found = run(
            figure.stage if "." in figure.stage else f"benchmarks.ray.{figure.stage}",
            within_s=figure.within_s,
            prefix=namespaces.enter() if figure.isolated else (),
        )
        results[name] = found
        missed += not figure.reached(found)
        print(
            f"{name:8} {figure.target:36} {figure.read(found):28} {'' if figure.reached(found) else 'MISSED'}",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))
    return int(missed > 0)


def _cluster(cpus: int) -> Any:
    """A cluster of one node on loopback, to which this process is connected."""
    import ray

    from stoker._runtime.executors.ray.cluster import free_at_once

    with free_at_once():  # as a cluster that a loader starts
        ray.init(
            address="local", num_cpus=cpus, object_store_memory=_STORE_BYTES, include_dashboard=False, log_to_driver=False,
            logging_level="ERROR", _node_ip_address="127.0.0.1",
        )  # fmt: skip
    return ray


def _sleepy(row_s: float) -> Any:
    from benchmarks.datasets import PLENTY, Sleepy

    return Sleepy(PLENTY, row_s)


def _loader(dataset: Any, workers: int, rows: int, executor: Any = "ray", **options: Any) -> Any:
    import stoker

    return stoker.DataLoader(dataset, batch_size=rows, num_workers=workers, executor=executor, **options)


def _rate(dataset: Any, workers: int, rows: int, *, seconds: float, executor: str = "ray") -> float:
    """Batches per second, once every worker is up: each had time for some batches."""
    loader = _loader(dataset, workers, rows, executor)
    iterator = iter(loader)
    warm_s = time.perf_counter() + 3.0
    next(iterator)
    while time.perf_counter() < warm_s:
        next(iterator)
    for _ in range(3 * workers):
        next(iterator)
    began_s, count = time.perf_counter(), 0
    while time.perf_counter() - began_s < seconds:
        next(iterator)
        count += 1
    rate = count / (time.perf_counter() - began_s)
    loader.close()
    return rate


def _data_batches(ray: Any, batches: int) -> Iterator[Any]:
    """Ray Data: the same rows of 150 kB, made in its tasks, as batches of 64."""
    import numpy as np

    picture = np.zeros((3, 224, 224), np.uint8)
    rows = ray.data.range(64 * batches).map_batches(
        lambda batch: {"image": np.stack([picture] * len(batch["id"]))}, batch_size=64
    )
    found: Iterator[Any] = iter(rows.iter_torch_batches(batch_size=64))
    return found


def _data_rate(ray: Any, batches: int) -> float:
    """Batches per second after the first."""
    iterator = _data_batches(ray, batches)
    next(iterator)
    began_s = time.perf_counter()
    count = sum(1 for _ in iterator)
    return count / (time.perf_counter() - began_s)


def _stored(ray: Any) -> int:
    """Bytes in the object store of the one node, as its raylet counts them."""
    from ray._private.internal_api import node_stats

    node = ray.nodes()[0]
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
    return int(stats.store_stats.object_store_bytes_used)


if __name__ == "__main__":
    sys.exit(main())
