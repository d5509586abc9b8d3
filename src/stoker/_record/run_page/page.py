"""The run page: what a loader is doing now, readable by other processes of this user while it runs (``stoker top``).

One small memfd per loader, named so that tools can find it, and gone with the process. It begins with 64-bit words. Those of the
consumer (``ASKED_NS``, ``GIVEN_NS``, ``STEPS``) are written one at a time, with every batch; the rest says whose page this is, and
guards a block of JSON (``Summary``) that is written anew a few times a second: ``EDITION`` is odd while it is being written, and
``CHECKSUM`` tells a reader that has all of it.

    writer: RunPage, in the process that iterates          reader: read(), by pread, so that a page cut short kills nobody
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import time
import zlib
from contextlib import suppress
from typing import NamedTuple

from stoker._host import bounded_json
from stoker._record.live_objects import LiveObjects
from stoker._record.run_page.summary import Summary
from stoker.errors import RecordError

NAME = "stoker-run"
VERSION = 1
PERIOD_NS = 1_000_000_000
"""How often the summary is written, at most."""

WORDS = 32
PAGE_BYTES = 1 << 15
_MAGIC = int.from_bytes(b"stokrun\0", "little")
_START = WORDS * 8
_TRIES = 8
_PAUSE_S = 0.0005
"""Between two tries: a summary takes its writer below 50 µs, unless it is kept from its CPU."""

# Words
MAGIC = 0
FORMAT = 1
OWNER_PID = 2
OWNER_START = 3
"""When the owner started, in clock ticks since boot: another process may have its pid by now. 0: there is no /proc."""
ASKED_NS = 4
"""Since when the consumer waits for a batch, on the monotonic clock; 0 while it does not."""
GIVEN_NS = 5
"""When it was given the last batch."""
STEPS = 6
"""Batches that it was given."""
EDITION = 7
LENGTH = 8
CHECKSUM = 9

_pages: LiveObjects[RunPage] = LiveObjects()
MOST = 256
MOST_IDLE = 32
"""Pages of one process, each of which takes a descriptor: somebody may keep thousands of loaders. With more than a few, loaders
have one only while they are iterated, and beyond ``MOST`` none."""


def pages() -> int:
    """How many there are in this process."""
    return _pages.count()


class RunPage:
    """The writer's side. Made, written and closed in the process that iterates; a forked child's writes go nowhere.

    ``words`` is for the hot path: one item assignment each. Take it from the page every time, for a fork replaces it.
    """

    words: memoryview

    def __init__(self, mapping: mmap.mmap, inode: int) -> None:
        self._map: mmap.mmap | None = mapping
        self.words = memoryview(mapping).cast("q")
        self.inode = inode
        """What the status page of a pool names its run page by."""

    @classmethod
    def create(cls) -> RunPage:
        """A new page of this process. Raises OSError when there is no memory or no descriptor to be had."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
        else:
            fd, path = tempfile.mkstemp(prefix=f"{NAME}-")
            os.unlink(path)
        try:
            os.ftruncate(fd, PAGE_BYTES)
            page = cls(mmap.mmap(fd, PAGE_BYTES), os.fstat(fd).st_ino)
        finally:
            os.close(fd)  # the mapping has a descriptor of its own, which goes when it does
        words = page.words
        words[FORMAT] = VERSION
        words[OWNER_PID] = os.getpid()
        words[OWNER_START] = started() or 0
        words[MAGIC] = _MAGIC
        _pages.add(page)
        return page

    def write(self, summary: Summary) -> bool:
        """Put a new summary in the place of the last one; False when nobody can read it. On the thread that iterates."""
        if self._map is None:
            return False
        text = json.dumps(summary, separators=(",", ":"), default=repr).encode(errors="replace")
        if len(text) > PAGE_BYTES - _START:
            return False
        words = self.words
        # An interrupt in the last edition left the number odd.
        edition = words[EDITION] | 1
        words[EDITION] = edition
        words[LENGTH] = len(text)
        words[CHECKSUM] = zlib.crc32(text)
        self._map[_START : _START + len(text)] = text
        words[EDITION] = edition + 1
        return True

    def close(self) -> None:
        """Take the page away. Idempotent; what is still written to ``words`` goes nowhere."""
        mapping, self._map = self._map, None
        if mapping is None:
            return
        own, self.words = self.words, memoryview(bytearray(_START)).cast("q")
        own.release()
        with suppress(BufferError):  # somebody holds a view of it; it goes with that
            mapping.close()


def _let_go() -> None:
    """In a forked child: the page tells what the parent does, and must not outlive it here."""
    for page in _pages.all():
        page.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class PageReading(NamedTuple):
    """A run page at one moment. ``summary`` is None before the first one, and when it was being written all the time."""

    owner_pid: int
    owner_start: int
    asked_ns: int
    given_ns: int
    steps: int
    summary: Summary | None


def read(fd: int) -> PageReading:
    """What the page behind a descriptor says. Raises RecordError for what is no run page, or one of another version."""
    words, summary = _head(fd), None
    for _ in range(_TRIES):
        if words[EDITION]:
            summary = _summary(os.pread(fd, min(max(0, words[LENGTH]), PAGE_BYTES), _START), words)
        if summary is not None or not words[EDITION]:
            break
        time.sleep(_PAUSE_S)
        words = _head(fd)
    owner_pid, owner_start, asked_ns, given_ns, steps = words[OWNER_PID : STEPS + 1]
    return PageReading(owner_pid, owner_start, asked_ns, given_ns, steps, summary)


def _head(fd: int) -> memoryview:
    head = os.pread(fd, _START, 0)
    words = memoryview(head).cast("q") if len(head) == _START else None
    if words is None or words[MAGIC] != _MAGIC:
        raise RecordError("this is no run page of stoker")
    if words[FORMAT] != VERSION:
        raise RecordError(
            f"the loader's process writes run pages of version {words[FORMAT]}, and this stoker reads {VERSION}: "
            "watch it with the stoker that it runs with"
        )
    return words


def _summary(text: bytes, words: memoryview) -> Summary | None:
    """The summary, unless its writer was in the middle of it."""
    if words[EDITION] & 1 or zlib.crc32(text) != words[CHECKSUM]:
        return None
    try:
        found = bounded_json.loads(text)
    except ValueError as error:
        raise RecordError(f"the run page's summary is damaged: {error}") from error
    from stoker._record.run_page.summary_checks import checked  # for tools: who writes pages needs it not

    return checked(found)


def started(folder: str = "/proc/self") -> int | None:
    """When the process of this folder started, in clock ticks since boot; None when it is gone or /proc does not say."""
    with suppress(OSError, ValueError, IndexError), open(f"{folder}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[19])
    return None
