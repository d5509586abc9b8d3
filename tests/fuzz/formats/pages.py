"""Run pages and status pages: what ``stoker top`` reads of other processes."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from random import Random

from stoker._record.run_page import page
from stoker._record.run_page.summary import RecentSums, summary_of
from stoker._runtime.protocol import status_page
from stoker._tools.top import processes
from stoker._tools.top.lines import board, folded
from stoker._tools.top.live import document, live
from stoker._tools.top.processes import LoaderSeen, PoolSeen, ProcessScan
from stoker.errors import RecordError
from tests.fuzz import mutation
from tests.fuzz.format import Format
from tests.unit.records import MS, SECOND, loader

_AT = 1000 * SECOND
_START = page._START


def _page(summary: bytes, *, asked_ns: int = 0) -> bytes:
    words = memoryview(bytearray(_START)).cast("q")
    words[page.MAGIC], words[page.FORMAT] = page._MAGIC, page.VERSION
    words[page.OWNER_PID], words[page.OWNER_START] = os.getpid(), 0
    words[page.ASKED_NS], words[page.GIVEN_NS], words[page.STEPS] = asked_ns, _AT - MS, 100
    return _sealed(words.tobytes(), summary)


def _sealed(head: bytes, summary: bytes) -> bytes:
    """With a length and a checksum that are right."""
    words = memoryview(bytearray(head)).cast("q")
    words[page.EDITION], words[page.LENGTH], words[page.CHECKSUM] = 2, len(summary), zlib.crc32(summary)
    return (words.tobytes() + summary).ljust(page.PAGE_BYTES, b"\0")


def _run_pages() -> list[bytes]:
    waits = {("fetch", 0, "io"): 0.6, ("fetch", 1, "compute"): 0.4}
    found = []
    for executor, asked_ns in (("process", 0), ("inline", _AT - 5 * SECOND)):
        told = summary_of(
            loader(waits, executor=executor), RecentSums(), workers=2, at_ns=_AT - SECOND, depth=3
        )
        found.append(_page(json.dumps(told).encode(), asked_ns=asked_ns))
    return found


def _run_page(data: bytes, _: Path) -> None:
    fd = _memory(data)
    try:
        reading = page.read(fd)
    finally:
        os.close(fd)
    seen = LoaderSeen((1, 2), os.getpid(), "train.py", reading, (_POOL,))
    _show(ProcessScan(_AT, (seen,)), ProcessScan(_AT - SECOND, (seen,)))


def _show(now: ProcessScan, before: ProcessScan) -> None:
    loaders = live(now, before)
    for each in loaders:
        for line in board(each):
            folded(line, 60)
    json.dumps(document(loaders, (), at_unix_s=1.0))


def _mutate_run_page(dice: Random, data: bytes) -> bytes:
    """Mostly of the summary, with a right checksum."""
    head, size = data[:_START], memoryview(data[:_START]).cast("q")[page.LENGTH]
    chosen = dice.random()
    if chosen < 0.15:
        return mutation.any_bytes(dice, data)
    if chosen < 0.3:
        head = mutation.any_bytes(dice, head)[:_START].ljust(_START, b"\0")
    summary = mutation.any_json(dice, data[_START : _START + size])
    if len(summary) > page.PAGE_BYTES - _START:  # deep nesting that fits
        summary = b"[" * (page.PAGE_BYTES - _START)
    return _sealed(head, summary)


def _rows() -> list[bytes]:
    words = memoryview(bytearray(status_page.ROW_BYTES * 4)).cast("q")
    words[status_page.FORMAT], words[status_page.PARENT_PID] = status_page.VERSION, _OWNER
    words[status_page.EPOCH] = 1
    for place in (1, 2):
        row = words[place * status_page.WORDS :]
        row[status_page.PID], row[status_page.PHASE] = os.getpid(), status_page.WORKING
        row[status_page.SINCE_NS], row[status_page.W_EPOCH], row[status_page.SEQ] = _AT - MS, 1, place
        row[status_page.BUSY_NS], row[status_page.TASKS] = SECOND, 9
    return [words.tobytes()]


_OWNER = 0x7E57_0FF1CE
"""Stands for the process that reads: it was forked from the one that made the whole inputs, and has another number."""


def _status_page(data: bytes, _: Path) -> None:
    place = slice(8 * status_page.PARENT_PID, 8 * status_page.PARENT_PID + 8)
    if data[place] == _OWNER.to_bytes(8, "little"):
        data = data[: place.start] + os.getpid().to_bytes(8, "little") + data[place.stop :]
    fd = _memory(data)
    try:
        pool = processes._pool(fd, [os.getpid()], "/proc")
    finally:
        os.close(fd)
    if pool is not None:
        seen = LoaderSeen((1, 2), os.getpid(), "train.py", None, (pool,))
        _show(ProcessScan(_AT, (seen,)), ProcessScan(_AT - SECOND, (seen,)))


def _memory(data: bytes) -> int:
    fd = os.memfd_create("fuzz", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd


_POOL = PoolSeen(1, 2, 1, ())
FORMATS = (
    Format("run-page", _run_pages, _run_page, (RecordError,), _mutate_run_page, weight=8),
    Format("status-page", _rows, _status_page, (RecordError,), weight=4),
)
