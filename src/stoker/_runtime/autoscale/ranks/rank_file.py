"""The file through which the local ranks of a job agree. It is small and private and has one row per rank, which that rank
writes.

One call reads or writes a whole row. A row ends with a checksum, so that a half-written row is ignored. The file is not mapped:
if it is truncated, no process crashes. Observations take no lock; a lock is held only while a row is taken or a file is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stoker._record.run_page.page import started
from stoker._runtime.autoscale.ranks.rank_report import RankReport

_MAGIC = b"stokcon1"
_ROW = struct.Struct("<8s8q13d")
ROW_BYTES = 256
_PREFIX = "ranks-"
_TRIES = 20
_PAUSE_S = 0.001
_SILENT_S = 86_400
_MOST_PID = (1 << 31) - 1
_MOST_WORKERS, _MOST_WINDOW = 1 << 16, 1 << 32
_MOST_OLD = 64
"""The most files of other jobs that are checked, to remove those of dead jobs."""


class RankRow(NamedTuple):
    """One rank's row: its process, its last published decision, and its report. ``token`` tells two rows of one process apart."""

    pid: int
    start: int
    """The start of the process, in clock ticks since boot; 0 if unknown."""
    token: int
    at_ns: int
    """The time of the report on the monotonic clock; 0 before the first."""
    sequence: int = 0
    workers: int = 0
    window: int = 0
    split: int = 0
    report: RankReport | None = None

    def pack(self) -> bytes:
        """The bytes of the row."""
        *whole, report = self
        row = _ROW.pack(_MAGIC, *whole, *(report or [0.0] * len(RankReport._fields)))
        return row + struct.pack("<I", zlib.crc32(row))

    @classmethod
    def unpack(cls, data: bytes) -> RankRow | None:
        """The row; None if it was never written, is being written, or has numbers that no rank writes."""
        row = data[: _ROW.size]
        if len(data) < _ROW.size + 4 or not row.startswith(_MAGIC):
            return None
        if struct.unpack_from("<I", data, _ROW.size)[0] != zlib.crc32(row):
            return None
        _, pid, start, token, at_ns, sequence, workers, window, split, *seen = _ROW.unpack(row)
        if not (0 < pid <= _MOST_PID and 0 <= workers <= _MOST_WORKERS and 0 <= window <= _MOST_WINDOW):
            return None
        try:
            report = RankReport.from_numbers(seen) if at_ns else None
        except ValueError:
            return None
        return cls(pid, start, token, at_ns, sequence, workers, window, split, report)

    @property
    def alive(self) -> bool:
        """Whether its process still exists and is the same one."""
        if self.start:
            return started(f"/proc/{self.pid}") == self.start
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True


def name_of(job: str, key: str) -> str:
    """The file's name. Ranks in another pid namespace have a file of their own, because this process cannot see whether they
    live.
    """
    return _prefix() + hashlib.sha256(f"{job}\n{key}".encode()).hexdigest()[:24]


def _prefix() -> str:
    """The beginning of the names of files whose ranks this process can see."""
    space = 0
    with suppress(OSError):
        space = os.stat("/proc/self/ns/pid").st_ino
    return f"{_PREFIX}{space:x}-"


def open_file(path: Path) -> int:
    """Open the file, and make it if necessary. Raises OSError, also for a file that is not private to this user."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(f"{path} is not a private file of this user")
    return fd


def take_row(path: Path, rank: int, row: RankRow) -> int:
    """Take a row: open the file at this path and write the row. Raises OSError if that is not possible soon."""
    for _ in range(_TRIES):
        fd = open_file(path)
        try:
            with locked(fd, fcntl.LOCK_SH) as mine:
                if mine and _is_at(path, fd):  # otherwise a process is removing the file of a dead job
                    write(fd, rank, row)
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"{path} is held by somebody else")


@contextmanager
def locked(fd: int, kind: int) -> Iterator[bool]:
    """Try to take the lock, without waiting. Yields whether it succeeded."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def write(fd: int, rank: int, row: RankRow) -> None:
    """Write the row at its position. Raises OSError."""
    data = row.pack().ljust(ROW_BYTES, b"\0")
    if os.pwrite(fd, data, rank * ROW_BYTES) != len(data):
        raise OSError("no room for the file")


def read(fd: int, ranks: int) -> list[RankRow | None]:
    """Read all rows. Raises OSError."""
    data = os.pread(fd, ranks * ROW_BYTES, 0)
    return [RankRow.unpack(data[place * ROW_BYTES : (place + 1) * ROW_BYTES]) for place in range(ranks)]


def release(path: Path, fd: int, rank: int) -> None:
    """Clear the row, and remove the file if no rank is left. Raises OSError."""
    os.pwrite(fd, b"\0" * ROW_BYTES, rank * ROW_BYTES)
    _remove_if_dead(path, fd)


def remove_dead(place: Path) -> None:
    """Remove files of dead jobs; those of other pid namespaces after a day without a change. Never raises."""
    with suppress(OSError):
        ours = _prefix()
        names = [name for name in sorted(os.listdir(place)) if name.startswith(_PREFIX)]
        for name in names[:_MOST_OLD]:
            with suppress(OSError):
                if not name.startswith(ours) and time.time() - os.lstat(place / name).st_mtime < _SILENT_S:
                    continue
                fd = open_file(place / name)
                try:
                    _remove_if_dead(place / name, fd)
                finally:
                    os.close(fd)


def _remove_if_dead(path: Path, fd: int) -> None:
    with locked(fd, fcntl.LOCK_EX) as mine:
        if not mine or not _is_at(path, fd):
            return
        rows = -(-os.fstat(fd).st_size // ROW_BYTES)
        if not any(each is not None and each.alive for each in read(fd, rows)):
            os.unlink(path)


def _is_at(path: Path, fd: int) -> bool:
    """Whether the descriptor's file is still the one at this path."""
    with suppress(FileNotFoundError):
        there, here = os.stat(path), os.fstat(fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
    return False
