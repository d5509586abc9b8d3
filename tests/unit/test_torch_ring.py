"""Rows that torch's workers leave for the parent."""

from __future__ import annotations

from stoker._tools.profile.torch_loader.task_ring import TaskRing, TaskRow


def test_a_row_is_found_by_worker_and_position() -> None:
    ring = TaskRing.create(2, 3)
    first = TaskRow(
        0, 10, received_ns=5, fetched_ns=6, collated_ns=7, rows=4, slow_row=1, slow_ns=2, slow_index=9
    )
    other = TaskRow(0, 11, received_ns=50)
    at = ring.write(0, first)
    ring.write(1, other)
    assert ring.read(0, 0, 10) == first
    assert ring.read(1, 0, 11) == other
    ring.sent(0, at, 99)
    assert ring.read(0, 0, 10) == first._replace(sent_ns=99)
    assert ring.done == 1


def test_a_row_of_another_task_is_not_taken_for_it() -> None:
    ring = TaskRing.create(1, 3)
    assert ring.read(0, 1, 0) is None
    ring.write(0, TaskRow(0, 10))
    ring.write(0, TaskRow(3, 40))  # the same place, a round later
    assert ring.read(0, 0, 10) is None
    assert ring.read(0, 3, 41) is None
    assert ring.read(0, 3, 40) == TaskRow(3, 40)


def test_a_worker_tells_of_its_threads() -> None:
    ring = TaskRing.create(2, 1)
    ring.tell(1, 3, 500)
    assert (ring.worker_times(0), ring.worker_times(1), ring.done) == (None, (3, 500), 0)


def test_a_worker_tells_which_index_it_is_on() -> None:
    ring = TaskRing.create(2, 1)
    ring.works_on(1, 0, 8)
    assert (ring.worked_on(0), ring.worked_on(1)) == (None, (0, 8))
    ring.works_on(1, -1, 8)
    assert ring.worked_on(1) is None


def test_its_memory_outlives_its_descriptor() -> None:
    ring = TaskRing.create(1, 1)
    ring.settle()
    ring.settle()
    ring.write(0, TaskRow(0, 1))
    assert ring.read(0, 0, 1) == TaskRow(0, 1)
