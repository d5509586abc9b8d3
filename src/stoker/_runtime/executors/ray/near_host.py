"""Forks the host of the trainer's own node from the trainer, which has torch imported: its first batch comes a second earlier.

    trainer ── takes the name of the node's host ──fork──► host: unpacks the dataset, listens ──fork──► workers of relays here

A relay of this node finds the name taken, and connects as soon as the host listens. Nothing else differs from a host that a relay
starts (``node_host``): the dataset is unpacked, not inherited, and workers run in the relay's folder, with its environment. When
there is no such host, or it has ended, the first relay starts one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import stat
import sys
from types import ModuleType
from typing import Any, NoReturn

from stoker._pickling.spec_pickle import SpecPickle
from stoker._runtime.executors.process import channels
from stoker._runtime.executors.ray import node_host
from stoker._runtime.executors.ray.options import Ray
from stoker._runtime.protocol import parent_descriptors
from stoker._runtime.protocol.lifeline import hold_lifeline
from stoker._runtime.protocol.spec_fds import SpecFds
from stoker.errors import StartRefused

_KILLED_S = 10.0
"""How long the kernel may take to end a process whose lifeline was closed."""


class NearHost:
    """The trainer's side. Owner: the executor, on the thread that iterates. It ends when this is closed, or with the trainer."""

    def __init__(self, listener: socket.socket, packed: SpecPickle) -> None:
        ours, theirs = channels.lifeline()
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _become_host(listener, theirs, packed)
            self._pidfd = os.pidfd_open(self._pid)
        except BaseException:
            parent_descriptors.close_private(ours)
            raise
        finally:
            os.close(theirs)
        self._lifeline_fd = ours
        parent_descriptors.keep_private(self._pidfd)

    def close(self) -> None:
        """End it at once. Idempotent."""
        if self._lifeline_fd < 0:
            return
        fd, self._lifeline_fd = self._lifeline_fd, -1
        parent_descriptors.close_private(fd)
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if not ended.poll(_KILLED_S * 1000):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        parent_descriptors.close_private(self._pidfd)
        with contextlib.suppress(ChildProcessError):  # other code in this program has reaped it
            os.waitpid(self._pid, 0)


def start(ray: Any, options: Ray, context: Any, pool: str, packed: SpecPickle) -> NearHost | None:
    """Fork the host of this process's node; None where workers of the node would not run as this process does.

    Called before the actors of the pool start a host themselves.
    """
    if not _serves(ray, options, context) or _calls_ray(packed.modules):
        return None
    node = ray.get_runtime_context().get_node_id()
    listener = node_host.take(next(node_host.addresses(pool, node)))
    if listener is None:
        return None
    try:
        return NearHost(listener, packed)
    except (OSError, StartRefused):  # no memory or descriptor is left for it: the relays' node may have some
        return None
    finally:
        listener.close()


def has_free_cpu(ray: Any, options: Ray) -> bool:
    """Whether Ray has what a worker asks for on this process's node, now. Asked before any actor of the pool is."""
    try:
        node = ray.get_runtime_context().get_node_id()
        free = ray._private.state.available_resources_per_node()[node]
    except Exception:  # a client of a cluster elsewhere
        return False
    wanted = {"CPU": options.num_cpus, **(options.resources or {})}
    return options.strategy in (None, "DEFAULT", "SPREAD") and all(
        free.get(name, 0.0) >= count for name, count in wanted.items()
    )


def _serves(ray: Any, options: Ray, context: Any) -> bool:
    """Whether an actor of this node may be in the same environment, and a fork is how workers start here."""
    if context.get_start_method() != "fork" or not hasattr(os, "pidfd_open"):
        return False
    try:
        here = ray.get_runtime_context()
        if options.runtime_env or here.runtime_env:
            return False
        node = here.get_node_id()
        found = next(each for each in ray.nodes() if each["NodeID"] == node)
    except Exception:  # a client of a cluster elsewhere
        return False
    return bool(found["Alive"] and found["Resources"].get("CPU", 0.0) >= max(options.num_cpus, 1e-9))


def _calls_ray(modules: frozenset[str]) -> bool:
    """Whether code of the dataset may call Ray: in a forked child, that would wait for ever."""
    if any(name.partition(".")[0] == "ray" for name in modules):
        return True
    for name in modules - {"__main__"}:  # whose functions travel with the modules that they use
        module = sys.modules.get(name)
        if name.partition(".")[0] in ("torch", "numpy", "stoker") or module is None:
            continue
        for value in list(vars(module).values()):
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "ray":
                return True
    return False


def _become_host(listener: socket.socket, lifeline_fd: int, packed: SpecPickle) -> NoReturn:
    """Continue in the forked child as the host."""
    code = 1
    try:
        gc.freeze()  # a collection would touch, and so copy, the trainer's objects
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        hold_lifeline(lifeline_fd)
        _let_go({listener.fileno(), lifeline_fd, packed.fd, *packed.fds})
        node_host.serve_forked(listener, SpecFds(packed.fd, packed.fds), lifeline_fd)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _let_go(kept: set[int]) -> None:
    """Give up the trainer's connections: Ray and other ranks notice its end by them.

    Their numbers stay taken, so that code which still knows one meets no file of ours. Regular files and memory stay open.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd in kept or fd <= 2:
            continue
        with contextlib.suppress(OSError):  # the one that listed the directory
            if _is_connection(os.fstat(fd).st_mode):
                os.dup2(null, fd, inheritable=False)
    os.close(null)


def _is_connection(mode: int) -> bool:
    """Whether it is a socket, a pipe or one of the kernel's objects without a name, such as an epoll."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode))
