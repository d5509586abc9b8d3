"""The connection to a Ray cluster, and the errors of connecting. No call is made in a forked child."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from stoker._runtime.executors.ray.options import Ray
from stoker.errors import ClusterError, coded

MISSING = (
    "executor='ray' needs Ray, which is not installed here: pip install 'stoker[ray]', or use executor='process' for workers "
    "on this machine"
)


FORKED = (
    "this process was forked from one that is connected to the Ray cluster. Ray's threads are not in it, so a call would wait for "
    "ever. Iterate the loader in the process that connected, start this one with spawn, or use executor='process'"
)

_RAYS_THREAD = "worker.io"
"""A thread of every process that is connected."""

FREE_AT_ONCE = ("RAY_free_objects_batch_size", "1")
"""Ray's own knob, read by a raylet as it starts. Objects that nobody holds are otherwise freed once a second: until then as many
batches as a second brings lie in the object store, over any budget."""


def connect(options: Ray) -> Any:
    """Return the ``ray`` module, connected to a cluster. Joins the one of ``address`` or ``RAY_ADDRESS``, or starts one here.

    Does nothing if this process is connected already. Raises ClusterError.
    """
    try:
        import ray
    except ImportError as error:
        raise ClusterError(MISSING) from error
    if ray.is_initialized():
        if _was_forked(ray):
            raise ClusterError(FORKED)
        return ray
    given = options.address or os.environ.get("RAY_ADDRESS")
    try:
        with free_at_once():
            ray.init(address=options.address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise _refused(given, error) from error
    return ray


def connection(ray: Any) -> Any:
    """Return what stands for this process's connection: another object after ``ray.shutdown()`` and ``ray.init()``."""
    return getattr(_driver(ray), "core_worker", None)


def _was_forked(ray: Any) -> bool:
    """Whether another process connected, from which this one was forked. Ray's threads did not come along."""
    listener = getattr(_driver(ray), "listener_thread", None)
    if listener is None or listener.is_alive():
        return False
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{thread}/comm") as name:
            if name.read().strip() == _RAYS_THREAD:
                return False
    return True


def _driver(ray: Any) -> Any:
    return getattr(getattr(getattr(ray, "_private", None), "worker", None), "global_worker", None)


@contextmanager
def free_at_once() -> Iterator[None]:
    """Have a cluster that is started meanwhile free objects as soon as nobody holds them, unless the user's environment decides."""
    name, value = FREE_AT_ONCE
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _refused(address: str | None, error: Exception) -> ClusterError:
    text = str(error)
    if "ersion" in text and ("mismatch" in text or "different" in text):
        told = (
            f"the Ray cluster at {address!r} runs another version of Ray or Python than this process: {text.strip()} "
            "Install the same versions on both sides"
        )
        return coded(ClusterError(told), "STK322")
    if address is None:
        return ClusterError(f"Ray could not start a cluster on this machine: {text.strip()}")
    return ClusterError(
        f"no Ray cluster answers at {address!r}: {text.strip()} Check the address (address=, RAY_ADDRESS) with: ray status"
    )


def free_cpus(ray: Any) -> float:
    """The CPUs that no task and no actor of the cluster uses now."""
    return float(ray.available_resources().get("CPU", 0.0))


def head_address(ray: Any) -> tuple[str, int] | None:
    """Where the cluster's head answers; None if Ray does not say."""
    host, _, port = str(ray.get_runtime_context().gcs_address).rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdigit() else None
