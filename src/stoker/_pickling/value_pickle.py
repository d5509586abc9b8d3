"""Packs values for running processes: in one piece, with references to objects that the reader already has."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from multiprocessing import context
from typing import Any

import numpy as np

from stoker._pickling import segment as segments
from stoker._pickling.spec_pickle import FdRecorder, SpecPickler

_context: Any = context


class UnfitInPlace(Exception):
    """Raised for a value that can reach new processes but not running ones. Its text ends a sentence that says why."""


def pack(obj: object, refer: Callable[[object], Any], limit_bytes: int) -> bytes:
    """Return the pickled object. ``refer`` returns a reference to an object that the reader has; None for all others.

    Raises UnfitInPlace for an object that takes more than ``limit_bytes`` or needs descriptors, and any error of pickling.
    """
    recorder = FdRecorder()
    stream = _BoundedBuffer(limit_bytes)
    previous = _context.get_spawning_popen()
    _context.set_spawning_popen(recorder)
    try:
        _ValuePickler(stream, refer, limit_bytes).dump(obj)
        holds_descriptors = bool(recorder.fds)
    except MemoryError as error:
        raise UnfitInPlace("finds no memory for a copy") from error
    finally:
        _context.set_spawning_popen(previous)
        recorder.close()
    if holds_descriptors:
        raise UnfitInPlace("holds shared memory or descriptors")
    return stream.getvalue()


class _BoundedBuffer(io.BytesIO):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self._limit_bytes:
            raise _too_large(self._limit_bytes)
        return super().write(data)


class _ValuePickler(SpecPickler):
    def __init__(self, stream: io.BytesIO, refer: Callable[[object], Any], limit_bytes: int) -> None:
        super().__init__(stream, protocol=5, buffer_callback=_stays_in_band)
        self._refer = refer
        self._limit_bytes = limit_bytes

    def persistent_id(self, obj: Any) -> Any:
        return self._refer(obj)

    def reducer_override(self, obj: Any) -> Any:
        # Before it is turned into bytes: a mapped file may be larger than memory.
        if isinstance(obj, np.ndarray) and obj.nbytes > self._limit_bytes:
            raise _too_large(self._limit_bytes)
        if isinstance(obj, io.IOBase) and not isinstance(obj, io.BytesIO | io.StringIO):
            # cloudpickle would send the contents of some files. A worker has opened its own.
            raise TypeError("it is an open file of this process")
        return super().reducer_override(obj)


def _stays_in_band(buffer: pickle.PickleBuffer) -> bool:
    view = buffer.raw()
    if view.nbytes and segments.find(np.frombuffer(view, np.uint8).ctypes.data, view.nbytes) is not None:
        raise UnfitInPlace("is shared data, which needs no copy")
    return True


def _too_large(limit_bytes: int) -> UnfitInPlace:
    return UnfitInPlace(f"takes more than {limit_bytes >> 20} MiB")
