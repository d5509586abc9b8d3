"""Runs a function in a forked sibling that may hang or crash: what it returns, or nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def in_sibling(function: Callable[[], Any], limit_s: float) -> Any:
    """What it returns, as JSON has it; None when it raises, crashes, or takes longer. Its prints go where ours go."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            told = json.dumps(function()).encode()
            with open(writing, "wb") as answer:
                answer.write(told)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        told = _read(reading, time.monotonic() + limit_s)
    finally:
        os.close(reading)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    try:
        return json.loads(told)
    except ValueError:
        return None


def _read(fd: int, deadline: float) -> bytes:
    told = b""
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
            return b""
        part = os.read(fd, 1 << 16)
        if not part:
            return told
        told += part
