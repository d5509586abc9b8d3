"""The thread that copies batches does every job once, also when another thread closes it at that moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from stoker._runtime.device.stager import FencedSources
from stoker._runtime.device.staging_thread import StagingJob, StagingThread


@pytest.fixture
def thread() -> Iterator[StagingThread]:
    made = StagingThread(None)
    yield made
    made.close()


def job(done: list[Any], name: Any = 0) -> StagingJob:
    """Notes the thread that does it."""

    def work() -> tuple[Any, None]:
        done.append((name, threading.current_thread().name))
        return lambda sources: name, None

    return StagingJob(work)


class _ClosesFirst:
    """A queue in front of which another thread closes the staging thread, just before a job is put into it."""

    def __init__(self, thread: StagingThread) -> None:
        self._thread = thread
        self._queue = thread._jobs
        self.get = self._queue.get
        self.get_nowait = self._queue.get_nowait

    def put(self, each: Any) -> None:
        if each is not None:
            other = threading.Thread(target=self._thread.close)
            other.start()
            other.join()
        self._queue.put(each)


def test_jobs_are_done_in_their_order_by_the_thread(thread: StagingThread) -> None:
    done: list[Any] = []
    jobs = [job(done, number) for number in range(20)]
    for each in jobs:
        thread.do(each)
    assert [each.take(FencedSources()) for each in jobs] == list(range(20))
    assert done == [(number, "stoker-staging") for number in range(20)]


def test_a_thread_that_is_closed_meanwhile_loses_no_job(thread: StagingThread) -> None:
    done: list[Any] = []
    thread.do(job(done, 0))
    thread._jobs = _ClosesFirst(thread)  # type: ignore[assignment]
    late = job(done, 1)
    thread.do(late)
    assert late.done()
    assert [name for name, _ in done] == [0, 1]


def test_after_its_end_jobs_are_done_by_who_asks(thread: StagingThread) -> None:
    done: list[Any] = []
    thread.close()
    thread.do(job(done))
    assert done == [(0, threading.current_thread().name)]
