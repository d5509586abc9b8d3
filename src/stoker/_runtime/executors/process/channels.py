"""Makes the message channels between the parent and its workers, as plain descriptors.

Socket objects would be unsafe here. A forked child inherits them, and collecting one there would close a number that may belong to
another file by then. The parent's ends are private to it (see ``parent_descriptors``). When descriptors run out, making a channel
raises StartRefused.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Sequence

from stoker._runtime.protocol import parent_descriptors
from stoker._runtime.protocol.wire import FDS_PER_MESSAGE, MAX_TASK_BYTES


class TaskChannel:
    """Carries tasks from the parent to the worker that reads first. Keeps message boundaries; sending never blocks.

    Messages that the kernel does not take wait in ``backlog``, in order.
    """

    def __init__(self) -> None:
        parent, worker = _message_sockets("a task channel")
        parent.setblocking(False)
        worker.setblocking(True)
        self.worker_fd = worker.detach()
        self._parent_fd = parent.detach()
        parent_descriptors.keep_private(self._parent_fd)
        self.backlog: deque[bytes] = deque()

    def send(self, message: bytes) -> None:
        """Send a message after all earlier ones."""
        if self.backlog:
            self.backlog.append(message)
            self.flush()
            return
        try:
            os.write(self._parent_fd, message)
        except OSError:  # full, or closed: ``wait`` reports a dead worker
            self.backlog.append(message)

    def flush(self) -> None:
        """Send as much of the backlog as the kernel takes."""
        while self.backlog:
            try:
                os.write(self._parent_fd, self.backlog[0])
            except OSError:
                return
            self.backlog.popleft()

    def take_back(self) -> list[bytes]:
        """Return all messages that no worker has taken, oldest first."""
        found: list[bytes] = []
        # Not duplicated: closing must work without a free descriptor.
        reader = socket.socket(fileno=self.worker_fd)
        try:
            # A default timeout of the user would make this one wait, and the workers' ends non-blocking.
            reader.setblocking(True)
            while True:
                try:
                    message = reader.recv(MAX_TASK_BYTES, socket.MSG_DONTWAIT)
                except OSError:
                    break
                if not message:  # closed: every further read returns the end
                    break
                found.append(message)
        finally:
            reader.detach()
        found += self.backlog
        self.backlog.clear()
        return found

    def hang_up(self) -> None:
        """Close the parent's end: workers read the remaining messages and then the end. Idempotent."""
        if self._parent_fd >= 0:
            parent_descriptors.close_private(self._parent_fd)
            self._parent_fd = -1

    def close(self) -> None:
        """Close both ends. Idempotent."""
        self.hang_up()
        # The number is forgotten first: after an interrupt nobody may close it again.
        fd, self.worker_fd = self.worker_fd, -1
        if fd >= 0:
            os.close(fd)


class ResultPipe:
    """Carries fixed-size headers from all workers to the parent. A write below PIPE_BUF is whole or absent, even after a kill."""

    def __init__(self) -> None:
        with parent_descriptors.may_run_out("the result pipe"):
            self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        parent_descriptors.keep_private(self.read_fd)

    def read(self) -> bytes:
        """Return what has arrived; empty when nothing has."""
        try:
            return os.read(self.read_fd, 1 << 16)
        except BlockingIOError:
            return b""

    def write(self, header: bytes) -> None:
        """Write a header from this process, if there is room: a full pipe wakes its reader anyway."""
        if select.select([], [self.write_fd], [], 0)[1]:
            os.write(self.write_fd, header)

    def close(self) -> None:
        """Close both ends. Idempotent."""
        # The number is forgotten first: after an interrupt nobody may close it again.
        read_fd, self.read_fd = self.read_fd, -1
        if read_fd >= 0:
            parent_descriptors.close_private(read_fd)
        write_fd, self.write_fd = self.write_fd, -1
        if write_fd >= 0:
            os.close(write_fd)


def lifeline() -> tuple[int, int]:
    """Return (parent's end, worker's end) of a socket that carries no data; closing it is the message."""
    with parent_descriptors.may_run_out("a worker's lifeline"):
        parent, worker = socket.socketpair()
    parent_fd = parent.detach()
    parent_descriptors.keep_private(parent_fd)
    return parent_fd, worker.detach()


def control() -> tuple[int, int]:
    """Return (parent's end, template's end) of the channel for requests to a template and its first answer."""
    parent, other = _message_sockets("a template's channel")
    parent_fd = parent.detach()
    parent_descriptors.keep_private(parent_fd)
    return parent_fd, other.detach()


def fds_socket(fds: Sequence[int]) -> int:
    """Return a socket that brings these descriptors (``spec_fds``). multiprocessing passes at most 256 to a process."""
    ours, theirs = _message_sockets("a parcel of descriptors")
    with ours:
        for at in range(0, len(fds), FDS_PER_MESSAGE):
            socket.send_fds(ours, [b"!"], fds[at : at + FDS_PER_MESSAGE])
    return theirs.detach()


def note_sockets() -> tuple[socket.socket, int]:
    """Return (parent's socket, workers' descriptor) for notes."""
    parent, worker = _message_sockets("the channel for notes")
    return _QuietSocket(fileno=parent.detach()), worker.detach()


class _QuietSocket(socket.socket):
    """A socket that its pool closes, and that never warns when it is collected open.

    When both are collected in one cycle, as with a kept traceback, the order is undefined. A warning would blame the user.
    """

    def __del__(self) -> None:
        self.close()


def _message_sockets(what: str) -> tuple[socket.socket, socket.socket]:
    """Return a connected pair of sockets that keeps message boundaries."""
    kind = socket.SOCK_SEQPACKET if hasattr(socket, "SOCK_SEQPACKET") else socket.SOCK_DGRAM
    with parent_descriptors.may_run_out(what):
        return socket.socketpair(socket.AF_UNIX, kind)
