"""Streams of iterable datasets, as a maker pulls them: batches, ends, winding forward, epochs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from stoker._runtime.worker.batch_maker import BatchMaker
from stoker._runtime.worker.rng import seeding
from stoker._runtime.worker.stream import StreamEnded
from tests.unit.makers import maker, order


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with seeding.generators_kept():
        yield


class Stream:
    def __init__(self, length: int, breaks_at: int = -1) -> None:
        self.length = length
        self.breaks_at = breaks_at

    def __iter__(self) -> Iterator[Any]:
        return _Counter(self)


class _Counter:
    """Goes on after an error, which a generator cannot."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.at = -1

    def __iter__(self) -> _Counter:
        return self

    def __next__(self) -> tuple[int, float]:
        self.at += 1
        if self.at == self.stream.breaks_at:
            raise KeyError(self.at)
        if self.at >= self.stream.length:
            raise StopIteration
        return self.at, random.random()


def pulls(one: BatchMaker, count: int, size: int = 2, *, start: int = 0, epoch: int = 1) -> list[Any]:
    """Batches until the stream ends, at most ``count``; the end is marked by None."""
    got: list[Any] = []
    for pull in range(start, start + count):
        try:
            got.append(one.make(order([None] * size, seq=pull, position=pull, pull=pull, epoch=epoch), None))
        except StreamEnded:
            got.append(None)
    return got


def numbers(batches: list[Any]) -> list[Any]:
    return [batch if batch is None else [row[0] for row in batch] for batch in batches]


def test_a_stream_gives_batches_and_then_the_end_again_and_again() -> None:
    assert numbers(pulls(maker(Stream(5), iterable=True), 5)) == [[0, 1], [2, 3], [4], None, None]


def test_drop_last_drops_the_short_batch() -> None:
    assert numbers(pulls(maker(Stream(5), iterable=True, drop_last=True), 4)) == [[0, 1], [2, 3], None, None]
    assert numbers(pulls(maker(Stream(4), iterable=True, drop_last=True), 3)) == [[0, 1], [2, 3], None]


def test_without_collation_a_stream_gives_samples() -> None:
    one = maker([10, 11], iterable=True, auto_collation=False, collate_fn=lambda sample: sample)
    assert one.make(order(None), None) == 10
    assert one.make(order(None, seq=1, pull=1), None) == 11
    with pytest.raises(StreamEnded):
        one.make(order(None, seq=2, pull=2), None)


def test_a_replacement_winds_forward_and_draws_the_same() -> None:
    expected = pulls(maker(Stream(20), iterable=True), 6)
    assert pulls(maker(Stream(20), iterable=True), 3, start=3) == expected[3:]


def test_winding_beyond_the_end_is_the_end() -> None:
    assert pulls(maker(Stream(3), iterable=True), 2, start=7) == [None, None]


def test_winding_passes_over_an_error_that_was_reported_before() -> None:
    """The predecessor delivered it; the replacement must not deliver it again in another batch's place."""
    first = maker(Stream(12, breaks_at=3), iterable=True)
    assert numbers(pulls(first, 1)) == [[0, 1]]
    with pytest.raises(KeyError):
        pulls(first, 1, start=1)
    expected = pulls(first, 2, start=2)
    assert pulls(maker(Stream(12, breaks_at=3), iterable=True), 2, start=2) == expected


def test_a_new_epoch_begins_the_stream_again() -> None:
    one = maker(Stream(3), iterable=True)
    first = numbers(pulls(one, 3))
    assert numbers(pulls(one, 3, epoch=2)) == first


def test_workers_of_a_stream_draw_different_numbers() -> None:
    left, right = (pulls(maker(Stream(4), iterable=True, worker=worker), 1) for worker in (0, 1))
    assert left != right


# The status page
