"""Recognises objects by their type: open handles, locks, threads and pools. Imports no library for it."""

from __future__ import annotations

import concurrent.futures
import functools
import io
import mmap
import queue
import socket
import sqlite3
import sys
import tarfile
import threading
import zipfile
from multiprocessing import connection, pool
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from stoker._pickling.instances import own_dict

ATOMS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range, slice}
)

_LIBRARIES: dict[str, tuple[tuple[str, ...], str]] = {
    "PIL.Image": (("Image",), "image"),
    "av.container": (("Container", "InputContainer", "OutputContainer"), "video"),
    "cv2": (("VideoCapture", "VideoWriter"), "video"),
    "decord": (("VideoReader", "AudioReader"), "video"),
    "duckdb": (("DuckDBPyConnection",), "database"),
    "h5py": (("HLObject",), "file"),
    "lmdb": (("Environment", "Transaction", "Cursor"), "database"),
    "netCDF4": (("Dataset",), "file"),
    "psycopg": (("Connection",), "database"),
    "psycopg2.extensions": (("connection", "cursor"), "database"),
    "pyarrow": (("NativeFile",), "file"),
    "pymongo": (("MongoClient",), "database"),
    "pysam": (("AlignmentFile", "VariantFile", "FastaFile", "TabixFile"), "file"),
    "redis": (("Redis",), "database"),
    "soundfile": (("SoundFile",), "file"),
    "tables": (("File",), "file"),
    "tifffile": (("TiffFile",), "file"),
    "torchcodec.decoders": (("VideoDecoder",), "video"),
}
"""By module: classes whose instances are something open, and what they are."""

_STANDARD: tuple[tuple[tuple[type, ...], str], ...] = (
    ((io.IOBase,), "file"),
    ((mmap.mmap,), "mapping"),
    ((socket.socket,), "socket"),
    ((sqlite3.Connection, sqlite3.Cursor), "database"),
    ((zipfile.ZipFile, tarfile.TarFile), "archive"),
    ((connection.Connection,), "pipe"),
)
_IN_MEMORY = (io.BytesIO, io.StringIO)
_RAW_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_LOCKS = (
    *_RAW_LOCKS, threading.Condition, threading.Event, threading.Semaphore,
    threading.Barrier,
)  # fmt: skip
_HELD: tuple[tuple[tuple[type, ...], str], ...] = (
    (_LOCKS, "lock"),
    ((threading.Thread,), "thread"),
    ((concurrent.futures.Executor, pool.Pool), "pool"),
    ((queue.Queue, queue.SimpleQueue), "queue"),
)
_HOOKS = ("__getstate__", "__reduce__", "__reduce_ex__")


class OpenHandle(NamedTuple):
    """A handle: what it is, the name of what is open, whether plain pickle takes it, and whether it is still open."""

    what: str
    name: str
    sendable: bool
    live: bool


class RunningResource(NamedTuple):
    """A lock, thread, pool or queue; ``threads`` are those (or processes) of it that run."""

    what: str
    live: bool
    threads: int
    sendable: bool


def name_of(kind: type) -> str:
    """As people know it: "BufferedReader", "h5py.File"."""
    package = kind.__module__.partition(".")[0] if type(kind.__module__) is str else ""
    return f"{package}.{kind.__name__}" if package in _packages() else kind.__name__


@functools.cache
def _packages() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in (*_LIBRARIES, "torch"))


def matters(obj: Any) -> bool:
    """Whether it is a handle, lock, thread, pool or queue, and none of the process's own streams."""
    kind = type(obj)
    return (bool(_handle(kind)) or _running(kind) is not None) and not is_standard_stream(obj)


def opened(obj: Any) -> OpenHandle | None:
    """What a handle is, open or closed; None when it is no handle."""
    kind = type(obj)
    what = _handle(kind)
    if not what:
        return None
    return (
        _standard(obj, kind, what)
        if any(issubclass(kind, kinds) for kinds, _ in _STANDARD)
        else _of_library(obj, kind, what)
    )


def _handle(kind: type) -> str:
    """What a handle of this type is; "" for all other types."""
    for kinds, what in _STANDARD:
        if issubclass(kind, kinds):
            return "" if issubclass(kind, _IN_MEMORY) else what
    for module, (names, what) in _LIBRARIES.items():
        loaded = sys.modules.get(module)
        if loaded is not None and issubclass(kind, _classes(loaded, names)):
            return what
    return ""


def is_ordinary(kind: type) -> bool:
    """Whether nothing here is about this type. To be asked once per type."""
    return not _handle(kind) and _running(kind) is None


def _running(kind: type) -> str | None:
    return next((what for kinds, what in _HELD if issubclass(kind, kinds)), None)


def running(obj: Any) -> RunningResource | None:
    """What a lock, thread, pool or queue is; None when it is none of these."""
    kind = type(obj)
    what = _running(kind)
    if what is None:
        return None
    threads = 0
    try:
        if what == "lock":
            inner = (own_dict(obj) or {}).get("_lock", obj)  # of a condition
            live = type(inner) in _RAW_LOCKS and repr(inner).startswith("<locked")
        elif what == "thread":
            live = threading.Thread.is_alive(obj)
            threads = int(live)
        elif what == "pool":
            held = own_dict(obj) or {}
            threads = len(held.get("_threads") or held.get("_processes") or held.get("_pool") or ())
            threads = threads if type(held.get("_pool")) is not int else 0
            live = threads > 0
        else:
            live = False
    except Exception:  # a subclass of the user's that was never initialised, say
        live = False
    return RunningResource(what, live, threads, _has_hooks(kind))


def is_standard_stream(obj: Any) -> bool:
    """Whether it is one of the process's own: every process has those."""
    return any(
        obj is each
        for each in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)
    )


def _standard(obj: Any, kind: type, what: str) -> OpenHandle:
    held = own_dict(obj) or {}
    builtin = kind.__module__ in (
        "_io",
        "io",
        "socket",
        "mmap",
        "sqlite3",
        "gzip",
        "bz2",
        "lzma",
        "zipfile",
        "tarfile",
        "tempfile",
        "multiprocessing.connection",
    )
    name, live = "", True
    if builtin:
        try:
            if what == "archive":
                name = str(held.get("filename") or held.get("name") or "")
                live = not held.get("closed", "fp" in held and held["fp"] is None)
            elif what in ("file", "mapping"):
                live = not obj.closed
                name = _file_name(obj)
                what = "output" if what == "file" and not obj.closed and not obj.readable() else what
            elif what == "socket":
                live = obj.fileno() >= 0
            elif what == "pipe":
                live = not obj.closed
        except Exception:  # half made, or detached
            live = True
    picklable = kind in ForkingPickler._extra_reducers or _reduces(obj, kind, builtin)  # type: ignore[attr-defined]
    return OpenHandle(what, name, picklable, live)


def _file_name(obj: Any) -> str:
    name = getattr(obj, "name", "")
    return name if type(name) is str else ""


def _of_library(obj: Any, kind: type, what: str) -> OpenHandle | None:
    held = own_dict(obj) or {}
    # An image is decoded when it is read first. Pickling would decode it, so nothing is tried.
    if what == "image":
        name = held.get("filename")
        if held.get("fp") is None:
            return None
        return OpenHandle(what, name if type(name) is str else "", True, True)
    live, name = True, ""
    try:
        if kind.__module__.startswith("h5py"):
            live, name = (
                bool(obj),
                str(getattr(obj, "filename", "") or getattr(getattr(obj, "file", None), "filename", "")),
            )
        elif kind.__module__.startswith("cv2"):
            live = bool(obj.isOpened())
        elif kind.__module__.startswith("lmdb") and hasattr(obj, "path"):
            name = str(obj.path())
    except Exception:  # of a library, about something it has closed
        live = False
    return OpenHandle(what, name, _reduces(obj, kind, True), live)


def _reduces(obj: Any, kind: type, builtin: bool) -> bool:
    """Whether it has a way of its own to be pickled. One of the user's classes is given the benefit of the doubt: it is entered."""
    if not _has_hooks(kind) or kind is io.TextIOWrapper:
        return False
    if not builtin:
        return True
    try:
        obj.__reduce_ex__(4)
    except Exception:
        return False
    return True


def _has_hooks(kind: type) -> bool:
    return any(getattr(kind, hook) is not getattr(object, hook) for hook in _HOOKS)


def _classes(module: Any, names: tuple[str, ...]) -> tuple[type, ...]:
    found = (vars(module).get(name) for name in names)
    return tuple(each for each in found if isinstance(each, type))
