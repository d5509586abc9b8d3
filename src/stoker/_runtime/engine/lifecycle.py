"""Ends pools with the interpreter and keeps them apart from forked children.

A child forked while the user holds batches goes on reading their slots. They must not be reused before that child is gone, or has
become another program. A pipe tells: the child keeps the only write end, and the parent reads its end as soon as that is closed.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from typing import Protocol

from stoker._record.live_objects import LiveObjects


class Closable(Protocol):
    """A pool, as this module sees it."""

    @property
    def at_work(self) -> bool: ...

    def trim_when_idle(self) -> None: ...

    def close(self) -> None: ...

    def leases(self) -> int: ...

    def forked(self, child_fd: int) -> None: ...

    def inherited(self) -> None: ...


_open: LiveObjects[Closable] = LiveObjects()
_launching = 0
_pipe: tuple[int, int] | None = None


def register(pool: Closable) -> None:
    """Close this pool at interpreter exit if nobody did so before; tell it of forks that are not ours."""
    _open.add(pool)


def at_work() -> int:
    """How many pools of this process are in the middle of an epoch and make batches ahead. Any thread."""
    return sum(pool.at_work for pool in _open.all())


def trim_idle() -> None:
    """Memory is short: let every idle pool of this process give back what it can do without. Any thread."""
    for pool in _open.all():
        pool.trim_when_idle()


class launching:
    """While this is active forks are our own: workers do not look at batches the user holds."""

    def __enter__(self) -> None:
        global _launching
        _launching += 1

    def __exit__(self, *_: object) -> None:
        global _launching
        _launching -= 1


def _close_all() -> None:
    for pool in _open.all():
        with suppress(KeyboardInterrupt):  # the impatient get what they want: its workers were ended at once
            pool.close()


def _before() -> None:
    global _pipe
    _pipe = None
    if not _launching and any(pool.leases() for pool in _open.all()):
        try:
            _pipe = os.pipe()
        except OSError:  # no descriptor to be had: the slots are then kept for good
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
    _launching = 0  # the parent was launching, not we
    if _pipe is not None and _pipe[0] >= 0:
        os.close(_pipe[0])  # the other end stays open for as long as this process lives
    _pipe = None
    for pool in _open.all():
        pool.inherited()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
