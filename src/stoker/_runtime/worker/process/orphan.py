"""Ends a process whose parent dies while it still imports, which takes seconds. Until then it would notice nothing.

The fork server looks for its parent when it has imported all, and a worker when it has its lifeline. The pipes that they have by
then do not tell: a request that is on its way to the server holds the other end open.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _nothing() -> None:
    return None


@contextmanager
def ends_with_parent(module: str, function: str, last_words: Callable[[], None] = _nothing) -> Iterator[None]:
    """End this process in the block as soon as its parent has ended. ``last_words`` are called before, on another thread.

    Does nothing unless it was called below this function, with which multiprocessing begins a process.
    """
    if not _is_below(module, function) or not hasattr(os, "pidfd_open"):
        yield
        return
    try:
        parent_fd = os.pidfd_open(os.getppid())
    except OSError:  # it has ended, or no descriptor is left
        yield
        return
    over_fd, end_fd = os.pipe()
    thread = threading.Thread(target=_watch, args=(parent_fd, over_fd, last_words), daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(end_fd)
        thread.join()  # nothing may be forked beside a thread
        os.close(over_fd)
        os.close(parent_fd)


def _watch(parent_fd: int, over_fd: int, last_words: Callable[[], None]) -> None:
    ready = select.poll()
    ready.register(parent_fd, select.POLLIN)
    ready.register(over_fd, select.POLLIN)
    if any(fd == parent_fd for fd, _ in ready.poll()):
        last_words()
        os._exit(1)


def _is_below(module: str, function: str) -> bool:
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") == module:
            return True
    return False
