"""Finds the running loaders of this user from outside: through /proc, reading only, without signals and without root.

Run pages and status pages are files without a name that their processes hold open, so they appear among the links of
``/proc/<pid>/fd``. Forked processes hold what they inherited: a page is one page however often it is met, and it counts as long
as its owner lives and has it open. Processes that end meanwhile are left out; those that cannot be looked into are named.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stoker._record.run_page import page
from stoker._runtime.protocol import status_page
from stoker.errors import RecordError

_RUN, _STATUS = "stoker-run", "stoker-status"
_CHUNK = 64
"""Rows of a status page that are read at once. Nobody has more workers than one that is empty after another has shown."""

_Key = tuple[str, int, int]
"""What kind of page, and the device and inode of its file."""


class ThreadTimes(NamedTuple):
    """What a process' main thread has had so far, by the kernel's account."""

    cpu_ns: int
    runq_ns: int


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """What a worker says of itself on its status page. ``phase``: idle, fetch or collate, on this task since ``since_ns``.

    ``index`` is the dataset's, where it was told; ``row`` its place in the batch, None if unknown. ``busy_ns`` and
    ``tasks`` are None before the first of its own readings.
    """

    worker: int
    pid: int
    phase: str
    since_ns: int
    epoch: int
    seq: int
    part: int
    row: int | None
    index: int | None
    resident_bytes: int
    busy_ns: int | None
    tasks: int | None
    meter: ThreadTimes | None


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """A pool of worker processes. ``epoch`` is the one that counts: work on another keeps nobody waiting."""

    owner_pid: int
    run_inode: int
    epoch: int
    workers: tuple[WorkerSeen, ...]


@dataclass(frozen=True, slots=True)
class LoaderSeen:
    """A loader of a running process. ``reading`` is None for pools of worker processes whose loader keeps no record."""

    key: tuple[int, int]
    pid: int
    command: str
    reading: page.PageReading | None
    pools: tuple[PoolSeen, ...] = ()
    meter: ThreadTimes | None = None
    """Of the process' main thread, which makes the batches where there are no workers."""


@dataclass(frozen=True, slots=True)
class ProcessScan:
    """All that was found at ``at_ns``, on the monotonic clock. ``skipped`` says what could not be looked into, and why."""

    at_ns: int
    loaders: tuple[LoaderSeen, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(slots=True)
class _OpenPages:
    holders: dict[_Key, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    skipped: list[str] = field(default_factory=list)


def scan(proc: str = "/proc") -> ProcessScan:
    """Look at all processes of this user, once."""
    found = _pages(proc)
    pools: list[tuple[tuple[int, int], PoolSeen]] = []
    runs: dict[int, LoaderSeen] = {}
    for (kind, device, inode), holders in found.holders.items():
        pids = [pid for pid, _ in holders]
        for path in (path for _, path in holders):
            try:
                with _opened(path, device, inode) as fd:
                    if kind == _STATUS:
                        pool = _pool(fd, pids, proc)
                        if pool is not None:
                            pools.append(((device, inode), pool))
                    else:
                        reading = page.read(fd)
                        owner = _owner(reading.owner_pid, pids, proc, reading.owner_start)
                        if owner is not None:
                            runs[inode] = LoaderSeen(
                                (device, inode),
                                owner,
                                _command(owner, proc),
                                reading,
                                (),
                                _meter(owner, proc),
                            )
            except RecordError as error:
                found.skipped.append(f"process {pids[0]}: {error}")
            except OSError:  # this process is gone, or has closed it: perhaps another one has not
                continue
            break
    return ProcessScan(time.monotonic_ns(), tuple(_joined(runs, pools, proc)), tuple(found.skipped))


def belongs(pid: int, loader: LoaderSeen, proc: str = "/proc") -> bool:
    """Whether a loader is that of a process, of one of its descendants, or has it as a worker."""
    if any(pid == worker.pid for pool in loader.pools for worker in pool.workers):
        return True
    above: int | None = loader.pid
    while above:
        if above == pid:
            return True
        above = _parent(above, proc)
    return False


def _pages(proc: str) -> _OpenPages:
    """Every page that a process of this user holds open, with all its holders."""
    found = _OpenPages()
    for entry in os.listdir(proc):
        if not entry.isdecimal():
            continue
        folder = f"{proc}/{entry}"
        try:
            if os.stat(folder).st_uid != os.geteuid():
                continue
            for number in os.listdir(f"{folder}/fd"):
                path = f"{folder}/fd/{number}"
                with suppress(FileNotFoundError):  # closed meanwhile
                    kind = _kind(os.readlink(path))
                    if kind:
                        seen = os.stat(path)
                        found.holders[kind, seen.st_dev, seen.st_ino].append((int(entry), path))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            found.skipped.append(f"process {entry}: {error.strerror}")
    return found


def _kind(link: str) -> str | None:
    """Which of our pages a descriptor refers to. Where there are no memfds they are files in the temporary folder."""
    name = link.removesuffix(" (deleted)").rpartition("/")[2]
    for kind in (_RUN, _STATUS):
        if name == f"memfd:{kind}" or (name.startswith(f"{kind}-") and name != link):
            return kind
    return None


@contextmanager
def _opened(path: str, device: int, inode: int) -> Iterator[int]:
    """A page, for reading. Its number may have become another file's since it was listed: one that must not be waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or (seen.st_dev, seen.st_ino) != (device, inode):
            raise FileNotFoundError(path)
        yield fd
    finally:
        os.close(fd)


def _owner(said: int, holders: Sequence[int], proc: str, start: int | None = None) -> int | None:
    """The holder that calls itself ``said``, which in a container is another number than here; None when it is gone."""
    for pid in holders:
        if _innermost(pid, proc) == said and (not start or page.started(f"{proc}/{pid}") == start):
            return pid
    return None


def _innermost(pid: int, proc: str) -> int | None:
    """What a process takes for its pid."""
    with suppress(OSError, ValueError), open(f"{proc}/{pid}/status", "rb") as text:
        for line in text:
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
        return pid
    return None


def _parent(pid: int, proc: str) -> int | None:
    with suppress(OSError, ValueError, IndexError), open(f"{proc}/{pid}/stat", "rb") as text:
        return int(text.read().rpartition(b")")[2].split()[1])
    return None


def _command(pid: int, proc: str) -> str:
    """What runs there, in few words: the script and its arguments."""
    words: list[str] = []
    with suppress(OSError), open(f"{proc}/{pid}/cmdline", "rb") as text:
        words = text.read().decode(errors="replace").rstrip("\0").split("\0")
    if words and os.path.basename(words[0]).startswith("python"):
        words = _without_options(words[1:]) or words
    words[:1] = [os.path.basename(words[0])] if words else []
    return " ".join(words)


def _without_options(words: list[str]) -> list[str]:
    """A command line of Python from the script, ``-m`` or ``-c`` on."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at][:2] not in ("-m", "-c"):
        at += 2 if words[at] in ("-W", "-X") else 1
    return words[at:]


def _pool(fd: int, holders: Sequence[int], proc: str) -> PoolSeen | None:
    head = os.pread(fd, status_page.ROW_BYTES, 0)
    if len(head) < status_page.ROW_BYTES:
        raise RecordError("this is no status page of stoker")
    control = memoryview(head).cast("q")
    if control[status_page.FORMAT] != status_page.VERSION:
        raise RecordError(
            f"its workers write status pages of version {control[status_page.FORMAT]}, and this stoker reads "
            f"{status_page.VERSION}: "
            "watch them with the stoker that they run with"
        )
    owner = _owner(control[status_page.PARENT_PID], holders, proc)
    if owner is None:
        return None
    inner = {_innermost(pid, proc): pid for pid in holders}
    workers: list[WorkerSeen] = []
    first = 1
    while True:
        chunk = os.pread(fd, _CHUNK * status_page.ROW_BYTES, first * status_page.ROW_BYTES)
        whole = len(chunk) // status_page.ROW_BYTES * status_page.ROW_BYTES
        rows = memoryview(chunk)[:whole].cast("q")  # a page that is damaged may end anywhere
        seen = [
            _worker(first - 1 + at, rows[at * status_page.WORDS :], inner, owner, proc)
            for at in range(len(chunk) // status_page.ROW_BYTES)
        ]
        workers += [worker for worker in seen if worker is not None]
        first += _CHUNK
        if not any(seen) or first > status_page.MAX_WORKERS:
            return PoolSeen(owner, control[status_page.RUN], control[status_page.EPOCH], tuple(workers))


def _worker(
    number: int, row: memoryview, inner: dict[int | None, int], owner: int, proc: str
) -> WorkerSeen | None:
    said = row[status_page.PID]
    if not said:
        return None
    pid = inner.get(said, said)
    # Neither a holder of the page nor a thread: a Ray actor's, on another host perhaps. Another process may have that pid here.
    here = said in inner or os.path.exists(f"{proc}/{owner}/task/{said}")
    return WorkerSeen(
        worker=number,
        pid=pid,
        phase={status_page.IDLE: "idle", status_page.COLLATING: "collate"}.get(
            row[status_page.PHASE], "fetch"
        ),
        since_ns=row[status_page.SINCE_NS],
        epoch=row[status_page.W_EPOCH],
        seq=row[status_page.SEQ],
        part=row[status_page.PART],
        row=row[status_page.ROW] if row[status_page.ROW] != status_page.NO_ROW else None,
        index=row[status_page.INDEX] if row[status_page.INDEX] != status_page.NO_INDEX else None,
        resident_bytes=row[status_page.RESIDENT_BYTES],
        busy_ns=row[status_page.BUSY_NS] if row[status_page.TASKS] else None,
        tasks=row[status_page.TASKS] or None,
        meter=_meter(pid, proc) if here else None,
    )


def _meter(pid: int, proc: str) -> ThreadTimes | None:
    with suppress(OSError, ValueError), open(f"{proc}/{pid}/schedstat", "rb") as text:
        cpu_ns, runq_ns, _ = text.read().split()
        return ThreadTimes(int(cpu_ns), int(runq_ns))
    return None


def _joined(
    runs: dict[int, LoaderSeen], pools: Sequence[tuple[tuple[int, int], PoolSeen]], proc: str
) -> Iterator[LoaderSeen]:
    """Loaders with their pools, in the order of processes and names; a pool without a run page stands for its loader."""
    of_run: dict[int, list[PoolSeen]] = defaultdict(list)
    relayed = {
        (worker.worker, worker.pid): worker
        for _, pool in pools
        if not pool.run_inode and len(pool.workers) == 1
        for worker in pool.workers
    }
    known: set[tuple[int, int]] = set()
    for _, pool in pools:
        if pool.run_inode in runs:
            of_run[pool.run_inode].append(_completed(pool, relayed))
            known.update((worker.worker, worker.pid) for worker in pool.workers)
    for key, pool in pools:
        if pool.run_inode in runs:
            continue
        unknown = [worker for worker in pool.workers if (worker.worker, worker.pid) not in known]
        # A lone worker without a first task may be that of an actor for which something near still stands in.
        if (len(pool.workers) > 1 and unknown) or any(worker.since_ns for worker in unknown):
            runs[-key[1]] = LoaderSeen(key, pool.owner_pid, _command(pool.owner_pid, proc), None)
            of_run[-key[1]].append(pool)
    for inode, seen in sorted(runs.items(), key=lambda item: (item[1].pid, item[1].key)):
        yield replace(seen, pools=tuple(of_run[inode]))


def _completed(pool: PoolSeen, relayed: Mapping[tuple[int, int], WorkerSeen]) -> PoolSeen:
    """A pool with what only the pages of Ray actors on this machine know of its remote workers: their rows, and what they used."""
    workers = []
    for worker in pool.workers:
        told = relayed.get((worker.worker, worker.pid))
        if told is not None:
            at_work = "idle" not in (worker.phase, told.phase)
            if at_work and (told.epoch, told.seq, told.part) == (worker.epoch, worker.seq, worker.part):
                worker = replace(worker, phase=told.phase, row=told.row, index=told.index)
            worker = replace(
                worker,
                resident_bytes=told.resident_bytes,
                busy_ns=told.busy_ns,
                tasks=told.tasks,
                meter=told.meter,
            )
        workers.append(worker)
    return replace(pool, workers=tuple(workers))
