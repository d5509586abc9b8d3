"""The pool's channels as the bridge uses them: tasks come from there; results of remote workers go to where those of local ones do.

The bridge is the owner of both classes, and the only writer of what remote workers have made.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import Any

from stoker._pickling.segment import write_at
from stoker._runtime.executors.ray.remotes import Flight, Wiring
from stoker._runtime.protocol import status_page, wire

_NO_SPANS = (0,) * 8 + (-1, 0)
_AT = wire.ResultHeader._fields.index
_DISPATCHED, _RECEIVED, _SENT = _AT("dispatched_ns"), _AT("received_ns"), _AT("sent_ns")
_TIMES = (_RECEIVED, _AT("fetched_ns"), _AT("collated_ns"), _SENT)


def moved(header: bytes, dispatched_ns: int, sent_ns: int, now_ns: int) -> bytes:
    """Move the times of another host to this host's clock. The way there is taken to be as long as the way back.

    The header stays packed, because this is on the way of every batch.
    """
    fields = list(wire.RESULT.unpack(header))
    fields[_DISPATCHED] = dispatched_ns
    made_ns, received_ns = fields[_SENT], fields[_RECEIVED]
    if made_ns:
        away_ns = max(0, (now_ns - sent_ns) - (made_ns - received_ns))
        shift_ns = sent_ns + away_ns // 2 - received_ns
        for at in _TIMES:
            if fields[at]:
                fields[at] += shift_ns
    return wire.pack_result(*fields)


class TaskReader:
    """Takes tasks from the channels of the pool. Used on the bridge's thread."""

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self.listening: set[int] = set()
        self._readers: dict[int, socket.socket] = {}
        """Views of the executor's descriptors: never closed here."""

    def receive(self, fd: int) -> bytes | None:
        """Take a message from a channel; None if there is none, empty if the channel is closed."""
        reader = self._readers.get(fd)
        if reader is None:
            reader = self._readers[fd] = socket.socket(fileno=fd)
        try:
            return reader.recv(wire.MAX_TASK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def listen(self, wanted: set[int]) -> None:
        """Let the poll return when one of these channels has a task, and none other."""
        for fd in self.listening - wanted:
            with contextlib.suppress(OSError):
                self._poll.unregister(fd)
        for fd in wanted - self.listening:
            self._poll.register(fd, select.EPOLLIN)
        self.listening = wanted

    def close(self) -> None:
        """Give up the views."""
        for reader in self._readers.values():
            reader.detach()


class ResultWriter:
    """Writes what remote workers have made. Used on the bridge's thread."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    def write(self, made: Any, flight: Flight, sent_ns: int, now_ns: int) -> None:
        """Copy a result into its slots and send its header. ``sent_ns`` is when the task was sent to the worker."""
        wiring, task = self._wiring, flight.task
        for (which, offset), array in zip(made.places, made.arrays, strict=True):
            index = task.scratch if which else task.slot
            write_at(wiring.arena_fd, array, index * wiring.stride + offset)
        os.write(wiring.result_fd, moved(made.header, task.sent_ns, sent_ns, now_ns))

    def pass_notes(self, notes: list[bytes]) -> None:
        """Give log records and prints of a remote worker to the channel that local workers use."""
        if notes:
            with socket.socket(fileno=os.dup(self._wiring.note_fd)) as line, contextlib.suppress(OSError):
                for note in notes:
                    line.send(note, socket.MSG_DONTWAIT)
            self._wiring.page.control[status_page.NOTES] = 1

    def send(self, kind: wire.ResultKind, worker: int, task: wire.TaskHeader | None = None) -> None:
        """Send a header without a batch."""
        at = (0, 0, 0, 0) if task is None else (task.epoch, task.seq, task.attempt, task.part)
        slots = (wire.NO_SLOT, 0, wire.NO_SLOT, 0)
        if task is not None:
            slots = (task.slot, task.slot_generation, task.scratch, task.scratch_generation)
        header = wire.pack_result(wire.VERSION, kind, 0, worker, *at, *slots, 0, 0, 0, 0, *_NO_SPANS)
        os.write(self._wiring.result_fd, header)
