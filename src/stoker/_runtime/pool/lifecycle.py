"""Closes pools at interpreter exit, and protects their slots from reuse while a forked child reads them.

A child forked while the user holds batches may read their slots. They are not reused before the child exits or executes another
program. A pipe tells: the child holds the only write end, so the parent reads end-of-file when it is closed.
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import Protocol

from stoker._record.live_objects import LiveObjects
from stoker._runtime.executors.interrupt_delay import InterruptDelay


class Closable(Protocol):
    """The part of a pool that this module uses."""

    @property
    def at_work(self) -> bool: ...

    def trim_when_idle(self) -> None: ...

    def close(self) -> None: ...

    def leases(self) -> int: ...

    def forked(self, child_fd: int) -> None: ...

    def inherited(self) -> None: ...


_log = logging.getLogger("stoker")
_open: LiveObjects[Closable] = LiveObjects()
_launching = 0
_exits = False
_pipe: tuple[int, int] | None = None


def register(pool: Closable) -> None:
    """Close this pool at interpreter exit, and report forks by the user's code to it."""
    _open.add(pool)


def at_work() -> int:
    """How many pools of this process are in an epoch and make batches ahead. Any thread."""
    return sum(pool.at_work for pool in _open.all())


def trim_idle() -> None:
    """Memory is short: trim every idle pool of this process. Any thread."""
    for pool in _open.all():
        pool.trim_when_idle()


class launching:
    """Marks forks as ours: workers do not read batches that the user holds. Ctrl-C comes when they have their owner."""

    def __init__(self) -> None:
        self._delay = InterruptDelay()

    def __enter__(self) -> None:
        global _launching
        self._delay.__enter__()
        _launching += 1

    def __exit__(self, *_: object) -> None:
        global _launching
        _launching -= 1
        self._delay.__exit__()


def interpreter_exits() -> bool:
    """Whether the pools of this process are closed because it ends."""
    return _exits


def _close_all() -> None:
    global _exits
    _exits = True
    for pool in _open.all():
        try:
            pool.close()
        except KeyboardInterrupt:  # a second Ctrl-C: the workers were killed at once
            pass
        except Exception:  # the other pools still have workers; the system frees what this one holds
            _log.debug("a pool could not be closed at exit", exc_info=True)


def _before() -> None:
    global _pipe
    _pipe = None
    if not _launching and any(pool.leases() for pool in _open.all()):
        try:
            _pipe = os.pipe()
        except OSError:  # no descriptor is left: the slots are then kept for good
            _pipe = (-1, -1)


def _in_parent() -> None:
    global _pipe
    if _pipe is None:
        return
    (read_fd, write_fd), _pipe = _pipe, None
    if write_fd >= 0:
        os.close(write_fd)
    for pool in _open.all():
        if pool.leases():
            pool.forked(_duplicate(read_fd))
    if read_fd >= 0:
        os.close(read_fd)


def _duplicate(fd: int) -> int:
    try:
        return os.dup(fd)
    except OSError:
        return -1


def _in_child() -> None:
    global _launching, _pipe
    _launching = 0  # the parent was launching, not this child
    if _pipe is not None and _pipe[0] >= 0:
        os.close(_pipe[0])  # the write end stays open until this process ends
    _pipe = None
    for pool in _open.all():
        pool.inherited()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
