"""Ends a process together with the one that holds the other end of a socket."""

from __future__ import annotations

import fcntl
import os
import signal


def hold_lifeline(fd: int, owner: int | None = None) -> None:
    """Have the kernel kill this process as soon as the other end of the socket is closed; or ``owner``, as F_SETOWN takes it.

    PR_SET_PDEATHSIG would fire when the *thread* that forked ends, and means nothing under a fork server. Where the kernel has
    no F_SETSIG (macOS), the worker notices at its next task: the task channel reads as closed.
    """
    set_signal = getattr(fcntl, "F_SETSIG", None)
    if set_signal is None:
        return
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid() if owner is None else owner)
    fcntl.fcntl(fd, set_signal, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    try:
        alive = os.read(fd, 1)
    except BlockingIOError:
        return
    if not alive:  # the other end was gone before the signal was armed
        os._exit(0)
