"""Logging, warnings and prints of a worker, replayed by the parent; here both sides in one process."""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from stoker._runtime.protocol import log_forwarding
from stoker._runtime.protocol.log_forwarding import NoteReader, NoteSender


class Coded(UserWarning):
    """Wants more than a text."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text, code)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    parent, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with parent, worker:
        yield parent, worker


@pytest.fixture
def sender(sockets: tuple[socket.socket, socket.socket]) -> NoteSender:
    return NoteSender(sockets[1], 4)


@pytest.fixture
def reader(sockets: tuple[socket.socket, socket.socket]) -> NoteReader:
    return NoteReader(sockets[0])


class Worker:
    """This process, playing the worker from ``begin`` on; ``end`` makes it the parent again."""

    def __init__(self) -> None:
        loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
        self._loggers = [(one, one.handlers[:], one.propagate, one.level) for one in [logging.root, *loggers]]
        self._show = warnings.showwarning
        self._streams = sys.stdout, sys.stderr

    def begin(self, sender: NoteSender, levels: dict[str, int] | None = None) -> None:
        self._streams = sys.stdout, sys.stderr
        log_forwarding.forward(sender, levels or {})

    def end(self) -> None:
        for logger, handlers, propagate, level in self._loggers:
            logger.handlers[:] = handlers
            logger.propagate = propagate
            logger.setLevel(level)
        warnings.showwarning = self._show
        sys.stdout, sys.stderr = self._streams


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.end()


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("tests.notes")


def test_a_log_record_is_handled_as_if_it_were_made_here(
    worker: Worker,
    sender: NoteSender,
    reader: NoteReader,
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker.begin(sender)
    logger.warning("read %d of %s", 3, "shard", extra={"shard": 7})
    assert not caplog.records
    worker.end()
    reader.drain()
    [record] = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == (
        "tests.notes",
        "WARNING",
        "read 3 of shard",
    )
    assert record.__dict__["shard"] == 7


def test_a_logged_exception_arrives_as_text(
    worker: Worker,
    sender: NoteSender,
    reader: NoteReader,
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker.begin(sender)
    try:
        raise KeyError("gone")
    except KeyError:
        logger.exception("trouble")
    worker.end()
    reader.drain()
    assert "KeyError: 'gone'" in caplog.text


def test_levels_of_the_parent_hold_in_the_worker(
    worker: Worker,
    sender: NoteSender,
    reader: NoteReader,
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    worker.begin(sender, {"": logging.WARNING, "tests.notes": logging.DEBUG})
    logger.debug("kept")
    logging.getLogger("tests.other").info("not wanted")
    worker.end()
    logger.setLevel(logging.DEBUG)
    reader.drain()
    logger.setLevel(logging.NOTSET)
    assert [record.getMessage() for record in caplog.records] == ["kept"]


def test_a_level_raised_in_the_parent_meanwhile_counts(
    worker: Worker,
    sender: NoteSender,
    reader: NoteReader,
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker.begin(sender)
    logger.warning("late")
    worker.end()
    with caplog.at_level(logging.ERROR, logger="tests.notes"):
        reader.drain()
    assert not caplog.records


def test_set_levels_are_listed_by_name(logger: logging.Logger) -> None:
    logger.setLevel(17)
    try:
        levels = log_forwarding.logger_levels()
    finally:
        logger.setLevel(logging.NOTSET)
    assert levels["tests.notes"] == 17
    assert levels[""] == logging.root.level
    assert "tests.notes" not in log_forwarding.logger_levels()


def test_a_warning_is_said_once_not_once_per_worker(
    worker: Worker, sender: NoteSender, reader: NoteReader
) -> None:
    worker.begin(sender)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("slow disk", RuntimeWarning, "data.py", 3)
        warnings.showwarning("slow disk", RuntimeWarning, "data.py", 3)
        warnings.showwarning("slow disk", RuntimeWarning, "data.py", 4)
    worker.end()
    with warnings.catch_warnings(record=True) as warned:
        reader.drain()
    assert [(str(one.message), one.category, one.filename, one.lineno) for one in warned] == [
        ("slow disk", RuntimeWarning, "data.py", 3),
        ("slow disk", RuntimeWarning, "data.py", 4),
    ]
    assert isinstance(warned[0].message, RuntimeWarning)


def test_a_warning_whose_class_wants_more_than_a_text_arrives(sender: NoteSender, reader: NoteReader) -> None:
    sender.send("warning", ("careful", Coded, "data.py", 3))
    with warnings.catch_warnings(record=True) as warned:
        reader.drain()
    [one] = warned
    assert (str(one.message), one.category) == ("careful", Coded)


def test_prints_without_a_descriptor_are_forwarded(
    worker: Worker, sender: NoteSender, reader: NoteReader, capsys: pytest.CaptureFixture[str]
) -> None:
    worker.begin(sender)
    print("to stdout")
    print("to stderr", file=sys.stderr)
    worker.end()
    assert capsys.readouterr() == ("", "")
    reader.drain()
    assert capsys.readouterr() == ("to stdout\n", "to stderr\n")


def test_a_long_print_arrives_whole(
    worker: Worker, sender: NoteSender, reader: NoteReader, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(chr(0x1F600 + number % 50) for number in range(40_000))
    worker.begin(sender)
    print(text)
    worker.end()
    reader.drain()
    same = (
        capsys.readouterr().out == text + "\n"
    )  # not inside the assertion: nobody wants to read the difference
    assert same


def test_a_stream_with_a_descriptor_is_left_in_place(
    worker: Worker, sender: NoteSender, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        worker.begin(sender)
        assert sys.stdout is file
        assert file.line_buffering
        worker.end()


def test_a_long_log_record_is_cut_and_nothing_is_added(
    worker: Worker,
    sender: NoteSender,
    reader: NoteReader,
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker.begin(sender)
    logger.warning("x" * 100_000)
    worker.end()
    reader.drain()
    [record] = caplog.records
    assert set(logging.Formatter().format(record)) == {"x"}


def test_a_full_socket_drops_and_counts(
    sender: NoteSender, reader: NoteReader, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    sent = 0
    while sender.dropped < 3:
        sender.send("print", ("stdout", "."))
        sent += 1
    reader.drain()
    assert len(out.getvalue()) == sent - 3
    sender.send("print", ("stdout", "!"))
    assert sender.dropped == 0
    reader.drain()
    assert out.getvalue().endswith(".!")
    assert "worker 4: 3 log records or prints were dropped" in caplog.text


class Explosive:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


@pytest.mark.parametrize("body", [threading.Lock(), Explosive(), lambda: 0])
def test_what_cannot_be_pickled_is_counted(sender: NoteSender, body: Any) -> None:
    sender.send("print", ("stdout", body))
    assert sender.dropped == 1


class OnlyInWorker:
    def __reduce__(self) -> Any:
        return _absent, ()


def _absent() -> None:
    raise ImportError("no such module in the parent")


def test_a_note_that_cannot_be_read_is_reported_and_the_next_one_arrives(
    sender: NoteSender,
    reader: NoteReader,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sender.send("print", ("stdout", OnlyInWorker()))
    sender.send("print", ("stdout", "next"))
    reader.drain()
    assert "no such module in the parent" in caplog.text
    assert capsys.readouterr().out == "next"


def test_the_end_of_all_workers_is_no_error(sockets: tuple[socket.socket, socket.socket]) -> None:
    reader = NoteReader(sockets[0])
    sockets[1].close()
    reader.drain()


def test_neither_side_waits_whatever_timeout_its_socket_came_with(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    for one in sockets:
        one.settimeout(60)
    NoteReader(sockets[0])
    NoteSender(sockets[1], 0)
    assert [one.gettimeout() for one in sockets] == [0, 0]
