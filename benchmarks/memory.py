"""What workers hold that nobody shares with them, read from the kernel. Runs in the round's process, on its main thread.

A page that only one process maps counts as private, also a page of a shared file that the others have merely not touched: nobody
copied it. So there are two figures. ``private`` is the kernel's, all such pages. ``own`` leaves out what is a page of
a shared file itself (a memfd, or a file in /dev/shm) and not a copy of one: it is what the worker costs beyond what all share.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+)\s*(.*)$")
_SHARED_FILES = ("/memfd:", "/dev/shm/")
_OURS = "/memfd:stoker"


@dataclass(frozen=True)
class Held:
    """Memory of one process, or of several together, that no other process has."""

    private_bytes: int = 0
    own_bytes: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(self.private_bytes + other.private_bytes, self.own_bytes + other.own_bytes)

    def __sub__(self, other: Held) -> Held:
        return Held(self.private_bytes - other.private_bytes, self.own_bytes - other.own_bytes)

    @classmethod
    def by(cls, workers: list[Any]) -> Held:
        """What these processes hold together at this moment."""
        return sum((cls._by(worker.pid) for worker in workers), cls())

    @classmethod
    def _by(cls, pid: int) -> Held:
        private_bytes = own_bytes = 0
        for name, _, sizes in _mappings(pid):
            private = sizes["Private_Clean"] + sizes["Private_Dirty"]
            private_bytes += private
            own_bytes += min(private, sizes["Anonymous"]) if name.startswith(_SHARED_FILES) else private
        return cls(private_bytes, own_bytes)


def mapped_bytes() -> int:
    """Size of the shared memory of stoker that this process maps, each file once."""
    files: dict[int, int] = {}
    for name, inode, sizes in _mappings("self"):
        if name.startswith(_OURS):
            files[inode] = max(files.get(inode, 0), sizes["Size"])
    return sum(files.values())


def _mappings(pid: int | str) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Every mapping of a process: its name, its inode, and what the kernel counts of it, in bytes."""
    with open(f"/proc/{pid}/smaps") as lines:
        found: tuple[str, int, dict[str, int]] | None = None
        for line in lines:
            if start := _MAPPING.match(line):
                if found is not None:
                    yield found
                found = (start[2], int(start[1]), {})
            elif found is not None and line.endswith("kB\n"):
                name, count, _ = line.split()
                found[2][name[:-1]] = int(count) * 1024
        if found is not None:
            yield found


@dataclass(frozen=True)
class Epoch:
    """One epoch of a loader whose samples end with the pid of their worker; the workers must be persistent.

    ``early`` is read when every worker has made a batch, ``late`` when all batches are there and the workers still are.
    """

    early: Held
    late: Held
    batches: int
    elapsed_s: float
    first: Any


def run_epoch(loader: Any) -> Epoch:
    """Iterate once, and read the workers' memory twice on the way."""
    start_s = time.perf_counter()
    iterator = iter(loader)
    workers = list(iterator._workers)
    seen: set[int] = set()
    early, first, batches = None, None, 0
    for batches, batch in enumerate(iterator, start=1):
        first = batch[:-1] if first is None else first
        seen.update(batch[-1].tolist())
        if early is None and len(seen) == len(workers):
            early = Held.by(workers)
        if batches == len(loader):
            break
    elapsed_s = time.perf_counter() - start_s
    if early is None:
        raise RuntimeError(f"{len(seen)} of {len(workers)} workers made a batch: there is nothing to compare")
    return Epoch(early, Held.by(workers), batches, elapsed_s, first)


def added(epoch: Epoch, idle: Epoch) -> dict[str, float]:
    """What the epoch added to all workers together, beside an epoch of a dataset that holds nothing."""
    return {
        "added_mib": (epoch.late - epoch.early).own_bytes / MIB,
        "added_private_mib": (epoch.late - epoch.early).private_bytes / MIB,
        "nothing_added_mib": (idle.late - idle.early).own_bytes / MIB,
        "nothing_added_private_mib": (idle.late - idle.early).private_bytes / MIB,
    }


def beyond(held: Held, empty: Held, data_bytes: int) -> dict[str, float]:
    """What workers hold beyond workers of a dataset that holds nothing, as a share of the data."""
    more = held - empty
    return {
        "beyond_share": more.own_bytes / data_bytes,
        "beyond_private_share": more.private_bytes / data_bytes,
        "workers_mib": held.own_bytes / MIB,
        "empty_workers_mib": empty.own_bytes / MIB,
    }
