"""Tells a signal that was sent to one process from one that was sent to many.

Whoever ends a job sends its signal to a process, to a process group (torchrun, shells) or to all processes of a job (Slurm,
systemd). A supervisor has to pass it on in the first case only: in the others the script has got it already, and would see it
twice. The kernel does not say which it was. A probe is a process in the same group that blocks every signal: if the signal is
pending there as well, it went to many.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

from stoker._tools.sandbox.child import forked

_GRACE_S = 0.02
"""How long somebody who signals processes one by one may take from the supervisor to the probe."""

_ANSWER_S = 5.0
"""How long the probe may take to forget a signal. It does nothing else."""


class SignalProbe:
    """The process. Owner: the supervisor, with the signals in question blocked; a process without other threads."""

    def __init__(self) -> None:
        self._pid, self._line = self._start()

    def received(self, number: int) -> bool:
        """Whether a signal that has just come here was sent to others as well. If so it is forgotten, here and there.

        Other signals stay pending: they may have come to the group in the meantime, and are asked for next.
        """
        time.sleep(_GRACE_S)
        if not self._pending() >> (number - 1) & 1:
            return False
        try:
            self._line.sendall(bytes([number]))
            self._line.recv(1)
        except OSError:  # it was killed or stopped: begin anew
            self.close()
            self._pid, self._line = self._start()
        _forget(number)
        return True

    def close(self) -> None:
        """End it."""
        self._line.close()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _start(self) -> tuple[int, socket.socket]:
        """Its pid and our end of the line to it. Pid 0: there can be none, and signals count as sent to one process."""
        ours, theirs = socket.socketpair()
        ours.settimeout(_ANSWER_S)
        with theirs:
            try:
                pid = forked()
            except OSError:
                return 0, ours
            if pid == 0:
                try:
                    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
                    os.dup2(theirs.fileno(), 0)
                    os.closerange(1, os.sysconf("SC_OPEN_MAX"))
                    while number := os.read(0, 1):
                        _forget(number[0])
                        os.write(0, number)
                finally:
                    os._exit(0)
        return pid, ours

    def _pending(self) -> int:
        """Signals that wait for the probe, as a mask; 0 where /proc does not tell."""
        try:
            lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))


def _forget(number: int) -> None:
    """Take a signal that is pending in this process, as often as it is."""
    while signal.sigtimedwait({number}, 0) is not None:
        pass
