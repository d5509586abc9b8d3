"""The file through which the local ranks of a job agree: small, private, one row per rank, written by that rank alone.

Rows are read and written whole with one call each, and end with a checksum: one that is caught half-written is not believed. There
is no mapping, so a file that is cut short kills nobody, and no lock on the way of a window: one is held for the moment in which a
seat is taken, or a page taken away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stoker._record.run_page.page import started
from stoker._runtime.autoscale.rank_report import RankReport

_MAGIC = b"stokcon1"
_ROW = struct.Struct("<8s8q13d")
ROW_BYTES = 256
_PREFIX = "concord-"
_TRIES = 20
_PAUSE_S = 0.001
_SILENT_S = 86_400
_MOST_OLD = 64
"""Pages of others that are looked at, at most, to take dead ones away."""


class RankRow(NamedTuple):
    """One rank's row: its process, what it published last, and its report. ``token`` tells two rows of one process apart."""

    pid: int
    start: int
    """When the process started, in clock ticks since boot; 0 where nobody tells."""
    token: int
    at_ns: int
    """When the report was written, on the monotonic clock; 0 before the first."""
    sequence: int = 0
    workers: int = 0
    window: int = 0
    split: int = 0
    report: RankReport | None = None

    def pack(self) -> bytes:
        """The row as it is written."""
        *whole, report = self
        row = _ROW.pack(_MAGIC, *whole, *(report or [0.0] * len(RankReport._fields)))
        return row + struct.pack("<I", zlib.crc32(row))

    @classmethod
    def unpack(cls, data: bytes) -> RankRow | None:
        """None for a row that nobody wrote, or that is being written."""
        row = data[: _ROW.size]
        if len(data) < _ROW.size + 4 or not row.startswith(_MAGIC):
            return None
        if struct.unpack_from("<I", data, _ROW.size)[0] != zlib.crc32(row):
            return None
        _, pid, start, token, at_ns, sequence, workers, window, split, *seen = _ROW.unpack(row)
        report = RankReport.from_numbers(seen) if at_ns else None
        return cls(pid, start, token, at_ns, sequence, workers, window, split, report)

    @property
    def alive(self) -> bool:
        """Whether its process is still there, and still the same."""
        if self.start:
            return started(f"/proc/{self.pid}") == self.start
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True


def folder(environ: Mapping[str, str]) -> Path:
    """Where pages are: a folder that belongs to this user and that nobody else can look into. Raises OSError if there is none."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    user = os.geteuid()
    if runtime and os.path.isabs(runtime) and _private(runtime, user):
        place = Path(runtime, "stoker")
    else:
        place = Path(tempfile.gettempdir(), f"stoker-{user}")
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    if not _private(place, user):
        raise PermissionError(f"{place} is not a private folder of this user")
    return place


def _private(path: str | Path, user: int) -> bool:
    with suppress(OSError):
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077
    return False


def name_of(job: str, key: str) -> str:
    """The page's name. Ranks in another pid namespace cannot be told dead from alive: they have a page of their own."""
    return _prefix() + hashlib.sha256(f"{job}\n{key}".encode()).hexdigest()[:24]


def _prefix() -> str:
    """How names of pages begin whose ranks this process can see."""
    space = 0
    with suppress(OSError):
        space = os.stat("/proc/self/ns/pid").st_ino
    return f"{_PREFIX}{space:x}-"


def open_page(path: Path) -> int:
    """A descriptor of the page, made if need be. Raises OSError, also for a page that is not ours alone."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(f"{path} is not a private file of this user")
    return fd


def take(path: Path, rank: int, seat: RankRow) -> int:
    """Sit down: a descriptor of the page at this path, with the seat written. Raises OSError when it cannot be had soon."""
    for _ in range(_TRIES):
        fd = open_page(path)
        try:
            with locked(fd, fcntl.LOCK_SH) as mine:
                if mine and _is_at(path, fd):  # else somebody is taking away what was left by a dead job
                    write(fd, rank, seat)
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(_PAUSE_S)
    raise TimeoutError(f"{path} is held by somebody else")


@contextmanager
def locked(fd: int, kind: int) -> Iterator[bool]:
    """Whether the lock was had; it is not waited for."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def write(fd: int, rank: int, seat: RankRow) -> None:
    """Put the row in its place. Raises OSError."""
    data = seat.pack().ljust(ROW_BYTES, b"\0")
    if os.pwrite(fd, data, rank * ROW_BYTES) != len(data):
        raise OSError("no room for the page")


def read(fd: int, ranks: int) -> list[RankRow | None]:
    """All rows. Raises OSError."""
    data = os.pread(fd, ranks * ROW_BYTES, 0)
    return [RankRow.unpack(data[place * ROW_BYTES : (place + 1) * ROW_BYTES]) for place in range(ranks)]


def vacate(path: Path, fd: int, rank: int) -> None:
    """Give the seat up, and take the page away when nobody is left. Raises OSError."""
    os.pwrite(fd, b"\0" * ROW_BYTES, rank * ROW_BYTES)
    _remove_if_dead(path, fd)


def sweep(place: Path) -> None:
    """Take pages away whose jobs are gone; those of other pid namespaces after a day without a word. Never raises."""
    with suppress(OSError):
        ours = _prefix()
        names = [name for name in sorted(os.listdir(place)) if name.startswith(_PREFIX)]
        for name in names[:_MOST_OLD]:
            with suppress(OSError):
                if not name.startswith(ours) and time.time() - os.lstat(place / name).st_mtime < _SILENT_S:
                    continue
                fd = open_page(place / name)
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
