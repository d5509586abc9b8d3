"""Holds a worker process and its descriptors, for the executor that started it."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any


class WorkerHandle:
    """A worker process and the descriptors that go with it."""

    __slots__ = ("by_host", "leaving", "left", "lifeline_fd", "pidfd", "process", "started")

    def __init__(self, process: Any, lifeline_fd: int, pidfd: int) -> None:
        self.process = process
        self.lifeline_fd = lifeline_fd
        self.pidfd = pidfd
        self.leaving = False
        """Whether its end is expected."""
        self.left = False
        """Whether it announced its end, with no task left."""
        self.started = False
        self.by_host = False
        """Whether it was lost with another host."""

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process was seen dead. By descriptor, so no other process can be hit."""
        if self.pidfd < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            if hasattr(signal, "pidfd_send_signal"):
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.process.pid, number)
