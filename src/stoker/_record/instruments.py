"""Tells whether a caught exception is a failure of our own instruments, which must never end a run."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np

from stoker._host.code_location import is_standard, is_stoker

_NUMPY = os.path.join(os.path.dirname(os.path.abspath(np.__file__)), "")


class Idle(Protocol):
    """``_runtime.device.idle_meter.IdleMeter``, as the recorder sees it."""

    hidden_ns: int
    timed_ns: int


def is_ours(error: BaseException) -> bool:
    """Whether our own code raised this, or what it called of the standard library and of NumPy.

    What a signal handler raised in its midst is for the script, and must not be caught: torch's handler tells of dead workers
    in this way, others of a time limit.
    """
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not (is_stoker(path) or is_standard(path) or path.startswith(_NUMPY)):
            return False
        trace = trace.tb_next
    return True
