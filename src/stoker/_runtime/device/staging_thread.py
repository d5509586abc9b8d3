"""A thread that copies batches into page-locked memory, so that the training thread does not.

It exists from the first job until ``close``. It holds the job that it works on, and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import torch

from stoker._runtime.device.accelerator import set_device_index
from stoker._runtime.device.stager import FencedSources

_JOIN_S = 5.0


class StagingJob:
    """One batch to be copied on the thread. It is also the fence of the batch, and the staged batch.

    ``work`` runs on the thread; it returns a function that the iterating thread calls for the batch, and the fence of a copy
    that goes on, if one does.
    """

    __slots__ = ("_device_fence", "_error", "_finished", "_take", "_work")

    def __init__(self, work: Callable[[], tuple[Callable[[FencedSources], Any], Any]]) -> None:
        self._work: Callable[[], tuple[Callable[[FencedSources], Any], Any]] | None = work
        self._take: Callable[[FencedSources], Any] | None = None
        self._device_fence: Any = None
        self._error: BaseException | None = None
        self._finished = threading.Event()

    @property
    def fence(self) -> StagingJob:
        """The job itself."""
        return self

    def run(self) -> None:
        """Do the work. On the staging thread, or on the iterating one if there is no thread."""
        work, self._work = self._work, None
        try:
            if work is not None:
                self._take, self._device_fence = work()
        except BaseException as error:
            self._error = error
        finally:
            self._finished.set()

    def done(self) -> bool:
        """Whether nothing reads the source any more."""
        if not self._finished.is_set():
            return False
        fence = self._device_fence
        return fence is None or fence.done()

    def wait(self) -> None:
        """Return when that is so."""
        self._finished.wait()
        if self._device_fence is not None:
            self._device_fence.wait()

    def ready(self) -> None:
        """Wait until the thread has done its part."""
        self._finished.wait()

    def take(self, sources: FencedSources) -> Any:
        """The batch. Raises the error of the work."""
        self._finished.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        take, self._take = self._take, None
        assert take is not None
        return take(sources)


class StagingThread:
    """Does jobs in their order. Used on the thread that iterates; ``close`` on any. A forked child has none."""

    def __init__(self, device_index: int | None) -> None:
        self._device_index = device_index
        self._jobs: SimpleQueue[StagingJob | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._owner_pid = os.getpid()
        self._closed = False

    def do(self, job: StagingJob) -> None:
        """Have it done. Where no thread can be had, do it here."""
        if self._thread is None and not self._closed:
            thread = threading.Thread(
                target=_work, args=(self._jobs, self._device_index), name="stoker-staging", daemon=True
            )
            try:
                thread.start()
                self._thread = thread
            except RuntimeError:  # no more threads, or the interpreter is shutting down
                self._closed = True
        if self._thread is None or self._closed:
            job.run()
            return
        self._jobs.put(job)
        self._do_left()

    def close(self) -> None:
        """Finish the jobs, then end the thread. Idempotent."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._owner_pid:
            self._jobs.put(None)
            if thread is not threading.current_thread():
                thread.join(_JOIN_S)

    def _do_left(self) -> None:
        """Do jobs here that stand behind the end of the thread, if it was closed just now, on another one. Each is done once."""
        if not self._closed:
            return
        ends = False
        with suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is None:
                    ends = True
                else:
                    job.run()
        if ends:
            self._jobs.put(None)


def _work(jobs: SimpleQueue[StagingJob | None], device_index: int | None) -> None:
    torch.set_num_threads(1)  # of this thread: the copy is to take one core, not all
    if device_index is not None:
        with suppress(RuntimeError):  # the first job says what is wrong
            set_device_index(device_index)
    while (job := jobs.get()) is not None:
        job.run()
        del job
