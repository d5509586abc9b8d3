"""Sends log records, warnings and prints of a worker to the parent's own handlers, filters and streams.

These notes travel over one message socket that all workers share. Sending never blocks. When the parent does not read and the
socket is full, notes are dropped and counted. The count is sent when there is room again.
"""

from __future__ import annotations

import contextlib
import io
import logging
import pickle
import socket
import sys
import warnings
from typing import Any, TextIO

from stoker._runtime.protocol.status_page import NOTES, WORDS

MAX_BYTES = 60_000
_TEXT_CHARS = MAX_BYTES // 4
"""How much text always fits into one note."""


class NoteSender:
    """The worker's side. Used by any thread that logs; a send is one system call without a lock."""

    def __init__(self, channel: socket.socket, worker: int, control: Any = None) -> None:
        self._channel = channel
        channel.setblocking(False)  # the user may have set a default timeout for sockets
        self._worker = worker
        self._control = control if control is not None else [0] * WORDS
        self.dropped = 0

    def send(self, kind: str, body: Any) -> None:
        """Send one note or count it as dropped. Never raises."""
        try:
            message = pickle.dumps((kind, self._worker, self.dropped, body))
            if len(message) > MAX_BYTES:
                message = pickle.dumps((kind, self._worker, self.dropped, _shorten(body)))
            self._channel.send(message, socket.MSG_DONTWAIT)
            self._control[NOTES] = 1  # after the note: the parent clears the word before it reads
            self.dropped = 0
        except Exception:  # the socket is full, or pickling ran code of the user's that raised
            self.dropped += 1

    def last(self) -> None:
        """Report how many notes were dropped, if any. Called when the worker ends."""
        if self.dropped:
            self.send("end", None)


class _ForwardHandler(logging.Handler):
    def __init__(self, sender: NoteSender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        try:
            plain = dict(record.__dict__)
            plain["msg"] = record.getMessage()
            plain["args"] = None
            if record.exc_info:
                plain["exc_text"] = logging.Formatter().formatException(record.exc_info)
                plain["exc_info"] = None
            self._sender.send("log", plain)
        except Exception:
            self._sender.dropped += 1


class _ForwardStream(io.TextIOBase):
    """Replaces a stream without a descriptor, as in a notebook or a test, whose text would stay in this process."""

    def __init__(self, sender: NoteSender, name: str) -> None:
        self._sender = sender
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for at in range(0, len(text), _TEXT_CHARS):
            self._sender.send("print", (self._name, text[at : at + _TEXT_CHARS]))
        return len(text)


def forward(sender: NoteSender, levels: dict[str, int]) -> None:
    """Send the log records, warnings and prints of this process to the parent. ``levels`` are the parent's logger levels."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            if logger.handlers:
                logger.handlers.clear()
            if not logger.propagate:
                logger.propagate = True
    logging.root.handlers[:] = [_ForwardHandler(sender)]
    for name, level in levels.items():
        named = logging.getLogger(name or None)
        if named.level != level:
            named.setLevel(level)

    def show(
        message: Any,
        category: Any,
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        sender.send("warning", (str(message), category, filename, lineno))

    warnings.showwarning = show
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if _has_descriptor(stream):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
        else:
            setattr(sys, name, _ForwardStream(sender, name))


def logger_levels() -> dict[str, int]:
    """Return the levels set in this process, by logger name; '' is the root."""
    levels = {"": logging.root.level}
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and logger.level:
            levels[name] = logger.level
    return levels


class NoteReader:
    """The parent's side: replays notes. Called by the engine on the thread that iterates."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        channel.setblocking(False)  # the user may have set a default timeout for sockets
        self._seen: set[tuple[str, str, int]] = set()

    def drain(self) -> None:
        """Replay all notes that have arrived. Never blocks."""
        while True:
            try:
                message = self._channel.recv(MAX_BYTES * 4, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError, OSError):
                return
            if not message:
                return
            try:
                note = pickle.loads(message)
            except Exception as error:  # its class may exist in the worker only
                logging.getLogger("stoker").warning("a note from a worker could not be read: %r", error)
                continue
            # A handler, filter or closed stream of the user may raise. Results that came with this note must not be lost.
            with contextlib.suppress(Exception):
                self._replay(*note)

    def _replay(self, kind: str, worker: int, dropped: int, body: Any) -> None:
        if dropped:
            logging.getLogger("stoker").warning(
                "worker %d: %d log records or prints were dropped", worker, dropped
            )
        if kind == "log":
            logger = logging.getLogger(body["name"] if body["name"] != "root" else None)
            if logger.isEnabledFor(body["levelno"]):
                logger.handle(logging.makeLogRecord(body))
        elif kind == "warning":
            text, category, filename, lineno = body
            if (text, filename, lineno) not in self._seen:  # shown once, not once per worker
                self._seen.add((text, filename, lineno))
                warnings.showwarning(_warning(category, text), category, filename, lineno)
        elif kind == "print":
            name, text = body
            stream = getattr(sys, name)
            if stream is not None:  # there is none under pythonw or after ``>&-``
                stream.write(text)


def _warning(category: Any, text: str) -> Warning | str:
    """Rebuild the warning; its text alone if its class takes something else than a text."""
    try:
        warning: Warning = category(text)
        return warning if str(warning) == text else text
    except Exception:
        return text


def _has_descriptor(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (AttributeError, OSError, ValueError):
        return False


def _shorten(body: Any) -> Any:
    if isinstance(body, dict):
        return {
            **body,
            "msg": str(body.get("msg"))[:_TEXT_CHARS],
            "exc_text": body.get("exc_text") and str(body["exc_text"])[:_TEXT_CHARS],
        }
    if isinstance(body, tuple):
        return tuple(item[:_TEXT_CHARS] if isinstance(item, str) else item for item in body)
    return body
