"""The store: one file in shared memory or on a disk, to which samples are only ever appended.

    header │ index: one word for each slot │ entry │ entry │ …                          the file's end is the next free byte
                        │                      ▲
                        └──────────────────────┘   0, or where the entry lies and the low bits of its tag

A writer appends an entry in one call, on a description of its own opened with O_APPEND. The kernel gives every call its own place.
It reads the entry back, then writes the word of its slot: 8 aligned bytes, in one store. A reader takes no lock. It looks at the
word, and at the entry's own header. A killed writer leaves an entry without a word, which nobody reads.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stoker._runtime.cache.storage.backing import Backing
from stoker._runtime.transport import shared_pages

_log = logging.getLogger("stoker")

MAGIC = b"stkcach1"
HEADER_BYTES = 4096
ALIGN_BYTES = 64
_HEADER = struct.Struct("<8sQQQ32s")
_FULL_AT = 2048
"""The word that says up to which limit the file is full: 0 at first, ``_NO_MORE`` after an error of the system."""
_NO_MORE = (1 << 64) - 1

_ENTRY = struct.Struct("<IIQQQQIIIIQ")
ENTRY_BYTES = _ENTRY.size
_ENTRY_MAGIC = 0x5E7A11ED
_PLACE_BITS = 40
_PLACE_MASK = (1 << _PLACE_BITS) - 1
_TAG_MASK = (1 << 24) - 1
_MOST_CHUNKS = 512
_MOST_ENTRY_BYTES = 1 << 30
_PAGE_BYTES = 4096


class EntryKey(NamedTuple):
    """What an entry was made from: two words that name the sample, and the identity of the code and data behind it."""

    first: int
    second: int
    tag: int


class Entry(NamedTuple):
    """A found entry: places in the mapping, and what its sample cost."""

    start: int
    root_start: int
    root_stop: int
    facts_stop: int
    cost_ns: int


class Store:
    """One open store. Made once per process by :mod:`stoker._runtime.cache.storage.attaching`; any thread reads and appends.

    A fork inherits the mapping. The description for appending is opened anew in every process, because its position is shared
    otherwise.
    """

    def __init__(self, backing: Backing, *, slots: int, limit_bytes: int, checks: bool) -> None:
        self.backing = backing
        self.slots = slots
        self.limit_bytes = limit_bytes
        self.data_start = data_start(slots)
        size = max(self.data_start + limit_bytes, os.fstat(backing.fd).st_size)  # filled with a larger limit
        self._mapped = -(-size // shared_pages.MIN_MAPPING_BYTES) * shared_pages.MIN_MAPPING_BYTES
        mapping = shared_pages.SharedMapping(backing.fd, 0, self._mapped)
        self.anchor: Any = mapping.anchor()
        self.view = mapping.view
        self.words = self.view[HEADER_BYTES : HEADER_BYTES + 8 * slots].cast("Q")
        self._flags = self.view[_FULL_AT : _FULL_AT + 8].cast("Q")
        self._end = 0
        self._checks = checks
        self._boot = backing.boot
        self._checked: set[int] = set()
        self._append_fd = -1
        self._append_pid = 0
        self._lock = threading.Lock()
        self._told = False

    # Readers

    def find(self, slot: int, key: EntryKey) -> Entry | None:
        """Return the entry of a slot if it is the sample of this key; None if it is absent, another, or damaged."""
        word = self.words[slot]
        if not word:
            return None
        if word >> _PLACE_BITS != key.tag & _TAG_MASK:
            return None
        at = (word & _PLACE_MASK) * ALIGN_BYTES
        if at + ENTRY_BYTES > self._end and not self._reaches(at + ENTRY_BYTES):
            return None
        magic, crc, first, second, tag, nbytes, root_start, root_bytes, facts_bytes, boot, cost_ns = (
            _ENTRY.unpack_from(self.view, at)
        )
        if (first, second, tag) != key or magic != _ENTRY_MAGIC:
            return None
        start = at + ENTRY_BYTES
        if start + nbytes > self._end and not self._reaches(start + nbytes):
            return None
        root_stop = root_start + root_bytes
        if root_stop + facts_bytes != nbytes:
            return None
        if self._checks and boot != self._boot and at not in self._checked:
            # The machine was restarted since: the kernel may have written the index and not the entry.
            about = (key, nbytes, root_start, root_bytes, facts_bytes, boot, cost_ns)
            if _checksum(about, (self.view[start : start + nbytes],)) != crc:
                return None
            self._checked.add(at)
        return Entry(start, start + root_start, start + root_stop, start + nbytes, cost_ns)

    def _reaches(self, nbytes: int) -> bool:
        """Whether the file is that long by now, and mapped. A page behind its end would be a SIGBUS."""
        self._end = min(os.fstat(self.backing.fd).st_size, self._mapped)
        return nbytes <= self._end

    # Writers

    @property
    def full(self) -> bool:
        """Whether a writer with this limit, or a larger one, found no more room."""
        return bool(self._flags[0] >= self.limit_bytes) or self.stored_bytes >= self.limit_bytes

    def try_again(self) -> None:
        """Fill a file that an error of the system ended the filling of: the disk may have room by now."""
        if self._flags[0] == _NO_MORE:
            self._flags[0] = 0

    def append(
        self, slot: int, key: EntryKey, data: Sequence[Any], root: bytes, facts: bytes, cost_ns: int
    ) -> int:
        """Keep a sample: append it and write its word. Returns the bytes it takes; 0 if there is no room.

        ``data`` are buffers that lie one behind the other; their length together is where the root begins.
        """
        if self._flags[0] >= self.limit_bytes:
            return 0
        root_start = sum([len(each) for each in data])
        nbytes = root_start + len(root) + len(facts)
        padding = -(ENTRY_BYTES + nbytes) % ALIGN_BYTES
        whole = ENTRY_BYTES + nbytes + padding
        if whole > min(_MOST_ENTRY_BYTES, self.limit_bytes):
            return 0
        limit = self.data_start + self.limit_bytes
        if os.fstat(self.backing.fd).st_size + whole > limit:
            self._warn_of_old_entries(key.tag, whole)
            self.stop_filling(None)
            return 0
        about = (key, nbytes, root_start, len(root), len(facts), self._boot, cost_ns)
        crc = _checksum(about, (*data, root, facts)) if self._checks else 0
        head = _entry_header(crc, *about)
        at = self._write([head, *data, root, facts, bytes(padding)], whole, head)
        if at is None or at + whole > limit:
            return 0
        self.words[slot] = (key.tag & _TAG_MASK) << _PLACE_BITS | at // ALIGN_BYTES
        return whole

    def _write(self, chunks: list[Any], whole: int, head: bytes) -> int | None:
        """Append in one call; return where it lies. None, with a note, when the system has no room."""
        if len(chunks) > _MOST_CHUNKS:
            chunks = [b"".join(chunks)]
        for _ in range(2):
            try:
                with self._lock:
                    fd = self._appender()
                    written = os.writev(fd, chunks)
                    end = os.lseek(fd, 0, os.SEEK_CUR)
            except OSError as error:
                self.stop_filling(error)
                return None
            if written != whole:
                self.stop_filling(OSError("only a part of a sample could be written"))
                return None
            at = end - whole
            if at % ALIGN_BYTES:  # another writer's call was cut off in the middle of a page
                self._align(fd)
                continue
            # A file system without atomic appends could give one place to two writers.
            if self._reaches(end) and self.view[at : at + ENTRY_BYTES] == head:
                return at
        return None

    def _align(self, fd: int) -> None:
        with self._lock:
            size = os.fstat(fd).st_size
            os.write(fd, bytes(-size % _PAGE_BYTES))

    def _appender(self) -> int:
        """Return this process's own description of the file, for appending."""
        if self._append_pid != os.getpid():
            self.close_appender()
            self._append_fd = self.backing.reopen(os.O_WRONLY | os.O_APPEND)
            self._append_pid = os.getpid()
        return self._append_fd

    def _warn_of_old_entries(self, tag: int, typical_bytes: int) -> None:
        """Say so if entries of other tags take more than half of the store, just before it counts as full."""
        tags = np.frombuffer(self.words, np.uint64) >> np.uint64(_PLACE_BITS)
        used_bytes = int(np.count_nonzero(tags == tag & _TAG_MASK)) * typical_bytes
        if 2 * used_bytes < self.stored_bytes and not self.full:
            _log.warning(
                "the sample cache %s is full, mostly of samples from before an attribute of the dataset changed. Those are not "
                "used again. Cache what does not depend on that attribute: dataset.loader = stoker.cached(dataset.loader)",
                self.backing.shown,
            )

    def stop_filling(self, error: OSError | None) -> None:
        """Note for all processes that nothing more fits, and say so once. What is kept stays."""
        if self._flags[0] < self.limit_bytes:
            self._flags[0] = self.limit_bytes if error is None else _NO_MORE
            if error is not None:
                _log.warning(
                    "the sample cache %s is no longer filled: %s. Samples that it has are still used; the rest is made "
                    "each time",
                    self.backing.shown,
                    error.strerror or error,
                )

    # Both

    @property
    def stored_bytes(self) -> int:
        """How many bytes the entries take."""
        return max(0, os.fstat(self.backing.fd).st_size - self.data_start)

    @property
    def entries(self) -> int:
        """How many samples can be found."""
        return int(np.count_nonzero(np.frombuffer(self.words, np.uint64)))

    def after_fork(self) -> None:
        """In the child: no thread holds the lock any more, and the description belongs to the parent."""
        self._lock = threading.Lock()

    def close_appender(self) -> None:
        """Close the description for appending."""
        fd, self._append_fd = self._append_fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptors, and unmap with the last sample that was handed out as a view. Idempotent."""
        self.close_appender()
        self.anchor, self.view = None, memoryview(b"")
        self.words = self._flags = self.view[:0].cast("Q")
        self.backing.close()


def _entry_header(crc: int, key: EntryKey, *facts: int) -> bytes:
    return _ENTRY.pack(_ENTRY_MAGIC, crc, *key, *facts)


def _checksum(about: Any, data: Sequence[Any]) -> int:
    """Return the checksum of an entry: of its header, without the checksum itself, and of its data."""
    crc = zlib.crc32(_entry_header(0, *about))
    for each in data:
        crc = zlib.crc32(each, crc)
    return crc


def data_start(slots: int) -> int:
    """Return where the entries begin, in a store with this many slots."""
    return HEADER_BYTES + -(-8 * slots // _PAGE_BYTES) * _PAGE_BYTES


def header(slots: int, limit_bytes: int, identity: bytes) -> bytes:
    """Return the header of a new store."""
    body = _HEADER.pack(MAGIC, slots, limit_bytes, data_start(slots), identity)
    return body + zlib.crc32(body).to_bytes(4, "little")


class StoreHeader(NamedTuple):
    """What the header of a store says."""

    slots: int
    limit_bytes: int
    identity: bytes


def read_header(fd: int) -> StoreHeader | None:
    """Return the header of an open file; None if it is no store that this version reads, or is cut short."""
    data = os.pread(fd, _HEADER.size + 4, 0)
    if len(data) < _HEADER.size + 4 or data[:8] != MAGIC:
        return None
    if zlib.crc32(data[: _HEADER.size]) != int.from_bytes(data[_HEADER.size :], "little"):
        return None
    _, slots, limit_bytes, start, identity = _HEADER.unpack(data[: _HEADER.size])
    if start != data_start(slots) or os.fstat(fd).st_size < start:
        return None
    return StoreHeader(slots, limit_bytes, identity)
