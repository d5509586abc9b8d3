"""Channels: nothing is lost or reordered when the socket is full, and both ends can be told that it is over."""

from __future__ import annotations

import os
import select
import socket
import warnings
from collections.abc import Iterator

import pytest

from stoker._runtime.executors.process import channels
from stoker._runtime.executors.process.channels import ResultPipe, TaskChannel, note_sockets
from stoker._runtime.protocol import parent_descriptors


@pytest.fixture
def channel() -> Iterator[TaskChannel]:
    channel = TaskChannel()
    yield channel
    channel.close()


def receive(channel: TaskChannel) -> bytes:
    """As a worker reads, without waiting."""
    with socket.socket(fileno=os.dup(channel.worker_fd)) as reader:
        return reader.recv(1 << 18, socket.MSG_DONTWAIT)


def fill(channel: TaskChannel) -> list[bytes]:
    """Send until some of it stays behind; returns all that was sent."""
    sent: list[bytes] = []
    while len(channel.backlog) < 5:
        sent.append(b"task %d" % len(sent))
        channel.send(sent[-1])
    return sent


def test_messages_keep_their_order_and_boundaries(channel: TaskChannel) -> None:
    for message in (b"a", b"bb" * 5000, b"c"):
        channel.send(message)
    assert [receive(channel) for _ in range(3)] == [b"a", b"bb" * 5000, b"c"]
    assert not channel.backlog


def test_a_full_socket_blocks_nobody_and_loses_nothing(channel: TaskChannel) -> None:
    sent = fill(channel)
    got: list[bytes] = []
    while len(got) < len(sent):
        got.append(receive(channel))
        channel.flush()
    assert got == sent
    assert not channel.backlog


def test_a_send_goes_behind_the_backlog_even_when_there_is_room_again(channel: TaskChannel) -> None:
    sent = fill(channel)
    got = [receive(channel) for _ in range(3)]
    channel.send(b"last")
    got += channel.take_back()
    assert got == [*sent, b"last"]


def test_take_back_gives_what_nobody_took_oldest_first(channel: TaskChannel) -> None:
    sent = fill(channel)
    assert receive(channel) == sent[0]
    assert channel.take_back() == sent[1:]
    assert channel.take_back() == []
    channel.send(b"again")
    assert receive(channel) == b"again"


@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_take_back_leaves_the_workers_end_blocking(channel: TaskChannel, timeout_s: float | None) -> None:
    """Blocking or not is a property of what all workers share; the user's default for sockets must not reach it."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)
    try:
        channel.take_back()
    finally:
        socket.setdefaulttimeout(before)
    assert os.get_blocking(channel.worker_fd)


def test_after_hanging_up_workers_read_the_rest_and_then_the_end(channel: TaskChannel) -> None:
    channel.send(b"one")
    channel.hang_up()
    channel.hang_up()
    assert [receive(channel) for _ in range(3)] == [b"one", b"", b""]


def test_take_back_after_hanging_up_ends(channel: TaskChannel) -> None:
    channel.send(b"one")
    channel.hang_up()
    assert channel.take_back() == [b"one"]


def test_sending_to_nobody_is_silent(channel: TaskChannel) -> None:
    os.close(channel.worker_fd)
    channel.worker_fd = -1
    channel.send(b"one")
    channel.send(b"two")
    assert list(channel.backlog) == [b"one", b"two"]


def test_the_parents_end_is_private_until_it_is_closed() -> None:
    before = set(parent_descriptors._private)
    channel = TaskChannel()
    [mine] = parent_descriptors._private - before
    assert not os.get_blocking(mine)
    assert mine != channel.worker_fd
    channel.close()
    channel.close()
    assert parent_descriptors._private == before


def test_results_are_read_without_waiting() -> None:
    pipe = ResultPipe()
    assert pipe.read() == b""
    os.write(pipe.write_fd, b"abc")
    os.write(pipe.write_fd, b"def")
    assert pipe.read() == b"abcdef"
    assert pipe.read() == b""
    pipe.close()
    pipe.close()


def test_the_end_of_a_lifeline_is_seen_at_the_other_end() -> None:
    parent_fd, worker_fd = channels.lifeline()
    assert select.select([worker_fd], [], [], 0)[0] == []
    parent_descriptors.close_private(parent_fd)
    assert select.select([worker_fd], [], [], 0)[0] == [worker_fd]
    os.close(worker_fd)


def test_notes_keep_their_boundaries() -> None:
    parent, worker_fd = channels.note_sockets()
    with parent, socket.socket(fileno=worker_fd) as worker:
        worker.send(b"one")
        worker.send(b"two")
        assert [parent.recv(100), parent.recv(100)] == [b"one", b"two"]


def test_a_socket_for_notes_that_is_collected_before_its_pool_says_nothing() -> None:
    parent, worker_fd = note_sockets()
    fd = parent.fileno()
    os.close(worker_fd)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del parent
    assert not warned
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
