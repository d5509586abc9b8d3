"""What a workload runs in: a cgroup with a quota, or beside processes that compute. Everything is taken down again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import cores
from benchmarks.workloads import burn
from stoker._host import cgroups

_PERIOD_US = 100_000
_QUOTA_US = 33_000


@contextmanager
def quota() -> Iterator[Path | None]:
    """A new cgroup below this process's own that may use a third of a CPU; None where that is not allowed."""
    folder = _made()
    try:
        yield folder
    finally:
        if folder is not None:
            _removed(folder)


@contextmanager
def burners(count: int | None = None) -> Iterator[None]:
    """Processes that compute, two for each CPU."""
    ours, theirs = os.pipe()
    pids = []
    try:
        for _ in range(2 * cores() if count is None else count):
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(theirs)
                    burn(ours)
                finally:
                    os._exit(0)
            pids.append(pid)
        yield
    finally:
        os.close(theirs)
        os.close(ours)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def enter(folder: Path) -> None:
    """Put this process, and those it will start, into a cgroup."""
    (folder / "cgroup.procs").write_text(str(os.getpid()))


def _made() -> Path | None:
    for parent, version in cgroups.folders("cpu"):
        folder = parent / f"stoker-bench-{os.getpid()}-{time.monotonic_ns()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if version == 2:
                (folder / "cpu.max").write_text(f"{_QUOTA_US} {_PERIOD_US}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(_QUOTA_US))
            return folder
        except OSError:
            folder.rmdir()
    return None


def _removed(folder: Path) -> None:
    """A cgroup can go when the last process in it has; what is left there is ended."""
    for _ in range(200):
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            for word in (folder / "cgroup.procs").read_text().split():
                os.kill(int(word), signal.SIGKILL)
            time.sleep(0.01)
