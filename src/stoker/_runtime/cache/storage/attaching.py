"""Opens the store that a cache means: the one it inherited, one that another process has open, a file, or a new one.

fork                      the open store is inherited
spawn, forkserver         found again at the process and descriptor that the pickle names
``name=``, local ranks    found among the open files of this user's processes
another machine           made anew, once for all workers there
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker._host.private_files import private_folder as private_runtime_folder
from stoker._runtime.cache.storage import backing as backings
from stoker._runtime.cache.storage.backing import Backing
from stoker._runtime.cache.storage.store import Store, data_start, header, read_header

_log = logging.getLogger("stoker")
_WAIT_S = 5.0
_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Which store a cache means. ``token`` names shared memory; ``folder`` and ``label`` a file.

    ``hashed``: a key leads to a slot by its hash, so a file that was begun with another number of slots will do.
    """

    token: str
    slots: int
    limit_bytes: int
    identity: bytes
    folder: str | None = None
    label: str = ""
    hashed: bool = False

    def fits(self, slots: int, identity: bytes) -> bool:
        """Whether a store with this header is the one that is meant."""
        return identity == self.identity and (slots == self.slots or self.hashed)


class StoreHandle:
    """The store of one cache in this process, opened when first used. It pickles and deep-copies as the same store.

    Any thread. The descriptors are closed with the last handle.
    """

    def __init__(self, plan: StorePlan, hint: tuple[int, int] | None = None) -> None:
        self.plan = plan
        self._hint = hint
        self._store: Store | None = None
        self._lock = threading.Lock()
        self._end: Any = None
        _handles.add(self)

    def open(self) -> Store:
        """Return the open store. Raises OSError if there is none to be had."""
        found = self._store
        if found is None:
            with self._lock:
                found = self._store
                if found is None:
                    found = self._store = _open(self.plan, self._hint)
                    self._end = weakref.finalize(self, found.close)
        return found

    def contents(self) -> dict[str, Any]:
        """Return what the store holds, in the words of ``cache_info()``."""
        store = self.open()
        return {
            "budget_bytes": store.limit_bytes,
            "stored_bytes": store.stored_bytes,
            "entries": store.entries,
            "full": store.full,
        }

    def after_fork(self) -> None:
        """In the child: the lock of another thread is not released here."""
        self._lock = threading.Lock()
        if self._store is not None:
            self._store.after_fork()

    def __deepcopy__(self, memo: Any) -> StoreHandle:
        return self

    def __copy__(self) -> StoreHandle:
        return self

    def __reduce__(self) -> Any:
        store = self._store
        hint = self._hint if store is None else (os.getpid(), store.backing.fd)
        return StoreHandle, (self.plan, hint)


_handles: weakref.WeakSet[StoreHandle] = weakref.WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def _open(plan: StorePlan, hint: tuple[int, int] | None) -> Store:
    if plan.folder is not None:
        return _open_file(plan, Path(plan.folder))
    found = backings.find_memory(plan.token, hint, accepts=_is_begun)
    if found is None:
        with _alone():
            found = backings.find_memory(plan.token, accepts=_is_begun)
            if found is None:
                found = backings.create_memory(plan.token)
                _prepare(found, plan)
    return _made(found, plan)


def _open_file(plan: StorePlan, folder: Path) -> Store:
    folder = backings.private_folder(folder)
    path = backings.file_in(folder, plan.label)
    with _alone():
        backings.remove_unfinished(path)
        found = backings.open_file(path)
        if found is not None:
            says = read_header(found.fd)
            if says is not None and plan.fits(says.slots, says.identity):
                store = _made(found, plan)
                store.try_again()
                return store
            found.close()
            what = (
                "is damaged, or of another version of stoker"
                if says is None
                else "has samples of another dataset"
            )
            _log.warning("the sample cache %s %s; it is begun anew", path, what)
        with backings.new_file(path) as fresh:
            # A full disk fails here, not later in a mapping.
            os.posix_fallocate(fresh.fd, 0, data_start(plan.slots))
            _prepare(fresh, plan)
        return _made(fresh, plan)


def _prepare(found: Backing, plan: StorePlan) -> None:
    os.ftruncate(found.fd, data_start(plan.slots))
    os.pwrite(found.fd, header(plan.slots, plan.limit_bytes, plan.identity), 0)


def _is_begun(fd: int) -> bool:
    """Whether a store has its header. One that another process makes right now has none yet, and never if that was killed."""
    return read_header(fd) is not None


def _made(found: Backing, plan: StorePlan) -> Store:
    try:
        says = read_header(found.fd)
        if says is None or not plan.fits(says.slots, says.identity):
            raise OSError(f"the sample cache {found.shown} is not what its name says")
        limit_bytes = says.limit_bytes if plan.folder is None else plan.limit_bytes
        return Store(found, slots=says.slots, limit_bytes=limit_bytes, checks=plan.folder is not None)
    except BaseException:
        found.close()
        raise


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock under which this user's stores are made. A process that is stopped while it has it is waited for 5 seconds.

    It is a lock of the folder, and not of a file in it: a process that is killed leaves nothing.
    """
    folder = private_runtime_folder(os.environ)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError(f"{folder} is locked by a process that does not go on") from None
                time.sleep(_PAUSE_S)
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
    finally:
        os.close(fd)
