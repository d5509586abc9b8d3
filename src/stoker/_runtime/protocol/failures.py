"""Packs an exception in a worker and rebuilds it in the parent, with the worker's traceback as text.

Type, args, attributes and notes are kept where they can be pickled.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

import cloudpickle

from stoker.errors import WorkerFailure, WorkerTraceback, coded, without_notes

_OUTSIDE = ("errno", "strerror", "filename", "filename2")
"""Attributes that an OSError keeps outside of its ``__dict__``."""


@dataclass(frozen=True, slots=True)
class PackedError:
    """A pickled exception. ``payload`` rebuilds it; None when its type cannot be pickled."""

    payload: bytes | None
    name: str
    text: str
    traceback: str
    worker: int


def pack(error: BaseException, worker: int) -> PackedError:
    """Pack an exception for the parent. Never raises. Called in the worker, on the thread that caught it."""
    try:
        text = str(error)
    except Exception:
        text = "<no text>"
    if type(error).__name__ == "BdbQuit":  # by name: the module is loaded only where there was a breakpoint
        error.add_note("stoker: breakpoint() has no terminal in a worker process; set num_workers=0 to debug")
        coded(error, "STK808")
    # The first is CUDA's message, the second that of other devices.
    if "in forked subprocess" in text or "in a forked child" in text:
        error.add_note(
            "stoker: the dataset uses the accelerator inside a forked worker, which cannot work. Return CPU tensors from it, and "
            "move the batch in the training loop"
        )
        coded(error, "STK304")
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception as trouble:
        trace = f"<traceback of {type(error).__name__} could not be formatted: {trouble!r}>"
    return PackedError(_payload(error), type(error).__name__, text, trace, worker)


def unpack(failure: PackedError) -> BaseException:
    """Return the exception to raise in the parent, with the worker's traceback as its cause."""
    error: BaseException | None = None
    if failure.payload is not None:
        try:
            error = _rebuild(*pickle.loads(failure.payload))
        except Exception:
            error = None
    trace = failure.traceback
    if error is None:
        error = WorkerFailure(f"{failure.name}: {failure.text}")
    else:
        trace = without_notes(trace)
    error.__cause__ = WorkerTraceback(
        f"Caught {failure.name} in DataLoader worker process {failure.worker}.\nOriginal {trace}"
    )
    return error


def _payload(error: BaseException) -> bytes | None:
    """Return the exception as bytes that load again; by value when its class cannot be imported."""
    attributes = {}
    for key, value in getattr(error, "__dict__", {}).items():
        try:
            pickle.loads(cloudpickle.dumps(value))
        except Exception:
            continue
        attributes[key] = value
    if isinstance(error, OSError):
        named = {name: getattr(error, name, None) for name in _OUTSIDE}
        attributes |= {name: value for name, value in named.items() if isinstance(value, str | bytes | int)}
    resembling: bytes | None = None
    for how in (_by_reduce, _by_parts):
        for dumps in (pickle.dumps, cloudpickle.dumps):
            try:
                payload: bytes = dumps((*how(error), attributes))
                again = _rebuild(*pickle.loads(payload))
                if type(again).__name__ != type(error).__name__:
                    continue
                resembling = resembling or payload
                # An __init__ that builds the message from its argument would build it twice.
                if repr(again.args) == repr(error.args) and str(again) == str(error):
                    return payload
            except Exception:
                continue
    return resembling


def _by_reduce(error: BaseException) -> tuple[type, tuple[Any, ...], bool]:
    """Take the exception apart as its class asks."""
    reduced = error.__reduce__()
    if isinstance(reduced, str):
        raise TypeError("reduced to a global name")
    return reduced[0], reduced[1], True


def _by_parts(error: BaseException) -> tuple[type, tuple[Any, ...], bool]:
    """Take the exception apart as a bare instance with args, for classes whose ``__init__`` takes other arguments."""
    return type(error), error.args, False


def _rebuild(maker: Any, args: tuple[Any, ...], call: bool, attributes: dict[str, Any]) -> BaseException:
    if call:
        error = maker(*args)
    else:
        error = maker.__new__(maker)
        error.args = args
    if not isinstance(error, BaseException):
        raise TypeError("not an exception")
    rebuilt: BaseException = error
    for name, value in attributes.items():
        if name in _OUTSIDE and isinstance(rebuilt, OSError):
            setattr(rebuilt, name, value)
        else:
            rebuilt.__dict__[name] = value
    return rebuilt
