"""Where a process sleeps, as the kernel tells: in the wait for a lock that another one holds, or elsewhere."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stoker._record.readings.lock_wait import waits_for_lock

_FORK = multiprocessing.get_context("fork")


def _file(path: Path) -> None:
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def _lock(lock: Any) -> None:
    lock.acquire()


@contextmanager
def _child(function: Any, *arguments: Any) -> Iterator[int]:
    child = _FORK.Process(target=function, args=arguments)
    child.start()
    assert child.pid is not None
    try:
        yield child.pid
    finally:
        child.kill()
        child.join()
        child.close()


def _until(pid: int, wanted: bool) -> None:
    """The test's timeout ends it."""
    if waits_for_lock(pid) is None:
        pytest.skip("the kernel does not tell where a process sleeps")
    while waits_for_lock(pid) is not wanted:
        os.sched_yield()


def test_a_process_behind_a_lock_of_a_file_is_told_from_one_that_sleeps(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with _child(_file, path) as pid:
            _until(pid, True)
    with _child(time.sleep, 600) as pid:
        _until(pid, False)


def test_a_process_behind_a_lock_of_multiprocessing_is_found() -> None:
    lock = _FORK.Lock()
    with lock, _child(_lock, lock) as pid:
        _until(pid, True)


def test_a_process_that_is_gone_is_not_told() -> None:
    with _child(time.sleep, 0) as pid:
        pass
    assert waits_for_lock(pid) is None
