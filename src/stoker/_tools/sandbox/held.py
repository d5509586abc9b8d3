"""Sandboxes that a running script forks of itself, and that wait for a doctor until the script has ended.

The script runs once. What it has built, a loader with its dataset, is in the fork as it was at that moment: no module is
imported again and no line of the script runs twice.

    script ── fork ─► sandbox, which waits        script ── its descriptors ─► socket ─► HeldSandboxes.take()

The script does not wait for the other side: the message lies in the socket until it is taken. A sandbox that nobody took ends
when the socket is closed, or its owner dies.
"""

from __future__ import annotations

import os
import socket
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from stoker._tools.sandbox import progress_page, server
from stoker._tools.sandbox.subject import Subject

SOCKET = "STOKER_ADVISE"
"""Environment of the script: the socket that sandboxes are sent to."""
_MESSAGE_BYTES = 1 << 18
_MOST = 8
_PID_BYTES = 32


@dataclass(frozen=True, slots=True)
class HeldSandbox:
    """One that waits, until a ``SandboxClient`` takes its descriptors. Close it.

    ``process`` is the fact about the script's process before the fork. ``refusal``: why there is no sandbox, in words; "" if there
    is one.
    """

    name: str
    process: Any
    refusal: str
    pid: int
    _descriptors: list[int]
    """Control socket, lifeline, progress page, output; nothing when they were taken."""

    def take(self) -> tuple[int, int, int, int]:
        """The descriptors, which are the caller's from now on. Once."""
        control, lifeline, page, output = self._descriptors
        self._descriptors.clear()
        return control, lifeline, page, output

    def close(self) -> None:
        """Let it end, if nobody took it. Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.pop())


class HeldSandboxes:
    """The side that takes them: a socket in a folder of one's own. Close it."""

    def __init__(self, at: Path) -> None:
        """Raises OSError where no socket can be made."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with _short(at) as path:
                self._socket.bind(path)
            self._socket.listen(_MOST)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def take(self) -> list[HeldSandbox]:
        """Return the sandboxes that were sent until now, in order."""
        found: list[HeldSandbox] = []
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return found
            with connection, suppress(OSError, ValueError):
                connection.setblocking(False)
                message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 4)
                name, process, refusal, pid = server.unpacked(message)
                found.append(HeldSandbox(name, process, refusal, pid, descriptors))

    def close(self) -> None:
        """Sandboxes that were not taken end."""
        self._socket.close()


def refuse(name: str, reason: str, at: Path) -> None:
    """In the script: say why there is no sandbox of this loader."""
    _send(server.packed((name, None, reason, 0)), (), at)


def hold(subject: Subject, process: Any, at: Path, in_fork: Callable[[], None]) -> None:
    """In the script: fork a sandbox that has this subject, and send it. ``in_fork`` is called there first.

    It takes as long as two forks of this process. Raises OSError. The fork is no child of the script's for long: the script may
    wait for all of its children.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    life, held = socket.socketpair()
    out_r, out_w = os.pipe()
    page = progress_page.make()
    wires = server.SandboxPipes(theirs.fileno(), held.fileno(), page, out_w)
    try:
        pid = _forked(wires, subject, in_fork)
        _send(
            server.packed((subject.name, process, "", pid)), (ours.fileno(), life.fileno(), page, out_r), at
        )
    finally:
        for each in (ours, theirs, life, held):
            each.close()
        for descriptor in (out_r, out_w, page):
            os.close(descriptor)


def _send(message: bytes, descriptors: tuple[int, ...], at: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, _short(at) as path:
        connection.setblocking(False)
        connection.connect(path)
        socket.send_fds(connection, [message], descriptors)


@contextmanager
def _short(at: Path) -> Iterator[str]:
    """A path to the socket that is short enough for one, however long that of its folder is."""
    folder = os.open(at.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{at.name}"
    finally:
        os.close(folder)


def _forked(wires: server.SandboxPipes, subject: Subject, in_fork: Callable[[], None]) -> int:
    """The process id of the sandbox, which is a grandchild whose parent has ended."""
    told_r, told_w = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of forks in processes with threads: the doctor's limits are there for it
            child = os.fork()
            if child == 0:
                try:
                    pid = os.fork()
                    if pid:
                        os.write(told_w, b"%d" % pid)
                    else:
                        _serve(wires, subject, in_fork)
                finally:
                    os._exit(0)
        os.close(told_w)
        told_w = -1
        told = os.read(told_r, _PID_BYTES)
        with suppress(ChildProcessError):  # the script ignores SIGCHLD
            os.waitpid(child, 0)
        if not told:
            raise OSError("the process could not be forked")
        return int(told)
    finally:
        for each in (told_r, told_w):
            if each >= 0:
                os.close(each)


def _serve(wires: server.SandboxPipes, subject: Subject, in_fork: Callable[[], None]) -> None:
    _let_go(set(wires))
    in_fork()
    server.run(wires, subject)


def _let_go(kept: set[int]) -> None:
    """Give up the script's pipes and sockets, at whose other ends somebody may wait until all have closed them.

    The numbers stay taken: objects that own one will close it some day. Servers of multiprocessing are reached through such
    pipes, so a probe that needs one starts its own.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with suppress(OSError):
            mode = os.fstat(descriptor).st_mode
            if descriptor > 2 and descriptor not in kept and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
                os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
    server_of_forks: Any = getattr(forkserver, "_forkserver", None)
    if server_of_forks is not None:
        vars(server_of_forks).update(
            _forkserver_address=None, _forkserver_alive_fd=None, _forkserver_pid=None
        )
