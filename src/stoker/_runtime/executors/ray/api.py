"""The calls of Ray that the bridge makes, and what its errors mean. A test gives the bridge a double of this class."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

from stoker import __version__
from stoker._runtime.executors.ray import cluster
from stoker._runtime.executors.ray.options import Ray
from stoker._runtime.executors.ray.remotes import Loss, Remote
from stoker.errors import ClusterError, coded

_SHOWN = 800
_PREPARED = 8
"""So many actors are asked for ahead; each request takes a millisecond."""


class RayApi:
    """One per pool. Used on the bridge's thread once that runs, except ``get``."""

    def __init__(self, ray: Any, options: Ray, pool: str) -> None:
        from stoker._runtime.executors.ray import relay

        self._ray = ray
        self._connection = cluster.connection(ray)
        self._num_cpus = options.num_cpus
        self._in_environment = bool(options.runtime_env)
        self._bundle = {"CPU": options.num_cpus, **(options.resources or {})}
        self.start_arguments: tuple[Any, ...] = (pool, [])
        self._prepared: dict[int, Any] = {}
        self._near: list[Any] = []
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
            raise self.refused(error) from error

    def is_connected(self) -> bool:
        """Whether this process has the connection of the beginning. Without one, any call of Ray's would start a cluster here."""
        return self._ray.is_initialized() and cluster.connection(self._ray) is self._connection

    @staticmethod
    def disconnected() -> ClusterError:
        """The error when somebody has closed the connection."""
        return ClusterError(
            "this process has left the Ray cluster while a loader used it (ray.shutdown()): its workers are gone. Close the loader "
            "before ray.shutdown(), or call iter(loader) again: it connects anew"
        )

    def refusal(self, worker: int, error: Exception) -> Loss:
        """Describe why an actor cannot be made. What Ray refuses of one it would refuse of every other."""
        if isinstance(error, TypeError | ValueError):
            return Loss(-1, error=self.refused(error))
        return Loss(worker, f"Ray refused an actor: {error}", started=False)

    @staticmethod
    def refused(error: Exception) -> ClusterError:
        """The error when Ray refuses what the user asked for. It looks at some of that when an actor is made only."""
        told = f"Ray refuses resources, runtime_env or strategy of stoker.Ray(...): {error}"
        return coded(ClusterError(told), "STK327")

    def prepare(self, workers: Iterable[int]) -> None:
        """Ask for the actors of the first workers already: they come up while the dataset is packed."""
        with contextlib.suppress(Exception):  # ``actor`` will say why
            for worker in itertools.islice(workers, _PREPARED):
                self._prepared[worker] = self._make.remote(worker)

    def hand_over(self, spec: list[Any]) -> None:
        """Take the references of the packed dataset, which each actor starts with."""
        self.start_arguments = (self.start_arguments[0], spec)

    def abandon(self) -> None:
        """End the actors that nobody has asked for, and wait for the end of what was near."""
        while self._prepared:
            with contextlib.suppress(Exception):
                self.kill(self._prepared.popitem()[1])
        for actor in self._near:
            actor.kill()
            actor.join()

    def actor(self, worker: int) -> Any:
        """Ask for an actor. It may take until there is a free CPU."""
        found = self._prepared.pop(worker, None)
        return found if found is not None else self._make.remote(worker)

    def near(self, worker: int) -> Any:
        """Return what stands in for the actor of this worker, on this node, until that has started."""
        from stoker._runtime.executors.ray.near_worker import NearActor

        made = NearActor(worker)
        self._near.append(made)
        return made

    def kill(self, actor: Any) -> None:
        """End an actor at once. Its worker process ends with it."""
        if any(actor is each for each in self._near):
            actor.kill()
        elif self.is_connected():
            self._ray.kill(actor, no_restart=True)

    def get(self, ref: Any, timeout: float) -> Any:
        """Wait for a small answer. Any thread."""
        if not isinstance(ref, self._ray.ObjectRef):  # of what is near
            return ref.future().result(timeout)
        return self._ray.get(ref, timeout=timeout)

    def ask_for_room(self, workers: int) -> None:
        """Ask the autoscaler for room for so many workers, in place of what was asked for before; 0 gives it back."""
        from ray.autoscaler.sdk import request_resources

        if not self.is_connected():
            return
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
        if self._in_environment and free >= self._num_cpus:
            told = (
                f"no worker has started on the Ray cluster within {waited_s:g} s, though it has {free:g} free CPUs: the "
                "runtime_env of stoker.Ray(...) does not work on its nodes, or takes longer (wait_s). Ray's logs there say why"
            )
            return coded(ClusterError(told), "STK327")
        told = (
            f"no worker has started on the Ray cluster within {waited_s:g} s: it has {free:g} free CPUs, and each worker asks for "
            f"{self._num_cpus:g} and its resources. Free some, ask for less (num_cpus, resources), wait longer (wait_s), or have "
            "local workers (local=2)"
        )
        return coded(ClusterError(told), "STK323")

    def missing_workers(self, started: int, workers: int, waited_s: float) -> ClusterError:
        """The error when some were to be waited for, and have not started in time."""
        if not started:
            return self.no_worker(waited_s)
        told = (
            f"{started} of {workers} remote workers have started on the Ray cluster within {waited_s:g} s: it has "
            f"{cluster.free_cpus(self._ray):g} free CPUs left, and each worker asks for {self._num_cpus:g}. Go on with those "
            "(wait_for_all=False), wait longer (wait_s), or ask for less (num_workers, num_cpus)"
        )
        return coded(ClusterError(told), "STK323")

    def explain(self, remote: Remote, error: BaseException) -> Loss:
        """Describe the loss of an actor. Some errors end the loader: every other actor would fail as well."""
        errors = self._ray.exceptions
        text = _words(error)
        where = f" on node {remote.host}" if remote.host else ""
        fatal = None
        if isinstance(error, errors.RuntimeEnvSetupError):
            told = f"the runtime_env of stoker.Ray(...) cannot be set up on the cluster: {text}"
            fatal = coded(ClusterError(told), "STK327")
        elif isinstance(error, errors.ObjectStoreFullError | errors.OutOfDiskError):
            told = (
                f"the object store{where} has no room for a batch: start the nodes with a larger --object-store-memory, use "
                f"fewer workers, or smaller batches. Ray says: {text}"
            )
            fatal = coded(ClusterError(told), "STK325")
        elif not remote.up and "No module named" in str(error):
            told = f"a node of the cluster lacks a package that workers need: {_last_line(error)}. Install the same on all nodes"
            fatal = coded(ClusterError(told), "STK322")
        died = isinstance(error, errors.ActorDiedError | errors.ActorUnavailableError | errors.NodeDiedError)
        return Loss(
            remote.worker,
            f"DataLoader worker {remote.worker}{where} exited unexpectedly: Ray lost its actor",
            started=remote.up,
            details=f"\n  Ray says: {text}",
            error=fatal,
            by_host=died,
        )


def _words(error: BaseException) -> str:
    """What went wrong, in one line: the cause of a remote traceback, or else what Ray writes."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        error = cause
    text = " ".join(str(error).split())
    if isinstance(cause, BaseException):
        text = f"{type(cause).__name__}: {text}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"


def _last_line(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if "No module named" in line), "")
