"""Ctrl-C where it can really come: between two bytecodes of stoker's code, at a chosen place.

CPython looks for signals when a Python function begins, when a C function has returned, and when a loop jumps back. ``Rehearsal``
lists the places right before all these that a run comes to. ``Interrupt`` makes the signal pending at one of them, with a tracer
in C, so that CPython itself handles it at the next of its own checks. An exception out of a tracer would be at places where no
signal is handled, and would leave references behind.

Both trace the calling thread only, which has to be the main thread: handlers of signals run there.

A tracer has to be kept: CPython 3.11 makes a frame's object before it calls one, which may collect garbage. If a finalizer then
comes to the chosen place, another tracer is set, and CPython calls the one before without holding it.
"""

from __future__ import annotations

import ctypes
import dis
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import stoker

_SOURCE = str(Path(stoker.__file__).parent)
_CHECKS = frozenset(
    code
    for name, code in dis.opmap.items()
    if name.startswith("CALL")
    or name in ("JUMP_BACKWARD", "BEFORE_WITH", "FOR_ITER", "WITH_EXCEPT_START", "SEND")
)
_object = ctypes.py_object
_nothing: Any = ctypes.PYFUNCTYPE(None, _object, _object, _object)(("PyErr_Clear", ctypes.pythonapi))
_set_interrupt: Any = ctypes.PYFUNCTYPE(None, _object, _object, _object)(
    ("PyErr_SetInterrupt", ctypes.pythonapi)
)


class Place(NamedTuple):
    """A bytecode, right before one that may handle a signal."""

    code: CodeType
    offset: int


class Rehearsal:
    """Counts, per place, how often the block comes by. ``with Rehearsal() as seen: …``, then ``seen.places``."""

    def __init__(self) -> None:
        self.places: Counter[Place] = Counter()
        self._last: tuple[FrameType, int] | None = None
        self._tracer = self._called

    def __enter__(self) -> Rehearsal:
        sys.settrace(self._tracer)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._last = None

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        self._last = None
        if not frame.f_code.co_filename.startswith(_SOURCE):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._traced

    def _traced(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            code, offset, last = frame.f_code, frame.f_lasti, self._last
            if last is not None and last[0] is frame and _opcode(code, offset) in _CHECKS:
                self.places[Place(code, last[1])] += 1
            self._last = frame, offset
        else:
            self._last = None
        return self._traced


class Happening:
    """Calls a function when the block comes to this place for the n-th time, as a garbage collection calls finalizers.

    What it raises goes nowhere. ``done``: it was called.
    """

    def __init__(self, place: Place, occurrence: int, happen: Callable[[], object]) -> None:
        self.done = False
        self._place = place
        self._left = occurrence
        self._happen = happen
        self._tracer = self._called

    def __enter__(self) -> Happening:
        sys.settrace(self._tracer)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.done or frame.f_code is not self._place.code:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._traced

    def _traced(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and frame.f_lasti == self._place.offset:
            self._left -= 1
            if self._left == 0:
                self.done = True
                self._happen()
        return None if self.done else self._traced


class Interrupt:
    """Ctrl-C when the block comes to this place for the n-th time. ``done``: the handler ran, and ``where`` says at which line.

    It does not raise in functions whose qualified name begins with ``spared``: those of the test itself. ``making``: a batch was
    being made.
    """

    def __init__(self, place: Place, occurrence: int, spared: str) -> None:
        self.done = False
        self.making = False
        self.where = ""
        self._place = place
        self._left = occurrence
        self._spared = spared
        self._before: Any = None
        self._tracer = self._called

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._handle)
        sys.settrace(self._tracer)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        signal.signal(signal.SIGINT, self._before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._left <= 0 or frame.f_code is not self._place.code:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._traced

    def _traced(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and frame.f_lasti == self._place.offset:
            self._left -= 1
            if self._left == 0:
                frame.f_trace = _set_interrupt
                # No tracer in Python may run until the signal is handled: that would be where it is handled.
                sys.settrace(_nothing)
                return None  # which leaves the frame's tracer as it was set
        return self._traced if self._left > 0 else None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        sys.settrace(None)
        names, each = [], frame
        while each is not None:
            if each.f_trace is not None:
                each.f_trace = None
            names.append(each.f_code.co_filename)
            each = each.f_back
        if frame is None or frame.f_code.co_qualname.startswith(self._spared):
            return
        self.done = True
        self.making = any(name.endswith(("/batch_maker.py", "/in_process.py")) for name in names)
        path = frame.f_code.co_filename.removeprefix(_SOURCE)
        self.where = f"{path}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        raise KeyboardInterrupt


os.register_at_fork(after_in_child=lambda: sys.settrace(None))
_codes: dict[CodeType, bytes] = {}


def _opcode(code: CodeType, offset: int) -> int:
    found = _codes.get(code)
    if found is None:
        found = _codes[code] = code.co_code
    return found[offset]
