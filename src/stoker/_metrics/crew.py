"""A loader's workers as processes: what they occupy, and what they use of the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stoker._metrics.accounts import Accounts
from stoker._metrics.processes import footprint
from stoker._metrics.record import WorkerRecord


class Size(NamedTuple):
    """What a worker occupies; None where the kernel does not tell."""

    worker: int
    pid: int
    pss_bytes: int | None
    private_bytes: int | None
    growth_bytes: int | None
    threads: int | None = None
    cpu_ns: int | None = None


class Crew:
    """What a recorder remembers of them. Used under its lock, but for ``by_pid``, which any thread may call."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = {}
        """By worker, where nobody else knows."""
        self._baselines: dict[int, int] = {}
        self._cpu_ns: dict[int, tuple[int, int, int]] = {}
        """By worker: its pid, what processes before it used of the CPU, and what it has used itself."""

    def tally(self, sizes: Iterable[Size], accounts: Accounts) -> None:
        """Threads of the workers that are there now, and their CPU time."""
        for size in sizes:
            one = accounts.worker(size.worker)
            one.pid = size.pid
            one.threads = size.threads
            if size.cpu_ns is not None:
                pid, ended_ns, cpu_ns = self._cpu_ns.get(size.worker, (size.pid, 0, 0))
                if pid != size.pid:  # another process took its place
                    ended_ns += cpu_ns
                self._cpu_ns[size.worker] = size.pid, ended_ns, size.cpu_ns
                one.process_cpu_ns = ended_ns + size.cpu_ns

    def by_pid(self) -> Iterable[Size]:
        """What they occupy, weighed one after another."""
        for worker, pid in list(self.pids.items()):
            found = footprint(pid)
            if found is not None:
                base = self._baselines.setdefault(pid, found.private_bytes)
                growth = max(0, found.private_bytes - base)
                yield Size(worker, pid, found.pss_bytes, found.private_bytes, growth)


def note_sizes(sizes: Iterable[Size], accounts: Accounts) -> None:
    """What the workers occupy, into their records."""
    for size in sizes:
        one = accounts.worker(size.worker)
        one.pid, one.pss_bytes, one.private_bytes = size.pid, size.pss_bytes, size.private_bytes
        one.private_growth_bytes = size.growth_bytes


def used_ns(worker: WorkerRecord) -> int:
    """What a worker used of the CPU while it was at work; 0 for the parent, whose time is counted with it."""
    return max(worker.cpu_ns, worker.process_cpu_ns or 0) if worker.worker >= 0 else 0
