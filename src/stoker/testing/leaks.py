"""The leak guard: compares what a process holds before and after. Linux; reads /proc."""

from __future__ import annotations

import gc
import os
import select
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from time import monotonic

GRACE_S = 2.0
"""How long a released resource may take to disappear, such as a process that is ending."""

_STEP_S = 0.01


@dataclass(frozen=True, slots=True)
class Holdings:
    """What this process holds at one moment, each item in words that help to find its origin."""

    descriptors: frozenset[str]
    threads: frozenset[str]
    children: frozenset[str]
    mappings: frozenset[str]

    def beyond(self, before: Holdings) -> list[str]:
        """Name everything held now that was not held ``before``."""
        return [
            f"{kind[:-1] if kind != 'children' else 'child'} {item}"
            for kind in self.__slots__
            for item in sorted(getattr(self, kind) - getattr(before, kind))
        ]


def holdings(*, apart_from: Collection[int] = ()) -> Holdings:
    """Take stock. Reads only /proc and interpreter state: it opens nothing that outlives the call.

    ``apart_from`` are children that something wider than what is watched has started and will end: neither they nor
    what they start is counted. A browser, for one, has processes that come and go as it likes.
    """
    return Holdings(_descriptors(), _threads(), _children(apart_from), _mappings())


def leaks_since(before: Holdings, *, grace_s: float = GRACE_S, apart_from: Collection[int] = ()) -> list[str]:
    """What is held beyond ``before`` and does not go away, described; empty when nothing leaked.

    Called on the main thread, with the objects under test dropped. Only what looks like a leak pays for a
    garbage collection, which costs tens of milliseconds once torch is loaded.
    """
    if not holdings(apart_from=apart_from).beyond(before):
        return []
    gc.collect()
    deadline_s = monotonic() + grace_s
    while leaked := holdings(apart_from=apart_from).beyond(before):
        if monotonic() > deadline_s:
            return [_described(leak) for leak in leaked]
        select.select([], [], [], _STEP_S)
    return []


@contextmanager
def leak_guard(*, grace_s: float = GRACE_S) -> Iterator[None]:
    """Fail with AssertionError when the block leaves descriptors, threads, children or our mappings behind.

    An exception from the block passes through unexamined: its traceback keeps its locals alive.
    """
    before = holdings()
    yield
    leaked = leaks_since(before, grace_s=grace_s)
    if leaked:
        raise AssertionError("leaked: " + "; ".join(leaked))


def _descriptors() -> frozenset[str]:
    # The resource tracker and the fork server live as long as the session by multiprocessing's design.
    lasting = {_attribute(resource_tracker, "_resource_tracker", "_fd")}
    lasting.add(_attribute(forkserver, "_forkserver", "_forkserver_alive_fd"))
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) in lasting:
            continue
        try:
            found.add(f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:  # the descriptor that listed the directory
            continue
    return frozenset(found)


def _threads() -> frozenset[str]:
    # Native threads are not counted: torch and BLAS start their pools on first use and keep them.
    return frozenset(f"{thread.ident} {thread.name}" for thread in threading.enumerate())


def _children(apart_from: Collection[int]) -> frozenset[str]:
    try:  # one system call tells most tests that there is nobody to look for; it reaps nothing
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    lasting = {
        _attribute(resource_tracker, "_resource_tracker", "_pid"),
        _attribute(forkserver, "_forkserver", "_forkserver_pid"),
    }
    # Workers started by the fork server are its children, so look below it.
    return frozenset(f"pid {pid}" for pid in _descendants(os.getpid(), apart_from) if pid not in lasting)


def _descendants(pid: int, apart_from: Collection[int]) -> Iterator[int]:
    """All processes below one, without these and what is below them, as the kernel lists them.

    A look at every process of the machine would take thirty times as long.
    """
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as children:
                for child in map(int, children.read().split()):
                    if child not in apart_from:
                        yield child
                        yield from _descendants(child, apart_from)
    except (FileNotFoundError, ProcessLookupError):  # it is gone, or the kernel keeps no such list
        if not os.path.exists("/proc/self/task") or not os.path.exists(
            f"/proc/self/task/{os.getpid()}/children"
        ):
            import psutil

            with suppress(psutil.NoSuchProcess):
                for each in psutil.Process(pid).children():
                    if each.pid not in apart_from:
                        yield each.pid
                        yield from _descendants(each.pid, apart_from)


def _mappings() -> frozenset[str]:
    with open("/proc/self/maps", "rb") as maps:
        text = maps.read()
    if b"stoker-" not in text:
        return frozenset()
    names = [os.path.basename(line.split(None, 5)[-1]) for line in text.splitlines() if b"stoker-" in line]
    ours = Counter(name.decode() for name in names if name.removeprefix(b"memfd:").startswith(b"stoker-"))
    # Numbered, not by address: a loader that a wider fixture keeps may replace a mapping by a longer one.
    return frozenset(f"{name} #{number}" for name, count in ours.items() for number in range(count))


def _attribute(module: object, singleton: str, name: str) -> int | None:
    return getattr(getattr(module, singleton, None), name, None)


def _described(leak: str) -> str:
    if not leak.startswith("child pid "):
        return leak
    import psutil

    try:
        process = psutil.Process(int(leak.removeprefix("child pid ")))
        return f"{leak} ({process.status()}: {' '.join(process.cmdline())[:120]})"
    except psutil.Error:
        return leak
