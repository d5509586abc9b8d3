"""Lets clusters on one machine start one after the other: Ray looks for free ports before it takes them."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_LOCK = Path("/tmp", f"stk-ray-{os.getuid()}.lock")
"""Whatever TMPDIR is: all clusters of the machine share its ports. And it stays, which in a folder of its own would be a leak."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_VARIABLE = "PYTHONBREAKPOINT"


@contextmanager
def starting() -> Iterator[None]:
    """Start a cluster inside, or connect to one. What Ray changes in this process is changed back: handlers, and the debugger."""
    handlers = [(number, signal.getsignal(number)) for number in _SIGNALS]
    before = os.environ.get(_VARIABLE)
    with ExitStack() as held:
        with suppress(
            PermissionError
        ):  # root of a user namespace, and the file is that of the machine's root
            fcntl.flock(held.enter_context(open(_LOCK, "a")), fcntl.LOCK_EX)
        try:
            yield
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)
            os.environ.pop(_VARIABLE, None)
            if before is not None:
                os.environ[_VARIABLE] = before
