"""Instruments fail without harm: whose failure an exception is, that was caught around code of ours."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np

_OURS = tuple(
    os.path.join(os.path.dirname(os.path.abspath(path)), "")
    for path in (os.path.dirname(__file__), np.__file__)
)
_STANDARD = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")


class Idle(Protocol):
    """``_device.idle.IdleMeter``, as the recorder sees it."""

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
        if not path.startswith(_OURS) and (not path.startswith(_STANDARD) or "-packages" in path):
            return False
        trace = trace.tb_next
    return True
