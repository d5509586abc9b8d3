"""Ray nodes of one machine: on loopback, or on hosts in network namespaces. All are children of the process that made them.

That process is a stage (``tests/ray/stage.py``), never the test process. It sets ``RAY_TMPDIR`` before ray is imported, so that
no ``ray.init()`` elsewhere on the machine finds this cluster, and this process finds no other.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.ray.namespaces import HEAD, Host, Network
from tests.ray.turns import starting

LOOPBACK = "127.0.0.2"
"""Not 127.0.0.1: Ray puts the address of a network interface in its place when a driver connects."""
STORE_BYTES = 160 << 20
DETECTION_S = 4.0
"""How long Ray takes to find out that a node does not answer, with ``QUICK``, about."""
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Ray's settings with which it notices a silent node early. Its defaults take longer than a test may."""
_JOIN_S = 60.0


class LoopbackNodes:
    """A head and further nodes on loopback. ``kill`` and ``kill_raylet`` are sudden: SIGKILL, no goodbye."""

    def __init__(self, nodes: int, *, cpus: int = 1, head_cpus: int = 0, address: str = LOOPBACK) -> None:
        from ray.cluster_utils import Cluster

        self._cpus = cpus
        with starting():
            self._cluster = Cluster(
                initialize_head=True,
                head_node_args={
                    "num_cpus": head_cpus,
                    "object_store_memory": STORE_BYTES,
                    "include_dashboard": False,
                    "node_ip_address": address,
                    "_system_config": QUICK,
                },
            )
            self.address: str = self._cluster.address
            self.nodes = [self._add(wait=False) for _ in range(nodes)]
            self._cluster.wait_for_nodes(_JOIN_S)

    def add(self) -> Any:
        """Start another node; it joins some seconds later."""
        self.nodes.append(self._add(wait=False))
        return self.nodes[-1]

    def kill(self, node: Any) -> None:
        """End all processes of a node: the raylet, its agents, its workers."""
        pids = _below(node)
        self._cluster.remove_node(node, allow_graceful=False)
        self.nodes.remove(node)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def kill_raylet(self, node: Any) -> None:
        """End the raylet alone. Its workers notice, and end."""
        node.kill_raylet()
        self._cluster.worker_nodes.discard(node)
        self.nodes.remove(node)

    def kill_head(self) -> None:
        """End the head's control service. A driver cannot go on without it."""
        self._cluster.head_node.kill_gcs_server()

    def actors(self) -> list[str]:
        """The actors that are not dead, of all drivers."""
        table = self._cluster.global_state.actor_table(None, None, None)
        return [f"{key[:8]} {each['State']}" for key, each in table.items() if each["State"] != "DEAD"]

    def _add(self, *, wait: bool) -> Any:
        return self._cluster.add_node(
            wait=wait,
            node_ip_address=self.address.rpartition(":")[0],
            num_cpus=self._cpus,
            object_store_memory=STORE_BYTES,
        )


class NamespaceNodes:
    """A head in this network namespace, without CPUs for tasks, and one node on each host of a ``Network``."""

    def __init__(self, hosts: int, *, cpus: int = 1) -> None:
        self.network = Network(hosts)
        self._cpus = cpus
        self._loopback = LoopbackNodes(0, address=HEAD)
        self.address = self._loopback.address
        self.processes: dict[Host, subprocess.Popen[bytes]] = {}
        for count, host in enumerate(
            self.network.hosts, 2
        ):  # in turn: they share a disk, where Ray's file names may clash
            self.processes[host] = self.start(host)
            until(lambda wanted=count: self.alive() == wanted, f"{host.name} has joined")  # type: ignore[misc]

    def start(self, host: Host) -> subprocess.Popen[bytes]:
        """Start a node on a host."""
        argv = [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--address={self.address}",
            f"--node-ip-address={host.address}", f"--num-cpus={self._cpus}", f"--object-store-memory={STORE_BYTES}",
            "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0",
        ]  # fmt: skip
        return host.start(argv, os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def alive(self) -> int:
        """How many nodes Ray believes to be alive, the head included."""
        return len(self._loopback._cluster.global_state._live_node_ids())


def until(holds: Callable[[], bool], what: str, within_s: float = _JOIN_S) -> float:
    """Wait until it holds; the seconds that it took. Raises TimeoutError."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > within_s:
            raise TimeoutError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def _below(node: Any) -> list[int]:
    """The pids of a node's workers, which are children of its raylet."""
    import psutil

    found: list[int] = []
    for infos in node.all_processes.values():
        for info in infos:
            with contextlib.suppress(psutil.Error):
                found += [child.pid for child in psutil.Process(info.process.pid).children(recursive=True)]
    return found
