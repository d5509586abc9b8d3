"""Runs a function in a forked child, with a deadline: what happens there changes nothing here, and cannot hang this process."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import torch

SILENCE_S = 60.0
"""A child that says nothing for this long is ended: no sample takes that long, and a lock that was held at the fork would."""

_LENGTH_BYTES = 8
_MOST_TEXT = 2000


class ChildLost(Exception):
    """The child ended early, or said nothing for too long. The message says which."""


def run_apart(*works: Callable[[Callable[[Any], None]], None]) -> list[list[Any]]:
    """Run functions in one child each, at once; return what each said, in order.

    Each is called with a function ``say`` that takes a value that can be pickled. Raises ChildLost. An exception in a child is
    raised here as ChildLost, with its type and text.
    """
    children: list[tuple[int, int]] = []
    try:
        for work in works:
            children.append(_start(work))  # noqa: PERF401  # those that did start are ended below
        return [list(_said(fd, pid)) for pid, fd in children]
    finally:
        for pid, fd in children:
            os.close(fd)
            _end(pid)


def _start(work: Callable[[Callable[[Any], None]], None]) -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()  # otherwise the child would write it once more
    pid = os.fork()
    if pid == 0:
        _child(work, read_fd, write_fd)
    os.close(write_fd)
    return pid, read_fd


def _child(work: Callable[[Callable[[Any], None]], None], read_fd: int, write_fd: int) -> NoReturn:
    code = 1
    gc.disable()  # a collection here would run finalizers of the parent's objects: of Ray's connections, for one
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.close(read_fd)
        torch.set_num_threads(1)

        def say(value: Any) -> None:
            data = pickle.dumps(value)
            data = len(data).to_bytes(_LENGTH_BYTES, "little") + data
            while data:
                data = data[os.write(write_fd, data) :]

        try:
            work(say)
        except Exception as error:
            say(_Raised(f"{type(error).__name__}: {error}"[:_MOST_TEXT]))
        else:
            say(_END)
        code = 0
    finally:
        os._exit(code)


_END = "the end of what a child says"


class _Raised(NamedTuple):
    """What a child says instead: the exception that ended it."""

    text: str


def _said(fd: int, pid: int) -> Iterator[Any]:
    buffer = b""
    until = time.monotonic() + SILENCE_S
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise ChildLost(f"a child process (pid {pid}) made no sample within {SILENCE_S:.0f} s")
        data = os.read(fd, 1 << 16)
        if not data:
            raise ChildLost(f"a child process (pid {pid}) died while it made a sample")
        until = time.monotonic() + SILENCE_S
        buffer += data
        while len(buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[:_LENGTH_BYTES], "little")
            if len(buffer) < _LENGTH_BYTES + length:
                break
            value = pickle.loads(buffer[_LENGTH_BYTES : _LENGTH_BYTES + length])
            buffer = buffer[_LENGTH_BYTES + length :]
            if isinstance(value, str) and value == _END:
                return
            if isinstance(value, _Raised):
                raise ChildLost(f"it raised {value.text}")
            yield value


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # it has said all, or it never will
    with suppress(ChildProcessError):  # somebody else's handler took it
        os.waitpid(pid, 0)
