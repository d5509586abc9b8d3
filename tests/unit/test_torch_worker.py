"""What a worker of torch's leaves in its ring, with queues that are only lists."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.worker import _IterableDatasetStopIteration

from stoker._runtime.worker.cpu_meter import CpuMeter
from stoker._tools.profile.torch_loader.task_clock import TaskClock
from stoker._tools.profile.torch_loader.task_ring import TaskRing
from stoker._tools.profile.torch_loader.worker import MeasuredLoop, RowWriter


class Queue:
    """Both ends of one of multiprocessing's, whose feeder is called by hand."""

    _thread = None

    def __init__(self, items: Any = ()) -> None:
        self.items = list(items)
        self.sent: list[Any] = []

    def get(self, timeout: float = 0) -> Any:
        return self.items.pop(0)

    def put(self, item: Any) -> None:
        self.items.append(item)

    def _send_bytes(self, data: Any) -> None:
        self.sent.append(data)

    def _on_queue_feeder_error(self, error: Any, item: Any) -> None:
        self.sent.append(error)

    def feed(self) -> None:
        item = self.items.pop(0)
        try:
            data = pickle.dumps(item)
        except Exception as error:
            self._on_queue_feeder_error(error, item)
        else:
            self._send_bytes(data)


Sit = Callable[[Any], tuple[TaskRing, Queue, Queue]]


@pytest.fixture
def at_desk() -> Iterator[Sit]:
    desks: list[RowWriter] = []

    def sit(tasks: Any) -> tuple[TaskRing, Queue, Queue]:
        ring = TaskRing.create(1, 4)
        index_queue, data_queue = Queue(tasks), Queue()
        desks.append(RowWriter(ring, 0, TaskClock([], list, batched=True)))
        desks[0].observe(index_queue, data_queue)
        return ring, index_queue, data_queue

    yield sit
    while desks:
        desks.pop().close()


def test_a_row_is_there_with_the_batch_and_done_when_it_is_sent(at_desk: Sit) -> None:
    ring, index_queue, data_queue = at_desk([(0, [1]), (1, [2])])
    assert index_queue.get(timeout=5) == (0, [1])
    data_queue.put((0, "batch"))
    row = ring.read(0, 0, 0)
    assert row is not None
    assert row.received_ns
    assert not row.sent_ns
    assert ring.done == 0
    data_queue.feed()
    row = ring.read(0, 0, 0)
    assert row is not None
    assert row.sent_ns >= row.received_ns
    assert ring.done == 1
    assert data_queue.sent == [pickle.dumps((0, "batch"))]


def test_readings_and_threads_are_told(at_desk: Sit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuMeter, "ended", lambda *_: (1, 2, 3))
    ring, index_queue, data_queue = at_desk([(0, [1])])
    data_queue.put((index_queue.get()[0], "batch"))
    row = ring.read(0, 0, 0)
    assert row is not None
    assert (row.cpu_ns, row.runq_ns, row.metered_ns) == (1, 2, 3)
    told = ring.worker_times(0)
    assert told is not None
    assert told[1] < 1_000_000_000  # of the task, not of the process


def test_what_is_no_batch_is_not_counted(at_desk: Sit) -> None:
    ring, index_queue, data_queue = at_desk([torch_worker._ResumeIteration(), (0, [1]), (1, [2]), None])
    data_queue.put((index_queue.get(), None))
    data_queue.put((index_queue.get()[0], "batch"))
    data_queue.put((index_queue.get()[0], _IterableDatasetStopIteration(0)))
    assert index_queue.get() is None
    for _ in range(3):
        data_queue.feed()
    assert ring.done == 1
    assert ring.read(0, 0, 0) is not None
    assert ring.read(0, 1, 1) is None


def test_a_batch_that_cannot_be_pickled_does_not_shift_the_others(at_desk: Sit) -> None:
    ring, index_queue, data_queue = at_desk([(0, [1]), (1, [2])])
    data_queue.put((index_queue.get()[0], lambda: None))
    data_queue.put((index_queue.get()[0], "batch"))
    data_queue.feed()
    data_queue.feed()
    lost, sent = ring.read(0, 0, 0), ring.read(0, 1, 1)
    assert lost is not None
    assert sent is not None
    assert (lost.sent_ns, sent.sent_ns > 0) == (0, True)


def test_an_instrument_that_fails_is_unplugged_and_the_worker_goes_on(at_desk: Sit) -> None:
    ring, index_queue, data_queue = at_desk([("zero", [1]), (1, [2])])
    data_queue.put((index_queue.get()[0], "batch"))  # no number: the row cannot be written
    data_queue.put((index_queue.get()[0], "batch"))
    data_queue.feed()
    data_queue.feed()
    assert len(data_queue.sent) == 2
    assert ring.done == 0


def test_the_loop_travels_as_torchs_own_with_the_ring() -> None:
    loop = pickle.loads(pickle.dumps(MeasuredLoop(torch_worker._worker_loop)))
    assert isinstance(loop, MeasuredLoop)
    assert loop.__wrapped__ is torch_worker._worker_loop  # type: ignore[attr-defined]
    assert loop.__name__ == "_worker_loop"  # type: ignore[attr-defined]


def test_a_loop_that_takes_other_arguments_runs_unobserved() -> None:
    ran: list[Any] = []

    def other(dataset: Any, queue: Any) -> None:
        ran.append((dataset, queue))

    MeasuredLoop(other, TaskRing.create(1, 1))("dataset", "queue")
    assert ran == [("dataset", "queue")]
