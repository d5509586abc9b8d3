"""Imports torch in the fork server, once for all workers. Only the fork server imports this module.

A terminal sends Ctrl-C to the fork server too, and during the imports that would print a second traceback. So the server starts
with the signal blocked and ignores it here, at the earliest possible moment.

The server ends when the training process has ended, also while it imports. It then removes its socket and the directory made for
it, if they still exist.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
from contextlib import suppress

from stoker._runtime.worker.process.orphan import ends_with_parent

_previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _tidy_up(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
    with suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _listener() -> str:
    """Return the path of the server's socket; empty when it is not in a directory of ours."""
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
                path = found.getsockname()
                if isinstance(path, str) and os.path.basename(os.path.dirname(path)).startswith("stoker-"):
                    return path
    return ""


def _leave() -> None:
    if _path:
        _tidy_up(_path)


_path = _listener()
atexit.register(_leave)  # workers end without their exit handlers

with ends_with_parent("multiprocessing.forkserver", "main", _leave):
    import stoker._runtime.worker.process.entry  # noqa: F401  # brings numpy and torch

signal.signal(signal.SIGINT, _previous)
