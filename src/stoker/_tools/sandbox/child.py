"""Runs functions in forked children, under a deadline. Each child answers once and ends.

    caller ── fork ──► child 0: function() ──► pickled answer ──► pipe ─┐
           └─ fork ──► child 1: ...                                    ─┴─► list of answers

Children leave nothing behind. A child that does not answer in time is killed, and every child dies with its caller.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import selectors
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

LENGTH = struct.Struct("<Q")
"""Stands before a message. The end of a pipe or socket is no sign: a process that user code started may hold it open."""
_CHUNK_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Stands for the answer of a child that gave none: it took too long, raised, or died."""

    reason: str
    raised: bool = False
    exit_code: int | None = field(default=None, compare=False)
    """Of a child that died; None where the system does not tell."""


def forked() -> int:
    """``os.fork``, with a child that is killed when its parent ends, also after an exec."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forks beside threads: the deadline is there for them
        pid = os.fork()
    if pid == 0:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it has ended in between
            os._exit(127)
    return pid


def run(
    functions: Sequence[Callable[[], Any]], within_s: float | None = None, *, quiet: bool = False
) -> list[Any]:
    """What each function returns in a fork of its own, all at the same time; ``NoAnswer`` where there is none.

    Called on the main thread of a process that may fork. ``quiet`` drops what the functions print.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    children: list[_Child] = []
    try:
        for each in functions:
            children.append(_Child(each, quiet))  # noqa: PERF401 - a failed fork must leave the earlier ones here
        _collect(children, None if within_s is None else monotonic() + within_s)
        late = NoAnswer("" if within_s is None else f"no answer within {within_s:.3g} s")
        return [each.answer[0] if each.answer else late for each in children]
    finally:
        for child in children:
            child.end()


def complete(received: bytes | bytearray) -> bool:
    """Whether a message is there as a whole, its length before it."""
    size = LENGTH.size
    return len(received) >= size and len(received) - size >= LENGTH.unpack_from(received)[0]


class _Child:
    """A forked child, seen from its parent."""

    def __init__(self, function: Callable[[], Any], quiet: bool) -> None:
        self.pipe, theirs = os.pipe()
        try:
            self._pid = forked()
            if self._pid == 0:
                _answer(function, theirs, quiet)
            self.process = _pidfd(self._pid)
        except OSError:
            os.close(self.pipe)
            raise
        finally:
            os.close(theirs)
        self.answer: list[Any] = []
        """One item once it is known."""
        self._received = bytearray()

    def read(self) -> bool:
        """Take what is in the pipe; False at its end."""
        part = os.read(self.pipe, _CHUNK_BYTES)
        self._received += part
        if complete(self._received):
            self.answer.append(pickle.loads(self._received[LENGTH.size :]))
        return bool(part)

    def lost(self) -> None:
        """Note that it has died without an answer."""
        self.answer.append(NoAnswer("its process died", exit_code=self._reap()))

    def end(self) -> None:
        """Kill it if it still runs."""
        os.close(self.pipe)
        if self.process is not None:
            os.close(self.process)
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> int | None:
        pid, self._pid = self._pid, 0
        try:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # the target may have SIGCHLD ignored: nobody learns how children end
            return None


def _pidfd(pid: int) -> int | None:
    """None when the child has ended and nothing is left of it: the target may have SIGCHLD ignored."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _collect(children: Sequence[_Child], deadline: float | None) -> None:
    with selectors.DefaultSelector() as selector:
        for each in children:
            selector.register(each.pipe, selectors.EVENT_READ)
            if each.process is not None:
                selector.register(each.process, selectors.EVENT_READ)
        while selector.get_map():
            left_s = None if deadline is None else deadline - monotonic()
            if left_s is not None and left_s <= 0:
                return
            ready = {key.fd for key, _ in selector.select(left_s)}
            for child in children:
                if child.answer:
                    continue
                if child.pipe in ready:
                    if not child.read():
                        selector.unregister(child.pipe)
                        if child.process is None:
                            child.lost()
                elif child.process in ready:
                    child.lost()
                if child.answer:
                    for fd in (child.pipe, child.process):
                        if fd is not None and fd in selector.get_map():
                            selector.unregister(fd)


def _answer(function: Callable[[], Any], pipe: int, quiet: bool) -> None:
    """Runs in the child, and never returns."""
    try:
        if quiet:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nowhere, descriptor)
        try:
            packed = pickle.dumps(function())
        except BaseException as error:
            from stoker._tools.sandbox.target import text_of

            packed = pickle.dumps(NoAnswer(f"{type(error).__name__}: {text_of(error)}", raised=True))
        with os.fdopen(pipe, "wb") as file:
            file.write(LENGTH.pack(len(packed)) + packed)
    finally:
        os._exit(0)
