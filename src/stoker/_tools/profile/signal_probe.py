"""Tells a signal that was sent to one process from one that was sent to many.

Whoever ends a job sends its signal to a process, to a process group (torchrun, shells) or to all processes of a job (Slurm,
systemd). A supervisor has to pass it on in the first case only: in the others the script has got it already, and would see it
twice. The kernel does not say which it was. A probe is a process that does nothing in the same group: if the signal is
pending there as well, it went to many.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from stoker._tools.sandbox.child import forked

_GRACE_S = 0.02
"""How long somebody who signals processes one by one may take from the supervisor to the probe."""


class SignalProbe:
    """The process. Owner: the supervisor, with the signals in question blocked; a process without other threads."""

    def __init__(self) -> None:
        self._pid = self._start()

    def received(self, number: int) -> bool:
        """Whether a signal that has just come here was sent to others as well. If so it is forgotten, here and there."""
        time.sleep(_GRACE_S)
        if not self._pending() >> (number - 1) & 1:
            return False
        self.close()
        self._pid = self._start()
        while signal.sigtimedwait({number}, 0) is not None:
            pass
        return True

    def close(self) -> None:
        """End it."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _start(self) -> int:
        """Its pid; 0: there can be none, and signals count as sent to one process."""
        try:
            pid = forked()
        except OSError:
            return 0
        if pid == 0:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
                os.closerange(0, os.sysconf("SC_OPEN_MAX"))
                while True:
                    time.sleep(3600)
            finally:
                os._exit(0)
        return pid

    def _pending(self) -> int:
        """Signals that wait for the probe, as a mask; 0 where /proc does not tell."""
        try:
            lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))
