"""What the bridge knows of remote workers and of tasks on their way, and the small tools that it needs for them."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stoker._runtime.protocol import status_page, wire


class Loss(NamedTuple):
    """A remote worker is gone. The fields are those of ``WorkerLost``; ``error`` is fatal for the loader."""

    worker: int
    reason: str = ""
    started: bool = True
    row: int = -1
    details: str = ""
    collating: bool = False
    error: BaseException | None = None
    by_host: bool = False


class Wiring(NamedTuple):
    """What the bridge shares with its executor. The executor closes all of it, after ``close``."""

    arena_fd: int
    stride: int
    result_fd: int
    note_fd: int
    page: status_page.StatusPage
    channel_of: Callable[[int], int]
    """The descriptor from which a worker reads tasks: one for all, or its own."""


class Limits(NamedTuple):
    """How long the bridge is patient. ``head`` is where the cluster's head answers.

    ``wait_s``: how long to wait for a first worker; None if there are local ones.
    """

    head: tuple[str, int] | None = None
    wait_s: float | None = None


@dataclass(slots=True, eq=False)
class Flight:
    """A task on its way: made by each of ``workers``; the first result counts."""

    task: wire.TaskHeader
    message: bytes
    payload: bytes | None
    sent_ns: int
    workers: set[int] = field(default_factory=set)
    done: bool = False


@dataclass(slots=True, eq=False)
class Relief:
    """The actor of a worker for which something near stands in. ``started`` is what it reported; None before."""

    actor: Any
    revision: int
    started: Any = None


@dataclass(slots=True, eq=False)
class Remote:
    """One remote worker, as the bridge knows it."""

    worker: int
    actor: Any
    gone: threading.Event
    node: str = ""
    host: str = ""
    up: bool = False
    flight: Flight | None = None
    sent_ns: int = 0
    revision: int = 0
    leaving: bool = False
    ended: Any = None
    """How its process ended, or the error of its actor; None while it lives."""
    pending: int = 0
    """Calls that have not returned."""
    relief: Relief | None = None
    """The actor that takes over from what stands in for it."""


class EventFd:
    """A descriptor that is readable after ``set``, from any thread."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


def pack_boot(**values: Any) -> bytes:
    """Pack what a remote worker starts with, for ``Relay.start``."""
    return pickle.dumps(values, 5)
