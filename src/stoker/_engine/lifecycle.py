"""Ends pools with the interpreter and keeps them apart from forked children."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """A pool, as this module sees it."""

    def close(self) -> None: ...

    def forked(self) -> None: ...

    def inherited(self) -> None: ...


_open: weakref.WeakSet[Closable] = weakref.WeakSet()
_launching = 0


def register(pool: Closable) -> None:
    """Close this pool at interpreter exit if nobody did so before; tell it of forks that are not ours."""
    _open.add(pool)


class launching:
    """While this is active forks are our own: workers do not look at batches the user holds."""

    def __enter__(self) -> None:
        global _launching
        _launching += 1

    def __exit__(self, *_: object) -> None:
        global _launching
        _launching -= 1


def _close_all() -> None:
    for pool in list(_open):
        pool.close()


def _forked() -> None:
    if not _launching:
        for pool in list(_open):
            pool.forked()


def _in_child() -> None:
    global _launching
    _launching = 0  # the parent was launching, not we
    for pool in list(_open):
        pool.inherited()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_forked, after_in_child=_in_child)
