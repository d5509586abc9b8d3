"""What goes wrong on a cluster while a loader is read, played in a stage. Each returns its findings: none when all is well.

Every batch is compared with what ``num_workers=0`` gives for the same seed. So a lost, repeated, reordered or changed row is found.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

import stoker
from stoker.errors import ClusterError
from tests.ray.datasets import Noisy, workers_seen
from tests.ray.nodes import DETECTION_S, LoopbackNodes, NamespaceNodes, until
from tests.soak.leftovers import RAY, kill_one

SEED = 20
BATCH = 8


def faults(nodes: int = 3, batches: int = 90, row_s: float = 0.02) -> dict[str, Any]:
    """Kill an actor, then a raylet, then a whole node; a new node joins, and the epoch goes on."""
    cluster = LoopbackNodes(nodes)
    folder = tempfile.mkdtemp(dir=os.environ["STK_FOLDER"])
    done: dict[str, Any] = {}

    def kill_worker() -> None:
        os.kill(workers_seen(folder)[0], signal.SIGKILL)

    def kill_actor() -> None:
        os.kill(_parent(workers_seen(folder)[0]), signal.SIGKILL)

    def kill_raylet() -> None:
        cluster.kill_raylet(cluster.nodes[0])
        cluster.add()

    def kill_node() -> None:
        cluster.kill(cluster.nodes[0])

    steps = {8: kill_worker, 20: kill_actor, 35: kill_raylet, 55: kill_node}
    with loader_on(cluster.address, Noisy(batches * BATCH, row_s, folder), nodes) as loader:
        found = compared(loader, Noisy(batches * BATCH), steps, done)
    return {**found, "workers": len(os.listdir(folder))}


def node_kills(
    nodes: int = 4, seconds: float = 120.0, every_s: float = 5.0, row_s: float = 0.02
) -> dict[str, Any]:
    """Kill one of the nodes every few seconds, and start another in its place, for so long."""
    cluster = LoopbackNodes(nodes)
    folder = tempfile.mkdtemp(dir=os.environ["STK_FOLDER"])
    batches = int(seconds / row_s / BATCH * nodes)
    kills, next_s = 0, time.monotonic() + every_s
    ends_s = time.monotonic() + seconds
    waits: list[float] = []
    data = Noisy(batches * BATCH, row_s, folder)
    with loader_on(cluster.address, data, nodes) as loader:
        rows = expected(Noisy(batches * BATCH))
        findings: list[str] = []
        count = 0
        for number, batch, wait_s in timed(iter(loader)):
            findings += differences(number, batch, next(rows))
            waits.append(wait_s)
            count += 1
            now_s = time.monotonic()
            if now_s > ends_s:
                break
            if now_s > next_s and cluster.nodes:
                cluster.kill(cluster.nodes[0])
                cluster.add()
                kills, next_s = kills + 1, now_s + every_s
    return {
        "findings": findings,
        "batches": count,
        "kills": kills,
        "longest_wait_s": max(waits),
        "workers": len(os.listdir(folder)),
    }


def cut_off(hosts: int = 2, batches: int = 120, row_s: float = 0.02, cut_s: float = 10.0) -> dict[str, Any]:
    """Cut one of the hosts off for some seconds in mid-epoch. It comes back, and its node is started again if Ray ended it."""
    cluster = NamespaceNodes(hosts)
    folder = tempfile.mkdtemp(dir=os.environ["STK_FOLDER"])
    host = cluster.network.hosts[0]
    done: dict[str, Any] = {}
    cut_at = [0.0]

    def cut() -> None:
        cluster.network.cut(host)
        cut_at[0] = time.monotonic()

    def join_again() -> None:
        time.sleep(max(0.0, cut_at[0] + cut_s - time.monotonic()))
        cluster.network.join(host)
        done["cut_s"] = time.monotonic() - cut_at[0]
        try:
            cluster.processes[host].wait(5)
        except subprocess.TimeoutExpired:
            return  # Ray had not noticed
        cluster.processes[host] = cluster.start(host)

    steps = {20: cut, batches * 2 // 3: join_again}
    with loader_on(cluster.address, Noisy(batches * BATCH, row_s, folder), hosts) as loader:
        found = compared(loader, Noisy(batches * BATCH), steps, done)
    return {**found, "detection_s": DETECTION_S}


def driver_dies(near: bool = False) -> dict[str, Any]:
    """Kill the process that trains: its actors and workers end by themselves. ``near``: they are on its own node."""
    cluster = LoopbackNodes(0, head_cpus=2) if near else LoopbackNodes(2)
    folder = tempfile.mkdtemp(dir=os.environ["STK_FOLDER"])
    code = f"from tests.ray.scenarios import endless; endless({cluster.address!r}, {folder!r})"
    driver = subprocess.Popen([sys.executable, "-c", code])
    until(lambda: len(workers_seen(folder)) == 2, "both workers make rows", 60.0)
    workers = workers_seen(folder)
    above = [_parent(pid) for pid in workers]
    driver.kill()
    driver.wait()
    took_s = until(lambda: not any(map(_alive, (*workers, *above))), "workers and actors have ended", 30.0)
    return {"findings": [], "took_s": took_s}


def trainers_die(kills: int, seed: int = 0) -> dict[str, Any]:
    """Kill trainers at random lines, one after the other: no actor, no worker and no file of theirs remains on the nodes."""
    cluster = LoopbackNodes(2)
    files = _ours(tempfile.gettempdir())

    def remaining() -> list[str]:
        found = [f"actor {each}" for each in cluster.actors()]
        found += [f"worker {pid}" for pid in _workers_below(os.getpid())]
        return found + [f"temporary file {each}" for each in sorted(_ours(tempfile.gettempdir()) - files)]

    remains = [
        kill_one(each, RAY, address=cluster.address, elsewhere=remaining)
        for each in range(seed, seed + kills)
    ]
    return {"remains": remains}


def endless(address: str, folder: str) -> None:
    """The driver of ``driver_dies``."""
    with loader_on(address, Noisy(10_000_000, 0.02, folder), 2) as loader:
        for _ in loader:
            pass


def head_lost() -> dict[str, Any]:
    """End the head's control service in mid-epoch: one error, with a code."""
    cluster = LoopbackNodes(1)
    findings: list[str] = []
    error = ""
    began_s = 0.0
    loader = loader_on(cluster.address, Noisy(4000, 0.02), 1)
    try:
        for number, _ in enumerate(loader):
            if number == 3:
                cluster.kill_head()
                began_s = time.monotonic()
        findings.append("the epoch ended as if nothing had happened")
    except ClusterError as raised:
        error = f"{type(raised).__name__} {getattr(raised, 'code', '')}: {raised}"
    return {"findings": findings, "error": error, "took_s": time.monotonic() - began_s}


def loader_on(address: str, dataset: Any, workers: int, **options: Any) -> Any:
    """A loader whose workers are on the cluster at this address."""
    logging.getLogger("stoker").setLevel(logging.ERROR)
    return stoker.DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=True,
        generator=_seeded(),
        num_workers=workers,
        executor=stoker.Ray(address=address),
        restarts=1000,
        **options,
    )


def expected(dataset: Any) -> Iterator[Any]:
    """The batches without workers."""
    return iter(stoker.DataLoader(dataset, batch_size=BATCH, shuffle=True, generator=_seeded()))


def timed(iterator: Iterator[Any]) -> Iterator[tuple[int, Any, float]]:
    """Number, batch, and the seconds that ``next`` took."""
    number = 0
    while True:
        began_s = time.monotonic()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield number, batch, time.monotonic() - began_s
        number += 1


def compared(
    loader: Any, same: Any, steps: dict[int, Callable[[], None]], done: dict[str, Any]
) -> dict[str, Any]:
    """Read an epoch, take the steps at their batches, and compare each batch. The wait of the first batch does not count."""
    steps = dict(steps)
    findings: list[str] = []
    longest_s, count = 0.0, 0
    rows = expected(same)
    for number, batch, wait_s in timed(iter(loader)):
        findings += differences(number, batch, next(rows, None))
        longest_s = max(longest_s, wait_s if number else 0.0)
        count += 1
        if number in steps:
            steps.pop(number)()
    if next(rows, None) is not None:
        findings.append(f"lost: the epoch ended after {count} batches")
    return {"findings": findings[:5], "batches": count, "longest_wait_s": longest_s, **done}


def differences(number: int, batch: Any, wanted: Any) -> list[str]:
    """What is different, in words; nothing when both are equal bit for bit."""
    if wanted is None:
        return [f"batch {number} is too many"]
    if not torch.equal(batch["index"], wanted["index"]):
        return [f"batch {number} has rows {batch['index'].tolist()}, not {wanted['index'].tolist()}"]
    return [
        f"batch {number}: {name} is not equal"
        for name in wanted
        if not torch.equal(batch[name], wanted[name])
    ]


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def _ours(folder: str) -> set[str]:
    """What stoker has in a folder for temporary files, apart from the folder in which its processes meet."""
    return {
        each for each in os.listdir(folder) if each.startswith("stoker") and each != f"stoker-{os.getuid()}"
    }


def _workers_below(pid: int) -> list[int]:
    """Processes that a loader named as its workers."""
    import psutil

    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError), open(f"/proc/{each.pid}/comm") as comm:
            if comm.read().startswith("stoker") and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each.pid)
    return found


def _parent(pid: int) -> int:
    import psutil

    return int(psutil.Process(pid).ppid())


def _alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
