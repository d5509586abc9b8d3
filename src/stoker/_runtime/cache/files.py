"""Remembers which files a sample was made from, with size and mtime, so that a changed file makes the sample anew.

A file counts as it was before it was opened. If it is another one when the sample is made, the sample is not kept.

Python tells of every file that it opens (an audit hook, installed with the first sample that is kept). Files that C libraries open
are not told of: for these, paths in a list or table of the dataset with one entry for each index are used, such as ImageFolder's
``samples``.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from stoker._runtime.cache.digest import attributes
from stoker._runtime.cache.sources import is_library

_MOST_FILES = 4096
_MOST_COLUMNS = 8
_NOT_DATA = ("/proc/", "/sys/", "/dev/")
_CODE = (".py", ".pyc", ".pyi", ".so", ".pth")


Stamp = tuple[int, int] | None
Stamps = dict[str, Stamp]
"""Files with size and mtime; None for one that is not there."""


class _Recording(threading.local):
    """The files that this thread opened, with their stamps. A cached function inside a cached dataset has one more of these."""

    def __init__(self) -> None:
        self.inner: list[Stamps] = []


_recording = _Recording()
_hooked = False


def begin(more: Sequence[str] | Stamps = ()) -> None:
    """Begin to note the files that this thread opens for reading.

    ``more`` are known otherwise, as a C library opens them; with stamps, if they were looked at before.
    """
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_note)
    _recording.inner.append(dict(more) if isinstance(more, dict) else {path: stamp_of(path) for path in more})


def end(apart_from: Collection[str] = ()) -> bytes | None:
    """End it; return the files with their stamps as bytes, b"" without any.

    None: one of them changed since it was opened, or there are too many, so nothing that was made from them can be kept. A file
    in ``apart_from`` is only looked at for that. What is noted here counts for the recording around this one, too.
    """
    noted = _recording.inner.pop()
    if _recording.inner:
        outer = _recording.inner[-1]
        for path, stamp in noted.items():
            outer.setdefault(path, stamp)
    if len(noted) > _MOST_FILES or any(stamp_of(path) != stamp for path, stamp in noted.items()):
        return None
    found = [(path, *stamp) for path, stamp in noted.items() if stamp is not None and path not in apart_from]
    return marshal.dumps(found) if found else b""


def note_hit(stamps: Any, named: Stamps | None = None) -> None:
    """Note the files of a result that was kept, for the sample around it: those in ``stamps``, and ``named`` ones."""
    if _recording.inner:
        outer = _recording.inner[-1]
        for path, size, mtime_ns in marshal.loads(stamps) if len(stamps) else ():
            outer.setdefault(path, (size, mtime_ns))
        for path, stamp in (named or {}).items():
            outer.setdefault(path, stamp)


def unchanged(files: Any) -> bool:
    """Whether all files are as they were. Costs one ``stat`` for each."""
    return all(stamp_of(path) == (size, mtime_ns) for path, size, mtime_ns in marshal.loads(files))


def stamp_of(path: str) -> Stamp:
    """Return size and mtime of a regular file or folder; None if there is none."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts.st_size, facts.st_mtime_ns


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _recording.inner:
        return
    path, mode, flags = args
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    noted = _recording.inner[-1]
    if not isinstance(path, str) or len(noted) > _MOST_FILES:
        return
    if (mode is not None and "r" not in mode) or (
        isinstance(flags, int) and flags & os.O_ACCMODE != os.O_RDONLY
    ):
        return
    path = os.path.abspath(path)
    if not path.startswith(_NOT_DATA) and not path.endswith(_CODE) and not is_library(path):
        noted.setdefault(path, stamp_of(path))


class PathLists:
    """The attributes of a dataset that name a file for each index: lists of paths, or of tuples that begin with one.

    Columns of a pandas table count as lists. A path may be relative to a folder that is an attribute, too.
    """

    def __init__(self, dataset: Any, length: int) -> None:
        held = [value for _, value in attributes(dataset)]
        named = [_path(value) for value in held if isinstance(value, str | os.PathLike)]
        folders = ["", *(path for path in named if path and os.path.isdir(path))]
        self._lists: list[tuple[str, Any]] = []
        for column in (column for value in held for column in _columns(value, length)):
            first = _path(column[0])
            if first is not None:
                there = (each for each in folders if os.path.isfile(os.path.join(each, first)))
                self._lists += [(each, column) for each in islice(there, 1)]

    def of(self, index: int) -> list[str]:
        """Return the paths for an index."""
        found = [(folder, _path(each[index])) for folder, each in self._lists if index < len(each)]
        return [os.path.abspath(os.path.join(folder, path)) for folder, path in found if path is not None]


def _columns(value: Any, length: int) -> Iterator[Any]:
    """The lists in a value that have an entry for each index."""
    if isinstance(value, np.ndarray) and not value.ndim:  # a number, which has no length
        return
    if isinstance(value, list | tuple | np.ndarray):
        if len(value) == length and length:
            yield value
    elif (
        type(value).__module__.partition(".")[0] == "pandas"
        and hasattr(value, "iloc")
        and len(value) == length
        and length
    ):
        table = value.to_frame() if value.ndim == 1 else value
        for number in range(min(_MOST_COLUMNS, table.shape[1])):
            if _path(table.iat[0, number]) is not None:
                yield table.iloc[:, number].tolist()


def _path(item: Any) -> str | None:
    if isinstance(item, tuple | list) and len(item):
        item = item[0]
    if isinstance(item, os.PathLike):
        item = os.fspath(item)
    return item if isinstance(item, str) and len(item) < 4096 else None
