"""The calls of Ray that the bridge makes, and what its errors mean. A test gives the bridge a double of this class."""

from __future__ import annotations

import contextlib
from typing import Any

from stoker import __version__
from stoker._runtime.executors.ray import cluster
from stoker._runtime.executors.ray.options import Ray
from stoker._runtime.executors.ray.remotes import Loss, Remote
from stoker.errors import ClusterError, coded

_SHOWN = 800


class RayApi:
    """One per pool. Used on the bridge's thread, except ``get``."""

    def __init__(self, ray: Any, options: Ray, pool: str, spec: list[Any]) -> None:
        from stoker._runtime.executors.ray import relay

        self._ray = ray
        self._num_cpus = options.num_cpus
        self._bundle = {"CPU": options.num_cpus, **(options.resources or {})}
        self.start_arguments = (pool, spec)
        try:
            self._make = ray.remote(concurrency_groups=relay.GROUPS)(relay.Relay).options(
                num_cpus=options.num_cpus,
                resources=dict(options.resources) if options.resources else None,
                runtime_env=dict(options.runtime_env) if options.runtime_env else None,
                scheduling_strategy=options.strategy,
                max_restarts=0,
                max_task_retries=0,
            )
        except (ValueError, TypeError) as error:
            told = f"Ray refuses resources, runtime_env or strategy of stoker.Ray(...): {error}"
            raise coded(ClusterError(told), "STK327") from error

    def actor(self, worker: int) -> Any:
        """Ask for an actor. It may take until there is a free CPU."""
        return self._make.remote(worker)

    def kill(self, actor: Any) -> None:
        """End an actor at once. Its worker process ends with it."""
        self._ray.kill(actor, no_restart=True)

    def get(self, ref: Any, timeout: float) -> Any:
        """Wait for a small answer. Any thread."""
        return self._ray.get(ref, timeout=timeout)

    def ask_for_room(self, workers: int) -> None:
        """Ask the autoscaler for room for so many workers, in place of what was asked for before; 0 gives it back."""
        from ray.autoscaler.sdk import request_resources

        with contextlib.suppress(Exception):  # a cluster without an autoscaler has what it has
            request_resources(bundles=[self._bundle] * workers)

    def unfit(self, started: Any) -> ClusterError | None:
        """Why a relay that has started cannot be used, or None."""
        if started.version == __version__:
            return None
        told = (
            f"node {started.host} has stoker {started.version}, and this process {__version__}: install the same version on all "
            "nodes"
        )
        return coded(ClusterError(told), "STK322")

    def few_cpus(self, waiting: int, workers: int) -> str:
        """What to tell the user about workers that have not started yet; empty if they do not wait for CPUs."""
        free = cluster.free_cpus(self._ray)
        if free >= self._num_cpus:
            return ""
        return (
            f"{workers - waiting} of {workers} remote workers have started: the Ray cluster has {free:g} free CPUs left, and each "
            f"worker asks for {self._num_cpus:g}. The others join when CPUs become free (stoker explain STK323)"
        )

    def no_worker(self, waited_s: float) -> ClusterError:
        """The error when no worker has started in time."""
        free = cluster.free_cpus(self._ray)
        told = (
            f"no worker has started on the Ray cluster within {waited_s:g} s: it has {free:g} free CPUs, and each worker asks for "
            f"{self._num_cpus:g} and its resources. Free some, ask for less (num_cpus, resources), wait longer (wait_s), or have "
            "local workers (local=2)"
        )
        return coded(ClusterError(told), "STK323")

    def explain(self, remote: Remote, error: BaseException) -> Loss:
        """Describe the loss of an actor. Some errors end the loader: every other actor would fail as well."""
        errors = self._ray.exceptions
        text = " ".join(str(error).split())
        where = f" on node {remote.host}" if remote.host else ""
        fatal = None
        if isinstance(error, errors.RuntimeEnvSetupError):
            told = f"the runtime_env of stoker.Ray(...) cannot be set up on the cluster: {text[:_SHOWN]}"
            fatal = coded(ClusterError(told), "STK327")
        elif isinstance(error, errors.ObjectStoreFullError | errors.OutOfDiskError):
            told = (
                f"the object store{where} has no room for a batch: start the nodes with a larger --object-store-memory, use "
                f"fewer workers, or smaller batches. Ray says: {text[:_SHOWN]}"
            )
            fatal = coded(ClusterError(told), "STK325")
        elif not remote.up and "No module named" in text:
            told = f"a node of the cluster lacks a package that workers need: {_last_line(error)}. Install the same on all nodes"
            fatal = coded(ClusterError(told), "STK322")
        died = isinstance(error, errors.ActorDiedError | errors.ActorUnavailableError | errors.NodeDiedError)
        return Loss(
            remote.worker,
            f"DataLoader worker {remote.worker}{where} exited unexpectedly: Ray lost its actor",
            started=remote.up,
            details=f"\n  Ray says: {text[:_SHOWN]}",
            error=fatal,
            by_host=died,
        )


def _last_line(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if "No module named" in line), "")
