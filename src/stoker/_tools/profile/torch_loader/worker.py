"""Measures inside a worker process of torch's loader. Imported by workers: light.

The worker runs torch's own loop, with torch's own queues. Three calls of it are noticed: a task taken from the index queue, the
collate function, a batch put into the data queue; and, in the feeder thread of that queue, the moment the pickled batch goes out.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stoker._record.instruments import is_ours
from stoker._runtime.worker.cpu_meter import CpuMeter
from stoker._runtime.worker.memory_probe import threads
from stoker._tools.profile.torch_loader.task_clock import TaskClock
from stoker._tools.profile.torch_loader.task_ring import TaskRing, TaskRow

_clock = time.monotonic_ns
_LOOP = "torch.utils.data._utils.worker"
_NOT_A_BATCH = -1
_REPORT_NS = 200_000_000
"""How often a worker tells of its threads, as stoker's own do."""


class IteratorInProgress(threading.local):
    """The iterator that this thread of the parent is creating, while torch's constructor runs.

    ``account`` is the loader's ``RecordedLoader``. ``ring`` is the ring that the workers write to; a forked worker finds it here.
    """

    loader: Any = None
    account: Any = None
    ring: TaskRing | None = None
    begun: int = 0
    """The id of the iterator that was taken up last; 0: none since an override of ``_get_iterator`` was called."""


making = IteratorInProgress()


class MeasuredLoop:
    """Stands in for torch's ``_worker_loop`` as what worker processes run.

    The parent hands it to ``Process`` as torch hands its function. Under spawn and forkserver it travels together with the ring of
    the iterator that is being made.
    """

    def __init__(self, theirs: Callable[..., None], ring: TaskRing | None = None) -> None:
        functools.update_wrapper(self, theirs)
        self._theirs = theirs
        self._ring = ring

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run torch's loop in this process, observed where that can be."""
        ring, making.ring = self._ring or making.ring, None
        if ring is not None and not kwargs:
            try:
                args = _observed(self._theirs, args, ring)
            except Exception as error:  # a loop that is not as we know it: it runs unobserved
                if not is_ours(error):
                    raise
        self._theirs(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _loop, (self._ring or making.ring,)


def _loop(ring: TaskRing | None) -> Any:
    theirs = importlib.import_module(_LOOP)._worker_loop
    return MeasuredLoop(getattr(theirs, "__wrapped__", theirs), ring)


def _observed(loop: Callable[..., None], args: tuple[Any, ...], ring: TaskRing) -> tuple[Any, ...]:
    """The loop's arguments, with a collate function that is timed; the queues, which are this process's own, report to us."""
    bound = inspect.signature(loop).bind(*args).arguments
    worker = bound["worker_id"]
    clock = TaskClock(
        bound["dataset"],
        bound["collate_fn"],
        batched=bound["auto_collation"],
        works_on=functools.partial(ring.works_on, worker),
    )
    bound["collate_fn"] = clock.collate
    RowWriter(ring, worker, clock).observe(bound["index_queue"], bound["data_queue"])
    return tuple(bound.values())


class RowWriter:
    """Keeps a worker's row up to date. Everything on the thread that runs torch's loop, but for ``_going_out``."""

    def __init__(self, ring: TaskRing, worker: int, clock: TaskClock) -> None:
        self._ring = ring
        self._worker = worker
        self._clock = clock
        self._meter = CpuMeter()
        self._reported_ns = 0
        self._began_cpu_ns = -1
        self._feeder_cpu_ns = 0
        """What torch's own thread used to pickle batches: that is hand-over, and no thread of the dataset's."""
        self._position = -1
        self._idx: Any = None
        self._unsent: deque[int] = deque()
        self._fed = False
        self._broken = False

    def observe(self, index_queue: Any, data_queue: Any) -> None:
        """Notice what goes through these queues. They stay what they are: only this process's own objects are touched."""
        get, put = index_queue.get, data_queue.put
        send, lost = (
            getattr(data_queue, "_send_bytes", None),
            getattr(data_queue, "_on_queue_feeder_error", None),
        )

        def observed_get(*args: Any, **kwargs: Any) -> Any:
            task = get(*args, **kwargs)
            return task if self._broken else self._taken(task)

        def observed_put(message: Any, *args: Any, **kwargs: Any) -> None:
            if not self._broken:
                self._made(message)
            put(message, *args, **kwargs)

        def observed_send(*args: Any, **kwargs: Any) -> Any:
            self._going_out()
            return send(*args, **kwargs)  # type: ignore[misc]

        def observed_loss(*args: Any, **kwargs: Any) -> Any:
            if self._unsent:
                self._unsent.popleft()
            return lost(*args, **kwargs)  # type: ignore[misc]

        if send is not None and lost is not None and getattr(data_queue, "_thread", self) is None:
            data_queue._send_bytes, data_queue._on_queue_feeder_error = observed_send, observed_loss
            self._fed = True
        index_queue.get, data_queue.put = observed_get, observed_put

    def close(self) -> None:
        """Give back what is open. Worker processes do not: it goes with them."""
        self._meter.close()

    def _taken(self, task: Any) -> Any:
        if type(task) is not tuple or len(task) != 2:
            return task  # the end, or the beginning of another epoch
        try:
            idx, indices = task
            self._position += 1
            self._idx = idx
            now_ns = _clock()
            self._clock.begin(now_ns)
            if self._meter.slow:
                self._meter.began(now_ns)
            if self._began_cpu_ns < 0:  # what was used before the first task is the start, and not work
                self._began_cpu_ns = time.process_time_ns()
            return idx, self._clock.indices(indices)
        except Exception as error:
            if not is_ours(error):
                raise
            self._unplug()
            return task

    def _made(self, message: Any) -> None:
        try:
            idx, batch = message
            at = _NOT_A_BATCH
            if idx is self._idx and type(batch).__name__ != "_IterableDatasetStopIteration":
                at = self._written(idx)
            self._idx = None
            if self._fed:
                self._unsent.append(at)
            elif at != _NOT_A_BATCH:
                self._ring.sent(self._worker, at, _clock())
        except Exception as error:
            if not is_ours(error):
                raise
            self._unplug()

    def _written(self, idx: int) -> int:
        clock = self._clock
        now_ns = _clock()
        cpu_ns, runq_ns, metered_ns = self._meter.ended(clock.received_ns, now_ns)
        if now_ns - self._reported_ns > _REPORT_NS:
            self._reported_ns = now_ns
            used_ns = time.process_time_ns() - self._began_cpu_ns - self._feeder_cpu_ns
            self._ring.tell(self._worker, threads() - self._fed, max(0, used_ns))
        row = TaskRow(
            self._position, idx, clock.received_ns, clock.fetched_ns, clock.collated_ns, 0, cpu_ns, runq_ns, metered_ns,
            clock.slow_row, clock.slow_ns, clock.slow_index, clock.rows,
        )  # fmt: skip
        return self._ring.write(self._worker, row)

    def _going_out(self) -> None:
        """In the feeder thread: the oldest batch is pickled, and is written into the pipe next."""
        self._feeder_cpu_ns = time.thread_time_ns()
        if self._unsent:
            at = self._unsent.popleft()
            if at != _NOT_A_BATCH:
                self._ring.sent(self._worker, at, _clock())

    def _unplug(self) -> None:
        self._broken = True
        self._unsent.clear()
