"""Descriptors that only the parent may hold. A forked child closes them first thing, whoever forked it.

The parent's end of a lifeline or task channel, copied into some child by an unrelated fork, would keep workers alive or waiting
after the parent is gone. ``os.register_at_fork`` closes them in every child; exec closes them because they are close-on-exec.
"""

from __future__ import annotations

import os

_private: set[int] = set()


def keep_private(fd: int) -> None:
    """From now on this descriptor is closed in forked children."""
    _private.add(fd)


def close_private(fd: int) -> None:
    """Close a descriptor that was kept private. Idempotent."""
    if fd in _private:
        _private.discard(fd)
        os.close(fd)


def _close_in_child() -> None:
    for fd in _private:
        try:
            os.close(fd)
        except OSError:
            continue
    _private.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
