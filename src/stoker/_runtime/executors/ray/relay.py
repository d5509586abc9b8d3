"""The Ray actor of one remote worker: relays tasks to a worker process beside it, and results back.

    trainer ── make(task) ──► relay ── message socket ──► worker process (forked by the node's host)
    trainer ◄── plasma object: header, bytes of the slot ── relay ◄── result pipe, shared slots ── worker

The dataset's code runs in the worker process alone: in its main thread, without Ray. So a crash is reported with its cause and
stack, a hang can be looked at from the relay's other threads, and the relay needs no torch. Threads: one runs ``make``, one
``watch``, one ``look`` and the like (Ray's concurrency groups).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import threading
import time
from typing import Any, NamedTuple

import ray

from stoker import __version__
from stoker._pickling.segment import write_at
from stoker._runtime.executors.ray import node_host
from stoker._runtime.executors.ray.local_slots import LocalSlots
from stoker._runtime.protocol import status_page, wire

_SLOT_BITS = 32
_FINAL = frozenset(
    {wire.ResultKind.READY, wire.ResultKind.FAILED, wire.ResultKind.ENDED, wire.ResultKind.SKIPPED}
)
_STATUS_S = 1.0
"""How long to wait for the exit status of a worker that has ended."""

_TAKEN_S, _PAUSE_S = 30.0, 0.01
"""How long a name may be taken with nobody listening, and the pause between two looks. The trainer's host unpacks meanwhile."""

GROUPS = {"make": 1, "watch": 1, "look": 1}
"""Threads of the actor by concurrency group."""


class Started(NamedTuple):
    """What a relay reports when its worker is up."""

    pid: int
    node: str
    host: str
    version: str


class RelayedBatch(NamedTuple):
    """A result: the header, where each array belongs (0: slot, 1: scratch; offset), the arrays, and notes of the worker.

    ``header`` is empty if the worker died.
    """

    header: bytes
    places: list[tuple[int, int]]
    arrays: list[Any]
    notes: list[bytes]


class Ended(NamedTuple):
    """How a worker process ended; the fields are those of ``WorkerLost``."""

    reason: str
    started: bool
    row: int
    details: str
    collating: bool


class Looked(NamedTuple):
    """What a worker does: the words of its row on the status page, and for how long."""

    pid: int
    epoch: int
    seq: int
    part: int
    row: int
    phase: int
    since_ns: int


class EndedProcess:
    """The attributes of a process object that a crash report reads."""

    _popen = None

    def __init__(self, pid: int, exitcode: int | None) -> None:
        self.pid = pid
        self.exitcode = exitcode

    def join(self, timeout: float | None = None) -> None:
        """Do nothing: it has ended."""


class Relay:
    """One remote worker. Made and called by the trainer's bridge."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._slots = LocalSlots()
        self._page = status_page.StatusPage.create()
        self._control = self._page.control
        self._row = self._page.row(worker)
        self._held: set[int] = set()
        self._started = False
        self._pid = 0
        self._pidfd = self._lifeline_fd = self._task_fd = self._result_fd = -1
        self._line: socket.socket | None = None
        self._notes, self._note_fd = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._notes.setblocking(False)
        self._leaving = threading.Event()

    @ray.method(concurrency_group="make")  # type: ignore[untyped-decorator]
    def start(self, pool: str, spec: list[Any], boot: bytes, revision: tuple[int, bytes] | None) -> Started:
        """Fork the worker from the host of this node. Starts the host, and fetches the dataset for it, if there is none.

        ``spec`` holds object references: the packed dataset and the segments that go with it.
        """
        context = ray.get_runtime_context()
        node = context.get_node_id()
        self._revise(revision)
        self._line = self._connect(pool, node, spec)
        self._fork(boot)
        self._await_up()
        return Started(self._pid, node, socket.gethostname(), __version__)

    @ray.method(concurrency_group="make")  # type: ignore[untyped-decorator]
    def make(
        self,
        message: bytes,
        payload: bytes | None,
        epoch: int,
        layout: int,
        revision: tuple[int, bytes] | None,
    ) -> RelayedBatch:
        """Have the worker carry out a task. Blocks until it is done or the worker is dead."""
        control = self._control
        control[status_page.EPOCH] = epoch
        control[status_page.LAYOUT] = layout
        self._revise(revision)
        task = wire.TaskHeader._make(wire.unpack_task(message))
        slot = next(index for index in range(0, 1 << 16, 2) if not {index, index + 1} & self._held)
        split = task.scratch != wire.NO_SLOT
        self._slots.prepare(slot + 1)
        local = task._replace(slot=slot, scratch=slot + 1 if split else wire.NO_SLOT)
        if payload is not None:
            self._slots.put(slot + 1 if split else slot, payload)
        os.write(self._task_fd, wire.pack_task(*local) + message[wire.TASK.size :])
        header = self._await_result()
        notes = self._drain_notes()
        if header is None:
            return RelayedBatch(b"", [], [], notes)
        if header.flags & wire.HELD_SLOT:
            self._held.add(slot)
        if header.flags & wire.HELD_SCRATCH:
            self._held.add(slot + 1)
        places, arrays = self._collected(header, slot, split)
        named = header._replace(slot=task.slot, scratch=task.scratch, flags=0)
        return RelayedBatch(wire.pack_result(*named), places, arrays, notes)

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def watch(self) -> Ended:
        """Block until the worker process has ended. Say how."""
        watcher = select.poll()
        watcher.register(self._pidfd, select.POLLIN)
        watcher.poll()
        code = self._exit_code()
        return self._describe(code)

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    def look(self) -> Looked:
        """Say what the worker does."""
        row = self._row
        pid, epoch, seq, _, part, place = row[status_page.PID : status_page.ROW + 1].tolist()
        since_ns = time.monotonic_ns() - row[status_page.SINCE_NS]
        return Looked(pid, epoch, seq, part, place, row[status_page.PHASE], since_ns)

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    def stack(self) -> list[str]:
        """Return the worker's Python stack, or the reason why there is none."""
        from stoker._runtime.executors.process import crash_report

        if not self._row[status_page.ARMED]:
            return []
        frames = crash_report.stack_of(self._pidfd, self._page.fd, self._worker)
        return frames or [f"(no stack: {crash_report.state_of(self._pid) or 'it does not answer'})"]

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that counts: work on another one stops after the current sample."""
        self._control[status_page.EPOCH] = epoch

    @ray.method(concurrency_group="look")  # type: ignore[untyped-decorator]
    def kill_worker(self) -> None:
        """End the worker process: it hangs in an epoch that is over."""
        import signal

        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    # Inside

    def _connect(self, pool: str, node: str, spec: list[Any]) -> socket.socket:
        """A connection to the host of this node, which is started if there is none."""
        for name in node_host.addresses(pool, node):
            with contextlib.suppress(PermissionError, TimeoutError, BlockingIOError):
                return self._connect_to(name, spec)
        raise PermissionError(
            "another user of this node has taken the names of the sockets that stoker's workers meet at: end that process"
        )

    def _connect_to(self, name: str, spec: list[Any]) -> socket.socket:
        """The same by its name. Raises PermissionError or TimeoutError if another user has taken it."""
        until_s = time.monotonic() + _TAKEN_S
        while True:
            line = node_host.connect(name)
            if line is not None:
                return line
            listener = node_host.bind(name)
            if listener is None:  # another relay or the trainer has taken the name, and will listen
                if time.monotonic() > until_s:
                    raise TimeoutError(f"nobody listens at {name!r}, and it is taken")
                time.sleep(_PAUSE_S)
                continue
            with listener:
                line = node_host.connect(
                    name
                )  # first: the host ends with its last connection, so with this relay
                fds: list[int] = []
                try:
                    fds.extend(_file_of(ray.get(ref)) for ref in spec)
                    node_host.launch(listener, fds[0], fds[1:])
                    if line is not None:
                        return line
                finally:
                    for fd in fds:
                        os.close(fd)

    def _fork(self, boot: bytes) -> None:
        """Ask the host for a worker with descriptors of our own."""
        assert self._line is not None
        task_ours, task = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline_ours, lifeline = socket.socketpair()
        result_ours, result = os.pipe()
        boot_fd = os.memfd_create("stoker-ray-boot", os.MFD_CLOEXEC)
        try:
            rest = {
                **pickle.loads(boot), "stride": self._slots.stride, "reserve": False, "environment": dict(os.environ),
                "folder": os.getcwd(),
            }  # fmt: skip
            write_at(boot_fd, pickle.dumps(rest, 5), 0)
            fds = (
                boot_fd, task.fileno(), result, lifeline.fileno(), self._note_fd.fileno(), self._slots.fd, self._page.fd,
            )  # fmt: skip
            socket.send_fds(self._line, [b"+"], fds)
            answer = self._line.recv(node_host.ANSWER.size)
        finally:
            for fd in (boot_fd, result):
                os.close(fd)
            task.close()
            lifeline.close()
        self._task_fd, self._result_fd = task_ours.detach(), result_ours
        self._lifeline_fd = lifeline_ours.detach()
        if not answer:
            raise RuntimeError(
                "the process that unpacks the dataset on this node has ended: see the logs of this Ray actor"
            )
        pid, _ = node_host.ANSWER.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)

    def _await_up(self) -> None:
        """Wait until the worker has reported, or is dead: ``watch`` then says how."""
        header = self._next_header()
        self._started = header is not None

    def _await_result(self) -> wire.ResultHeader | None:
        while (header := self._next_header()) is not None:
            if header.kind == wire.ResultKind.UNHELD:
                self._held.discard(header.slot)
            elif header.kind in _FINAL:
                return header
        return None

    def _next_header(self) -> wire.ResultHeader | None:
        """Wait for the next header; None when the worker is dead and has sent all."""
        watcher = select.poll()
        watcher.register(self._result_fd, select.POLLIN)
        watcher.poll()  # the end of the pipe, too: only the worker has its other end
        data = os.read(self._result_fd, wire.RESULT.size)
        return wire.ResultHeader._make(wire.RESULT.unpack(data)) if data else None

    def _collected(
        self, header: wire.ResultHeader, slot: int, split: bool
    ) -> tuple[list[tuple[int, int]], list[Any]]:
        """Return the bytes of a result and their places in the trainer's slots."""
        if not header.nbytes:
            return [], []
        if not split:
            return [(0, 0)], [self._slots.view(slot, 0, header.nbytes)]
        places = [(1, 0)]
        arrays = [self._slots.view(slot + 1, 0, header.nbytes)]
        if header.shared_bytes:
            at = -(-header.nbytes // 8) * 8
            (count,) = wire.COUNT.unpack(self._slots.view(slot + 1, at, wire.COUNT.size))
            regions = self._slots.view(slot + 1, at + wire.COUNT.size, count * wire.REGION.size)
            for offset, nbytes in wire.REGION.iter_unpack(regions):
                places.append((0, offset))
                arrays.append(self._slots.view(slot, offset, nbytes))
        return places, arrays

    def _revise(self, revision: tuple[int, bytes] | None) -> None:
        """Announce changes of the dataset to the worker, as the trainer does to its own (``dataset_sync``)."""
        if revision is not None:
            word, payload = revision
            # The slot of the trainer, moved behind those in use here: it is a number in a sparse file.
            self._slots.put(_REVISION_SLOT, payload)
            self._control[status_page.REVISION] = word >> _SLOT_BITS << _SLOT_BITS | _REVISION_SLOT

    def _drain_notes(self) -> list[bytes]:
        notes: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(notes) < 100:
                notes.append(self._notes.recv(1 << 16))
        return notes

    def _exit_code(self) -> int | None:
        assert self._line is not None
        watcher = select.poll()
        watcher.register(self._line, select.POLLIN)
        if not watcher.poll(_STATUS_S * 1000):
            return None
        answer = self._line.recv(node_host.ANSWER.size)
        return node_host.ANSWER.unpack(answer)[1] if answer else None

    def _describe(self, code: int | None) -> Ended:
        from stoker._runtime.executors.process import crash_report
        from stoker._runtime.executors.process.worker_handle import WorkerHandle

        handle = WorkerHandle(EndedProcess(self._pid, code), -1, -1)
        handle.started = self._started
        return Ended(
            *crash_report.describe_loss(self._worker, handle, crash_report.OomDetector(), self._page)
        )


_REVISION_SLOT = 1 << 17
"""The slot for changes of the dataset, behind all that tasks use."""


def _file_of(data: Any) -> int:
    """Copy an array from the object store into a file in memory, once per node."""
    fd = os.memfd_create("stoker-ray-spec", os.MFD_CLOEXEC)
    try:
        write_at(fd, data, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd
