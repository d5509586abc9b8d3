"""Signals to workers from outside: at once, or from a thread of its own while the reader waits."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any

from tests.soak.account import Account

KILLS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGTERM)

Steps = Sequence[tuple[float, signal.Signals]]
"""Seconds to wait and the signal to send then, in order, all to one worker."""


class Assailant:
    """Strikes at the workers of one scenario and counts in the account what hit a living process.

    ``strike`` and ``later`` are called by the thread that plays. Workers are given as handles, not as an iterator: the thread
    here must never be the last one to hold an iterator, which would then be closed on it.
    """

    def __init__(self, account: Account, dice: Random) -> None:
        self._account = account
        self._dice = dice
        self._orders: SimpleQueue[tuple[list[int], Steps] | None] = SimpleQueue()
        self._hurry = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="assailant")
        self._thread.start()

    def strike(self, workers: Sequence[Any], number: signal.Signals) -> bool:
        """Signal one living worker now; whether there was one."""
        with self._target(_pids(workers)) as fd:
            return fd is not None and self._send(fd, number)

    def later(self, workers: Sequence[Any], steps: Steps) -> bool:
        """Have the thread take these steps, unless it is still busy with others."""
        if not self._idle.is_set():
            return False
        self._idle.clear()
        self._orders.put((_pids(workers), steps))
        return True

    def close(self) -> None:
        """Take the steps that are left without further delay, and end the thread."""
        self._hurry.set()
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            pids, steps = order
            with contextlib.ExitStack() as opened:
                fd: int | None = None
                for number, (delay_s, signal_number) in enumerate(steps):
                    self._hurry.wait(delay_s)
                    if number == 0:
                        fd = opened.enter_context(self._target(pids))
                    if fd is not None:
                        self._send(fd, signal_number)
            self._idle.set()

    @contextlib.contextmanager
    def _target(self, pids: list[int]) -> Iterator[int | None]:
        """A descriptor of one of these processes that is alive and our own; pids may have gone to strangers by now."""
        for pid in self._dice.sample(pids, len(pids)):
            try:
                fd = os.pidfd_open(pid)
            except OSError:
                continue
            try:
                if _is_our_worker(pid):
                    yield fd
                    return
            finally:
                os.close(fd)
        yield None

    def _send(self, fd: int, number: signal.Signals) -> bool:
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        if number is not signal.SIGCONT:  # the end of a stop is no fault of its own
            self._account.faults[number.name] += 1
        return True


def _pids(workers: Sequence[Any]) -> list[int]:
    return [worker.pid for worker in workers if worker.pid is not None]


def _is_our_worker(pid: int) -> bool:
    """Whether this is a living child of ours or of our fork server."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    server: Any = forkserver._forkserver
    return state not in "ZX" and int(parent) in (os.getpid(), server._forkserver_pid)
