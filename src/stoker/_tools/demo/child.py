"""What an act does in a process of its own, so that nothing of it is left for the next one: workers, memory, handlers.

A fork of the demo's process, which has imported torch: it is there in milliseconds. It leads a process group, with all that it
starts: Ctrl-C reaches the demo alone, which then ends the group.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from stoker._tools.demo.act import Tell

_FAREWELL_S = 5.0
"""To end by itself, after it has told all."""


class ChildError(Exception):
    """The child did not come to its end: it raised, died, or took too long."""


def possible() -> str | None:
    """None, or why processes cannot be forked here, in words."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return "this system cannot fork a process"
    return None


def perform(function: Callable[..., Any], *arguments: Any, limit_s: float, tell: Tell | None = None) -> Any:
    """What ``function(tell, *arguments)`` returns, or raises as a ChildError, in a child. Both have to be picklable."""
    for name in ("torch", "stoker.loader"):  # here, once: that takes seconds
        importlib.import_module(name)
    with warnings.catch_warnings():
        # Of forks beside threads: the child does without them.
        warnings.simplefilter("ignore", DeprecationWarning)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(
            target=_run, args=(theirs, function, arguments), daemon=False
        )
        child.start()
    theirs.close()
    assert child.pid is not None
    with suppress(OSError):  # both do it: neither knows who is first
        os.setpgid(child.pid, child.pid)
    try:
        answer = _answer(ours, time.monotonic() + limit_s, tell)
        child.join(_FAREWELL_S if answer is not None else 0)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.join()
        code = child.exitcode
        child.close()
        ours.close()
    if answer is None:
        raise ChildError(_ending(code, limit_s))
    how, what = answer
    if how == "raised":
        raise ChildError(what)
    return what


def _answer(ours: Connection, deadline: float, tell: Tell | None) -> tuple[str, Any] | None:
    """The last thing it says. None: it said nothing more, or not in time."""
    while ours.poll(max(0.0, deadline - time.monotonic())):
        try:
            how, what = ours.recv()
        except EOFError:
            return None
        if how != "tell":
            return how, what
        if tell is not None:
            tell(*what)
    return None


def _ending(code: int | None, limit_s: float) -> str:
    if code == -signal.SIGKILL:
        return f"it was killed, or not done within {limit_s:.0f} s"
    return f"its process ended with code {code} and no result"


def _run(theirs: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """In the child."""
    with suppress(OSError):
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    import torch

    # A fork has none of the threads of its parent's pools, and some pools wait for theirs for ever.
    torch.set_num_threads(1)
    try:
        answer = ("done", function(lambda what, share: theirs.send(("tell", (what, share))), *arguments))
    except BaseException as error:
        answer = ("raised", f"{type(error).__name__}: {error}")
    theirs.send(answer)
    theirs.close()
