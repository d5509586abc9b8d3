"""Remembers which files a sample was made from, with size and mtime, so that a changed file makes the sample anew.

Python tells of every file that it opens (an audit hook, installed with the first sample that is kept). Files that C libraries open
are not told of: for these, paths in a list of the dataset with one entry for each index are used, such as ImageFolder's
``samples``.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker._runtime.cache.identity import attributes, is_library

_MOST_FILES = 1024
_NOT_DATA = ("/proc/", "/sys/", "/dev/")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth")


class _Recording(threading.local):
    paths: list[str] | None = None


_recording = _Recording()
_hooked = False


def begin() -> None:
    """Begin to note the files that this thread opens for reading."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_note)
    _recording.paths = []


def end(more: Sequence[str] = (), apart_from: Sequence[str] = ()) -> bytes:
    """End it; return the files with their stamps as bytes, b"" without any. ``more`` are known otherwise."""
    paths, _recording.paths = _recording.paths or [], None
    found: list[tuple[str, int, int]] = []
    known = {os.path.abspath(path) for path in apart_from} if paths else set()
    for path in dict.fromkeys([*more, *paths]):
        if path in known:
            continue
        stamp = stamp_of(path)
        if stamp is not None and len(found) < _MOST_FILES:
            found.append((path, *stamp))
    return marshal.dumps(found) if found else b""


def unchanged(files: Any) -> bool:
    """Whether all files are as they were. Costs one ``stat`` for each."""
    return all(stamp_of(path) == (size, mtime_ns) for path, size, mtime_ns in marshal.loads(files))


def stamp_of(path: str) -> tuple[int, int] | None:
    """Return size and mtime of a regular file or folder; None if there is none."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_size, facts.st_mtime_ns


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or _recording.paths is None:
        return
    path, mode, flags = args
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or len(_recording.paths) >= _MOST_FILES:
        return
    if (mode is not None and "r" not in mode) or (
        isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY
    ):
        return
    path = os.path.abspath(path)
    if not path.startswith(_NOT_DATA) and not path.endswith(_CODE) and not is_library(path):
        _recording.paths.append(path)


class PathLists:
    """The attributes of a dataset that name a file for each index: lists of paths, or of tuples that begin with one."""

    def __init__(self, dataset: Any, length: int) -> None:
        self._lists: list[Any] = []
        for _, value in attributes(dataset):
            if isinstance(value, list | tuple | np.ndarray) and len(value) == length and length:
                first = _path(value[0])
                if first is not None and os.path.isfile(first):
                    self._lists.append(value)

    def of(self, index: int) -> list[str]:
        """Return the paths for an index."""
        found = [_path(each[index]) for each in self._lists if index < len(each)]
        return [os.path.abspath(path) for path in found if path is not None]


def _path(item: Any) -> str | None:
    if isinstance(item, tuple | list) and item:
        item = item[0]
    if isinstance(item, os.PathLike):
        item = os.fspath(item)
    return item if isinstance(item, str) and len(item) < 4096 else None
