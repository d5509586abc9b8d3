"""Says what to do about objects that cannot leave their process, one sentence per kind."""

from __future__ import annotations

import concurrent.futures
import io
import logging
import mmap
import queue
import socket
import sqlite3
import sys
import tarfile
import threading
import types
import weakref
import zipfile
from multiprocessing import pool
from typing import Any

import torch

_LOCKS = (
    type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore,
    threading.Barrier,
)  # fmt: skip

_OPENERS = frozenset(
    {
        "av",
        "cv2",
        "decord",
        "duckdb",
        "grpc",
        "h5py",
        "lmdb",
        "netCDF4",
        "psycopg",
        "psycopg2",
        "pymongo",
        "redis",
        "tables",
    }
)
"""Packages whose objects represent an open file, database or connection."""

_OPEN_LATE = "Keep what it takes to open it, and open it in worker_init_fn or at the first __getitem__, once per worker."

_KINDS: dict[tuple[type, ...], str] = {
    (
        io.IOBase,
    ): "Keep its path, and open the file in worker_init_fn or at the first __getitem__, once per worker.",
    (zipfile.ZipFile, tarfile.TarFile, mmap.mmap): (
        "Keep its path, and open it in worker_init_fn or at the first __getitem__, once per worker."
    ),
    (
        socket.socket,
    ): "Keep the address, and connect in worker_init_fn or at the first __getitem__, once per worker.",
    (sqlite3.Connection, sqlite3.Cursor): (
        "Keep the path of the database, and connect at the first __getitem__: a connection serves one process."
    ),
    (threading.Thread, concurrent.futures.Executor, pool.Pool): (
        "Start it in worker_init_fn, and drop it in __getstate__: its threads or processes do not travel."
    ),
    (queue.Queue, queue.SimpleQueue): (
        "It connects threads of one process; multiprocessing.Queue connects processes."
    ),
    _LOCKS: (
        "It guards threads of one process only: drop it in __getstate__ and make it anew in __setstate__; between workers use "
        "multiprocessing.Lock()."
    ),
    (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType): (
        "Make it where it is used, in __iter__ or __getitem__, or keep its items in a list."
    ),
    (types.ModuleType,): "Import the module where it is used.",
    (weakref.ReferenceType, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary): (
        "Drop it in __getstate__: what it refers to is not in the worker."
    ),
    (logging.Handler,): (
        "Drop it in __getstate__: what workers log reaches the handlers of this process anyway."
    ),
    (types.TracebackType, types.FrameType): "Keep its text (traceback.format_exc()) instead.",
}

_DEFAULT = "Open it inside __getitem__ or in worker_init_fn, or drop it in __getstate__."


def stays(obj: Any) -> bool:
    """Whether this object cannot leave its process and defines no pickling. Then its parts do not matter."""
    kind = type(obj)
    hooks = ("__getstate__", "__reduce__", "__reduce_ex__")
    return _text(obj) is not None and all(getattr(kind, hook) is getattr(object, hook) for hook in hooks)


def remedy(obj: Any, error: Exception) -> str:
    """Return the most helpful sentence about an object that could not be pickled, given the pickler's error."""
    if isinstance(obj, torch.Tensor | torch.UntypedStorage | torch.TypedStorage):
        return _of_tensor(obj)
    if type(obj).__module__.startswith("multiprocessing.") and "fork" in str(error):
        return "Make it with multiprocessing.get_context('spawn'), which forkserver takes too."
    if isinstance(error, RecursionError):
        return "It is nested too deeply to be pickled: keep it flat."
    if _is_of(obj, _OPENERS):
        return _OPEN_LATE
    return _text(obj) or _DEFAULT


def _text(obj: Any) -> str | None:
    return next((text for kinds, text in _KINDS.items() if isinstance(obj, kinds)), None)


def _is_of(obj: Any, packages: frozenset[str]) -> bool:
    package = type(obj).__module__.partition(".")[0]
    return package in packages and package in sys.modules and not isinstance(obj, type)


def _of_tensor(obj: Any) -> str:
    if obj.device.type != "cpu":
        return "Move it to the CPU (.cpu()): workers make samples there, and the loader brings batches to the device."
    if isinstance(obj, torch.Tensor) and obj.requires_grad:
        return "Keep it without its history (.detach())."
    return _DEFAULT
