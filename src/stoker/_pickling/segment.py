"""Stores packed data in one nameless, sealed file that every process maps for itself: a segment.

    share() ── SegmentWriter.put … seal ──► Segment ── fork: inherited · spawn, forkserver: its descriptor travels ──► Segment

The mapping is private. A write that gets past Python's read-only views, for example through torch, copies one page of the writer
and reaches no other process. The file has no name, so it is gone when the last process that maps it ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

_MOST_AT_ONCE = 1 << 30
"""Linux reads or writes 2 GiB at most in one call."""

_ALIGN = 64
_FIXED = 0x10
_MADV_POPULATE_READ = 22
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_live: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()


class Place(NamedTuple):
    """Where something lies in a segment."""

    at: int
    nbytes: int


class SegmentWriter:
    """Collects packed data in a private file. One thread; end it with ``seal`` or ``close``."""

    _fd = -1

    def __init__(self) -> None:
        self._fd = anonymous_file("stoker-share", sealing=True)
        self._end = 0

    @property
    def nbytes(self) -> int:
        """How many bytes were written so far."""
        return self._end

    def put(self, chunks: Iterable[Any]) -> Place:
        """Write buffers one after the other; return their place."""
        start = cursor = -(-self._end // _ALIGN) * _ALIGN
        for chunk in chunks:
            view = memoryview(chunk)
            if view.nbytes:
                cursor += write_at(self._fd, view.cast("B"), cursor)
        self._end = cursor
        return Place(start, cursor - start)

    def array(self, values: np.ndarray[Any, Any]) -> Place:
        """Write a C-contiguous array."""
        return self.put((values.reshape(-1).view(np.uint8),))

    def seal(self) -> Segment:
        """Return the finished segment. No process can change the file from now on."""
        os.ftruncate(self._fd, max(self._end, _ALIGN))
        if hasattr(fcntl, "F_ADD_SEALS"):
            seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
            with suppress(OSError):  # a real file, where there is no memfd
                fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, seals)
        fd, self._fd = self._fd, -1
        segment = adopt(fd)
        with suppress(OSError, ValueError):
            # The kernel counts pages that one process alone has mapped as that process's own.
            segment.madvise(_MADV_POPULATE_READ)
        return segment

    def close(self) -> None:
        """Discard the file. Idempotent; does nothing after ``seal``."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # in case Ctrl-C prevents both


class Segment(mmap.mmap):
    """The mapped file; owns its descriptor. Objects over its memory keep it alive. Any thread."""

    fd: int
    nbytes: int
    address: int

    def __reduce__(self) -> Any:
        """Send the descriptor to a process that is being started. A segment is never sent by value."""
        return _arrived, (reduction.DupFd(self.fd),)

    def words(self, place: Place, kind: str) -> memoryview:
        """Return numbers of one ``struct`` format, read-only."""
        return memoryview(self).toreadonly()[place.at : place.at + place.nbytes].cast(kind)  # type: ignore[call-overload, no-any-return]

    def array(
        self, place: Place, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any = "C"
    ) -> np.ndarray[Any, Any]:
        """Return a read-only array."""
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self, place.at, order=order)
        array.flags.writeable = False
        return array

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        fd = getattr(self, "fd", -1)
        if fd >= 0:
            self.fd = -1
            _close(fd)


def adopt(fd: int) -> Segment:
    """Return the segment in this file, mapped once per process. Takes over the descriptor."""
    try:
        found = os.fstat(fd)
        key = (found.st_dev, found.st_ino)
        segment = _live.get(key)
        if segment is not None and segment.fd >= 0:
            os.close(fd)
            return segment
        segment = _mapped(fd, found.st_size)
    except BaseException:
        os.close(fd)
        raise
    segment.fd = fd
    segment.nbytes = found.st_size
    _live[key] = segment
    return segment


def _mapped(fd: int, nbytes: int) -> Segment:
    """Map the file without a second descriptor. By default Python keeps one for every mapped file."""
    flags, prot = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    if sys.version_info >= (3, 13):
        segment = Segment(fd, nbytes, flags=flags, prot=prot, trackfd=False)
        segment.address = np.frombuffer(segment, np.uint8).ctypes.data
        return segment
    segment = Segment(-1, nbytes, flags=flags | mmap.MAP_ANONYMOUS, prot=prot)
    segment.address = np.frombuffer(segment, np.uint8).ctypes.data
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    # Over the empty pages: what unmaps those unmaps the file.
    if libc.mmap(segment.address, nbytes, prot, flags | _FIXED, fd, 0) != segment.address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return segment


def find(address: int, nbytes: int) -> tuple[Segment, int] | None:
    """Return the segment that holds these bytes of this process, and their place in it; None if there is none."""
    for ref in _live.valuerefs():  # listed in one step: another thread may open a segment meanwhile
        segment = ref()
        if segment is None:
            continue
        at = address - segment.address
        if at >= 0 and at + nbytes <= segment.nbytes:
            return segment, at
    return None


def anonymous_file(name: str, *, sealing: bool = False, into: list[int] | None = None) -> int:
    """Create a file without a name: a memfd, or else an unlinked temporary file. The caller closes it.

    It is appended to ``into`` in the same step of C, so Ctrl-C, which comes between bytecodes, cannot lose it.
    """
    made = [] if into is None else into
    if hasattr(os, "memfd_create"):
        flags = os.MFD_CLOEXEC | (os.MFD_ALLOW_SEALING if sealing else 0)
        made.extend(map(os.memfd_create, (name,), (flags,)))
        return made[-1]
    fd, path = tempfile.mkstemp(prefix=f"{name}-")
    made.append(fd)
    os.unlink(path)
    return fd


def duplicate(fd: int, into: list[int]) -> None:
    """Append a duplicate of a descriptor, in one step of C."""
    into.extend(map(os.dup, (fd,)))


def close_all(fds: list[int]) -> None:
    """Close these descriptors and forget them, each in one step of C: none is lost, and none closed twice."""
    while fds:
        any(map(os.close, map(fds.pop, (-1,))))


def write_at(fd: int, data: Any, at: int) -> int:
    """Write all bytes of a buffer to a place in a file; return their number. Releases the interpreter's lock while copying."""
    view = memoryview(data).cast("B")
    nbytes = view.nbytes
    while view.nbytes:
        written = os.pwrite(fd, view[:_MOST_AT_ONCE], at)
        view = view[written:]
        at += written
    return nbytes


def read_at(fd: int, nbytes: int, at: int) -> bytes:
    """Return bytes from a place in a file; fewer where it ends."""
    parts = []
    while nbytes > 0:
        part = os.pread(fd, min(nbytes, _MOST_AT_ONCE), at)
        if not part:
            break
        parts.append(part)
        at += len(part)
        nbytes -= len(part)
    return b"".join(parts)


def _arrived(passed: Any) -> Segment:
    return adopt(passed.detach())
