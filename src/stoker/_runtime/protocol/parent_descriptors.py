"""Keeps descriptors private to the parent: every forked child closes them first, whoever forked it.

An unrelated fork would copy the parent's end of a lifeline or task channel. Workers would then stay alive, or wait, after the
parent is gone. ``os.register_at_fork`` closes these descriptors in every child; exec closes them because they are close-on-exec.

A pool holds about ten descriptors open in the parent. Each worker adds two under fork (lifeline, pidfd) and four under spawn and
forkserver (also two pipe ends of multiprocessing). A template adds four. Batches add none, however many the user keeps.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from stoker.errors import StartRefused

SPENT = (errno.EMFILE, errno.ENFILE)
"""Error numbers that mean that no descriptor is left, in this process or in the whole system."""

_private: set[int] = set()


def keep_private(fd: int) -> None:
    """Close this descriptor in every child that is forked from now on."""
    _private.add(fd)


def close_private(fd: int) -> None:
    """Close a descriptor that was kept private. The caller forgets its number, which may be given out anew at once."""
    if fd in _private:
        _private.discard(fd)
        os.close(fd)


def ensure_spare(count: int) -> None:
    """Raise OSError unless this many more can be opened. For calls that leak some when they run out halfway."""
    spare: list[int] = []
    try:
        spare.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(count))
    finally:
        for fd in spare:
            os.close(fd)


def occupy_standard() -> None:
    """Reserve the numbers of closed standard streams (``>&-``), so that prints do not land in a file of ours."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


@contextmanager
def may_run_out(what: str) -> Iterator[None]:
    """Turn the error about missing descriptors into one with the numbers."""
    try:
        yield
    except OSError as error:
        if error.errno not in SPENT:
            raise
        text = f"{what} needs descriptors and the system refused them: {error.strerror}. {census()}"
        raise StartRefused(error.errno, text) from error


def census() -> str:
    """Describe how many descriptors this process has and may have, and what to do. Needs no free descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"This process has {_in_use(soft)} of {soft} descriptors in use (hard limit {hard}); a worker takes 2 of them under fork, "
        "4 under spawn and forkserver, and up to 10 more while it starts. Use fewer workers or executor='thread', "
        "or a higher limit (ulimit -n)"
    )


def _in_use(limit: int) -> int:
    try:
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:  # listing needs a free descriptor; without one, try each number
        return sum(_is_open(fd) for fd in range(limit))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _close_in_child() -> None:
    for fd in _private:
        try:
            os.close(fd)
        except OSError:
            continue
    _private.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
