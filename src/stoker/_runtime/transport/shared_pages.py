"""Creates the backing file, maps slots of it, and keeps a mapping alive while tensors use it.

``mmap.mmap`` is not used, because it duplicates the descriptor for every mapping before Python 3.13. A user who keeps a thousand
batches would then hold a thousand descriptors. The mapping here holds none.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import tempfile
from collections.abc import Callable
from typing import Any, Literal

Backing = Literal["memfd", "file"]

MIN_MAPPING_BYTES = 1 << 16
"""The smallest mapping of a slot. Larger ones are powers of two, so a growing slot is rarely mapped again."""

_GROWTH_SHARE = 4
"""A registration that a larger batch replaces gets a quarter more than that batch, so that few more follow."""

_PROT_READ_WRITE = 0x1 | 0x2
_MAP_SHARED = 0x1
_MAP_FAILED = ctypes.c_void_p(-1).value
_FALLOC_KEEP_SIZE_PUNCH_HOLE = 0x1 | 0x2

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
_munmap = _libc.munmap
_munmap.restype = ctypes.c_int
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@functools.cache
def _anchor_type(length: int) -> Any:
    """Return the type of anchors for one length; lengths are powers of two, so there are few types.

    An anchor exports the mapped buffer itself. numpy, torch and memoryview slices keep the exporter of a memoryview, never the
    memoryview. So the end of a memoryview would say nothing about the tensors built over it.
    """
    return type("Anchor", (ctypes.c_char * length,), {"__slots__": ("mapping",)})


class PageLock:
    """The first bytes of a mapping, registered with a driver. A forked child has not registered them, and leaves them alone."""

    __slots__ = ("_address", "_getpid", "_owner_pid", "_unregister", "nbytes")

    def __init__(self, address: int, nbytes: int, unregister: Callable[[int], int]) -> None:
        self.nbytes = nbytes
        self._address = address
        self._unregister = unregister
        self._getpid = os.getpid
        self._owner_pid = os.getpid()

    def end(self) -> None:
        """Unregister them. The driver of a lost device, or of a process that ends, may refuse: nobody can do more then."""
        if self._getpid() == self._owner_pid:
            try:  # noqa: SIM105  # at the interpreter's end this module may have lost its imports
                self._unregister(self._address)
            except Exception:
                pass


class SharedMapping:
    """A shared mapping of ``length`` bytes of a file; unmapped when its last anchor dies.

    Any thread. ``__del__`` may run inside garbage collection; it only unregisters and unmaps.
    """

    __slots__ = ("_from_address", "_mapped", "_unmap", "address", "length", "limit", "page_lock", "view")

    def __init__(self, fd: int, offset: int, length: int) -> None:
        self.length = length
        self.page_lock: PageLock | None = None
        self._unmap: Callable[[Any, int], int] = _munmap
        self._mapped: list[int | None] = []
        # All of it in C: Ctrl-C, which comes between bytecodes, finds the address where ``__del__`` looks for it.
        self._mapped.extend(
            map(_mmap, (None,), (length,), (_PROT_READ_WRITE,), (_MAP_SHARED,), (fd,), (offset,))
        )
        address = self._mapped[0]
        if address == _MAP_FAILED or address is None:
            self._mapped.clear()
            code = ctypes.get_errno()
            why = f"{os.strerror(code)}: mapping {length} bytes of shared memory; see RLIMIT_AS (ulimit -v)"
            raise OSError(code, why)
        self.address: int = address
        self.limit = address + length
        self._from_address: Callable[[int], Any] = _anchor_type(length).from_address
        # For the owner's own reads and writes: keeps nothing alive, valid only as long as the mapping.
        self.view = memoryview(self._from_address(address)).cast("B")

    def anchor(self) -> Any:
        """Return a new exporter of the mapped bytes. Tensors over it keep it, and it keeps the mapping."""
        anchor = self._from_address(self.address)
        anchor.mapping = self
        return anchor

    def lock(self, nbytes: int, register: Callable[[int, int], int], unregister: Callable[[int], int]) -> int:
        """Register the first ``nbytes`` with a driver; returns its answer, 0 if it did. Nothing may be reading them.

        Only pages in use are registered: a registered page exists. A batch that outgrows its registration gets a larger one.
        """
        grown = self.page_lock is not None
        self.unlock()
        wanted = nbytes + nbytes // _GROWTH_SHARE if grown else nbytes
        length = min(self.length, -(-wanted // MIN_MAPPING_BYTES) * MIN_MAPPING_BYTES)
        code = register(self.address, length)
        if not code:
            self.page_lock = PageLock(self.address, length, unregister)
        return code

    def unlock(self) -> None:
        """Undo ``lock``: before pages are given back to the system, because a device would go on reading the old ones."""
        page_lock, self.page_lock = self.page_lock, None
        if page_lock is not None:
            page_lock.end()

    def __del__(self) -> None:
        if self._mapped:
            if self.page_lock is not None:
                self.page_lock.end()
            self._unmap(self._mapped.pop(), self.length)


def mapping_bytes(nbytes: int, stride: int) -> int:
    """Return the length of a mapping for ``nbytes``: a power of two, at least 64 KiB, at most the stride."""
    if nbytes > stride:
        raise OSError(
            errno.EFBIG,
            f"a batch of {nbytes} bytes exceeds the slot stride of {stride} bytes; "
            "the stride was reduced because of RLIMIT_FSIZE or the file system: raise that limit",
        )
    return min(stride, max(MIN_MAPPING_BYTES, 1 << max(nbytes - 1, 0).bit_length()))


def create(backing: Backing | None) -> tuple[int, Backing]:
    """Create a nameless, empty file for slots; return it and its backing. None prefers memfd."""
    if backing != "file" and hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("stoker-arena", os.MFD_CLOEXEC), "memfd"
        except OSError:
            if backing == "memfd":
                raise
    elif backing == "memfd":
        raise OSError(errno.ENOSYS, "this platform has no memfd_create")
    with tempfile.TemporaryFile(prefix="stoker-arena-", buffering=0) as file:
        return os.dup(file.fileno()), "file"


def reserve(fd: int, offset: int, nbytes: int) -> None:
    """Allocate the pages of a file range now, so that a full disk is an OSError here and no SIGBUS later."""
    if nbytes > 0:
        os.posix_fallocate(fd, offset, nbytes)


def punch(fd: int, offset: int, nbytes: int) -> None:
    """Return the pages of a file range to the system; it then reads as zeros. Does nothing where that is impossible."""
    fallocate = getattr(_libc, "fallocate64", None) or getattr(_libc, "fallocate", None)
    if fallocate is None:
        return
    fallocate.restype = ctypes.c_int
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(fd, _FALLOC_KEEP_SIZE_PUNCH_HOLE, offset, nbytes) != 0:
        code = ctypes.get_errno()
        if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(code, os.strerror(code))
