"""Worker memory: read for the parent, cached for a while, and trimmed on request."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stoker._host.process_memory import Footprint
from stoker._runtime.executors.process import worker_memory
from stoker._runtime.executors.process.channels import TaskChannel
from stoker._runtime.protocol import wire
from stoker._runtime.protocol.status_page import PRIVATE_BYTES, PROCESS_CPU_NS, THREADS, TRIM, StatusPage
from stoker._runtime.worker import memory_probe
from stoker._runtime.worker.memory_probe import MemoryProbe


@pytest.fixture
def page() -> Any:
    page = StatusPage.create()
    yield page
    page.close()


def handle(pid: int) -> Any:
    return SimpleNamespace(process=SimpleNamespace(pid=pid))


def test_a_reading_is_given_out_again_for_a_while(page: StatusPage, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    readings: list[int] = []

    def footprint(pid: int) -> Footprint | None:
        readings.append(pid)
        now[0] += 0.1
        return Footprint(200, 100) if pid == 7 else None

    monkeypatch.setattr(worker_memory, "footprint", footprint)
    page.row(0)[PRIVATE_BYTES] = 40
    page.row(1)[PRIVATE_BYTES] = -1
    reader = worker_memory.MemoryReader(lambda: now[0])
    handles = {1: handle(8), 0: handle(7)}
    first = reader.read(page, handles)
    assert [tuple(weight) for weight in first] == [
        (0, 7, 200, 100, 40, None, None),
        (1, 8, None, None, None, None, None),
    ]
    now[0] += 9.9
    assert reader.read(page, handles) == first
    assert readings == [7, 8], "it took 0.2 s: that is enough for 10 s"
    now[0] += 0.2
    reader.read(page, handles)
    assert readings == [7, 8, 7, 8]
    reader.read(page, {0: handle(7)})
    assert readings[4:] == [7], "other workers are read at once"
    reader.forget()
    reader.read(page, {0: handle(7)})
    assert readings[5:] == [7]


def test_threads_and_their_cpu_time_are_read_without_sizes(
    page: StatusPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_memory, "footprint", lambda pid: pytest.fail("nobody asked for sizes"))
    page.row(0)[THREADS], page.row(0)[PROCESS_CPU_NS] = 5, 700
    found = worker_memory.MemoryReader().read(page, {0: handle(7), 1: handle(8)}, sizes=False)
    assert [(weight.worker, weight.pid, weight.threads, weight.cpu_ns) for weight in found] == [
        (0, 7, 5, 700),
        (1, 8, None, None),
    ]


def test_an_order_is_a_number_and_a_wake_up_for_each(page: StatusPage) -> None:
    channel = TaskChannel()
    try:
        worker_memory.order_trim(page, 3, [channel, channel])
        assert page.control[TRIM] == 3
        kinds = [wire.TaskHeader._make(wire.unpack_task(message)).kind for message in channel.take_back()]
        assert kinds == [wire.TaskKind.LOOK] * 2
        channel.backlog.append(b"unread")
        worker_memory.order_trim(page, 4, [channel, channel])
        assert channel.take_back() == [b"unread"], "whoever reads that looks at the page afterwards"
    finally:
        channel.close()


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_a_worker_measures_itself_when_there_is_no_work(
    page: StatusPage, channel: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = channel
    row = page.row(0)
    probe = MemoryProbe(row, theirs)
    for number in range(9):
        ours.send(b"%d" % number)
    assert [probe.recv(9) for _ in range(9)] == [b"%d" % number for number in range(9)]
    assert not probe.settled, "there was work"

    def too_late(patience_ms: int) -> bool:
        ours.send(b"later")
        return False

    monkeypatch.setattr(probe, "_awaited", too_late)
    assert probe.recv(9) == b"later"
    assert probe.settled
    row[PRIVATE_BYTES] = 1
    ours.send(b"6")
    assert probe.recv(9) == b"6"
    assert row[PRIVATE_BYTES] == 1, "once"
    probe.close()
    del row


def test_a_worker_that_is_never_idle_measures_itself_in_the_end(
    page: StatusPage, channel: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = channel
    monkeypatch.setattr(memory_probe, "_DUE_NS", 0)
    row = page.row(0)
    probe = MemoryProbe(row, theirs)
    for message in (b"1", b"2"):
        ours.send(message)
    assert probe.recv(9) == b"1"
    assert not probe.settled, "not before the first task"
    assert probe.recv(9) == b"2"
    assert probe.settled
    probe.close()
    del row


def test_a_worker_learns_of_its_end_while_it_waits_to_measure_itself(
    page: StatusPage, channel: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = channel
    row = page.row(0)
    probe = MemoryProbe(row, theirs)
    ours.send(b"1")
    assert probe.recv(9) == b"1"
    ours.shutdown(socket.SHUT_WR)
    assert probe.recv(9) == b""
    assert not probe.settled, "nobody reads it any more"
    probe.close()
    del row


def test_what_a_worker_has_for_itself_is_this_process(page: StatusPage) -> None:
    [weight] = worker_memory.MemoryReader().read(page, {0: handle(os.getpid())})
    assert weight.pss_bytes is not None
    assert weight.private_bytes is not None
    assert weight.baseline_bytes is None
