"""Reads how much memory this process can still take, of the machine and of every cgroup that it is in.

Files that the kernel could drop (the page cache) count as available: a dataset that is read from disk fills a cgroup up to its
limit with them, and nothing is wrong then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from stoker._host.cgroup_memory import UNLIMITED_BYTES, levels

_MOST_BYTES = 8192
"""More than any of these files has."""


class MemoryAvailable(NamedTuple):
    """What can still be taken, and of how much, where it is tightest. None if unknown."""

    available_bytes: int | None
    total_bytes: int | None


class _Level(NamedTuple):
    """The files of one cgroup that has an account of memory."""

    limits: tuple[str, ...]
    used: str
    stat: str


class Gauge:
    """Reads it again and again, in about 0.1 ms. It keeps paths and no descriptors, so it needs no closing and no care at forks.

    Any thread. Never raises. A process that is moved to another cgroup afterwards is read where it was.
    """

    def __init__(self, *, sys: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> None:
        self._meminfo = str(proc / "meminfo")
        self._levels: list[_Level] = []
        for folder, limit, used, _ in levels(sys, proc):
            names = (limit, "memory.high") if limit == "memory.max" else (limit,)
            limits = tuple(path for path in (str(folder / name) for name in names) if os.path.exists(path))
            if limits:
                self._levels.append(_Level(limits, str(folder / used), str(folder / "memory.stat")))

    def read(self) -> MemoryAvailable:
        """The tightest of all, now."""
        tightest = self._machine()
        for level in self._levels:
            here = _left(level)
            if here is not None and (
                tightest.available_bytes is None or here.available_bytes < tightest.available_bytes
            ):
                tightest = MemoryAvailable(*here)
        return tightest

    def _machine(self) -> MemoryAvailable:
        facts = _pairs(_text(self._meminfo))
        available, total = facts.get(b"MemAvailable:"), facts.get(b"MemTotal:")
        if available is None or total is None:
            return _elsewhere()
        return MemoryAvailable(available << 10, total << 10)


class _Left(NamedTuple):
    available_bytes: int
    total_bytes: int


def _left(level: _Level) -> _Left | None:
    """What is left below a cgroup's limit; None where it has none."""
    found = [_number(path) for path in level.limits]
    known = [each for each in found if each is not None and each < UNLIMITED_BYTES]
    if not known:
        return None
    limit = min(known)
    used = _number(level.used) or 0
    facts = _pairs(_text(level.stat))

    def fact(name: bytes) -> int:  # v1 counts the groups below it only under names of their own
        return facts.get(b"total_" + name, facts.get(name, 0))

    # Files in active use would soon be read again, so that only half of them counts; as the kernel does for the machine.
    droppable = fact(b"inactive_file") + fact(b"active_file") // 2 + fact(b"slab_reclaimable") // 2
    return _Left(max(0, limit - used + min(droppable, used)), limit)


def room_bytes() -> int | None:
    """What this process could still take."""
    return Gauge().read().available_bytes


def _elsewhere() -> MemoryAvailable:
    """Without /proc."""
    try:
        import psutil

        memory = psutil.virtual_memory()
        return MemoryAvailable(int(memory.available), int(memory.total))
    except Exception:
        return MemoryAvailable(None, None)


def _text(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(fd, _MOST_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # "max" is no number


def _pairs(text: bytes) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for line in text.splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found
