"""What was handed over, in order and out of order, and of streams."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from stoker._runtime.checkpoint.progress import Progress
from stoker._runtime.checkpoint.state_format import StreamState
from stoker._runtime.protocol.worker_spec import Resume
from stoker._runtime.scheduler import messages as m
from stoker._runtime.scheduler.types import Receipt, Spans, Ticket


def delivered(
    number: int, *, rows: int = 4, sample: int | None = None, state: Any = None, worker: int = 0
) -> m.Deliver:
    ticket = Ticket(
        0, number, number, [0] * rows, 1, rows, state, number=number, sample=4 * number if sample is None else sample
    )  # fmt: skip
    ready = m.BatchReady(number, 0, 0, worker, None, None, Receipt(), Spans())
    return m.Deliver(ticket, (ready,))


def test_in_order_the_last_ticket_says_it_all() -> None:
    progress = Progress(in_order=True)
    assert (progress.batches, progress.samples, progress.ahead, progress.snapshot) == (0, 0, (), None)
    progress.note(delivered(0, state=b"a"))
    progress.note(delivered(1, rows=3))
    assert (progress.batches, progress.samples, progress.ahead) == (2, 7, ())
    assert progress.snapshot == (1, b"a")
    assert progress.streams is None
    assert progress.turn == 0


def test_without_batches_a_ticket_is_a_sample() -> None:
    progress = Progress(in_order=True, batched=False, batches=3, samples=3)
    progress.note(delivered(3, rows=0, sample=3))
    assert (progress.batches, progress.samples) == (4, 4)


def test_out_of_order_only_what_has_no_gap_before_it_is_behind() -> None:
    progress = Progress(in_order=False)
    for number in (2, 4, 1):
        progress.note(delivered(number, state=bytes([number])))
    assert (progress.batches, progress.samples, progress.ahead, progress.snapshot) == (0, 0, (1, 2, 4), None)
    progress.note(delivered(0, state=b"\0"))
    assert (progress.batches, progress.samples, progress.ahead) == (3, 12, (4,))
    assert progress.snapshot == (3, b"\2")


@pytest.mark.parametrize("in_order", [True, False])
def test_what_was_ahead_is_behind_when_the_planner_has_passed_it(in_order: bool) -> None:
    progress = Progress(in_order=in_order, batches=2, samples=8, ahead=(3, 5))
    progress.passed(1, 8)  # long counted
    progress.note(delivered(2))
    assert (progress.batches, progress.ahead) == (3, (3, 5))
    progress.passed(3, 16)
    assert (progress.batches, progress.samples, progress.ahead) == (4, 16, (5,))
    progress.passed(5, 24)
    progress.note(delivered(4))
    assert (progress.batches, progress.samples, progress.ahead) == (6, 24, ())


def said(pulled: int, at: int, *, ended: bool = False) -> Resume:
    return Resume(0, pulled, pickle.dumps({"i": at}), None, ended=ended)


def test_streams_are_counted_each() -> None:
    progress = Progress(in_order=True, streams=(StreamState(), StreamState(), StreamState()))
    for number, worker in enumerate((0, 1, 2, 0)):
        progress.note_resume(said(number // 3 + 1, number))
        progress.note(delivered(number, worker=worker))
    assert (progress.batches, progress.samples, progress.ahead, progress.turn) == (4, 0, (), 1)
    assert progress.streams == (
        StreamState(2, 2, {"i": 3}, None, begun=True),
        StreamState(1, 1, {"i": 1}, None, begun=True),
        StreamState(1, 1, {"i": 2}, None, begun=True),
    )


def test_what_comes_with_a_batch_that_was_not_handed_over_was_not_said() -> None:
    """Ctrl-C may come between the two."""
    progress = Progress(in_order=True, streams=(StreamState(),))
    progress.note_resume(said(1, 4))
    progress.note(delivered(0))
    progress.note_resume(said(2, 8))
    assert progress.streams == (StreamState(1, 1, {"i": 4}, None, begun=True),)


def test_the_end_of_a_stream_is_found_by_one_pull_more() -> None:
    progress = Progress(in_order=True, streams=(StreamState(), StreamState()))
    progress.note_resume(said(1, 4))
    progress.note(delivered(0))
    progress.follow_ends({0: (1, said(2, 0, ended=True)), 1: (3, said(4, 0, ended=True))})
    streams = progress.streams
    assert streams is not None
    assert streams[0] == StreamState(1, 1, {"i": 0}, None, ended=True, begun=True)
    assert not streams[1].ended


def test_loaded_streams_go_on_counting_and_keep_what_was_said_to_themselves() -> None:
    begun = (
        StreamState(3, 2, {"i": [1]}, None, begun=True),
        StreamState(2, 2, None, {"at": 5}, ended=True, begun=True),
    )
    progress = Progress(in_order=True, batches=7, streams=begun, turn=1)
    assert progress.batches == 7
    streams = progress.streams
    assert streams == begun
    streams[0].dataset["i"].append(2)
    assert progress.streams == begun
    assert [(worker, each.pulled, each.ended) for worker, each in progress.resumes(9)] == [
        (0, 2, False),
        (1, 2, True),
    ]
    start = progress.stream_start()
    assert start is not None
    progress.note(delivered(7, worker=0))
    assert progress.batches == 8


def test_a_new_epoch_begins_with_the_datasets_of_the_one_before() -> None:
    before = (StreamState(3, 3, {"epoch": 1}, {"at": 9}, ended=True, begun=True),)
    progress = Progress(in_order=True, streams=before, fresh=True)
    assert progress.stream_start() is None
    assert progress.streams == (StreamState(dataset={"epoch": 1}),)
    assert [each.fresh for _, each in progress.resumes(2)] == [True]


class Notes:
    """Stands for a receipt's writer: keeps the numbers of batches."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def note(self, number: int, indices: Any) -> None:
        self.numbers.append(number)

    def note_failed(self, number: int) -> None:
        self.note(number, None)

    def take_back(self, number: int) -> None:
        if self.numbers[-1:] == [number]:
            self.numbers.pop()


def test_a_receipt_counts_batches_of_streams_without_the_gaps_of_their_tickets() -> None:
    """Tickets of a stream that ended early are withdrawn: how many there were depends on timing."""
    progress = Progress(in_order=True, streams=(StreamState(), StreamState()))
    notes: Any = Notes()
    progress.receipt_writer = notes
    last = delivered(5, worker=0)
    for each, failed in ((delivered(0, worker=0), False), (delivered(1, worker=1), True), (last, False)):
        progress.note(each, failed=failed)
    assert notes.numbers == [0, 1, 2]
    assert progress.noted_number == 2
    progress.take_back(delivered(4, worker=1))  # it was not noted
    assert notes.numbers == [0, 1, 2]
    progress.take_back(last)
    assert notes.numbers == [0, 1]
    progress.note(last)
    assert notes.numbers == [0, 1, 2]
