"""Rows that several threads of a worker fetch: in order, with their own keys, and with the error that comes first."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.utils.data import Subset

import stoker
from stoker._runtime.protocol.status_page import AT_ONCE, EPOCH, INDEX, ROW, WORDS
from stoker._runtime.scheduler.row_ranges import row_ranges
from stoker._runtime.worker.batch_maker import BatchMaker, StatusView
from stoker._runtime.worker.fetch import batch_getter
from stoker._runtime.worker.rng import seeding
from stoker._runtime.worker.stream import Abandoned
from stoker.errors import SampleStopIteration
from tests.unit.makers import maker, order


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    with seeding.generators_kept():
        yield


@contextmanager
def made(dataset: Any, threads: int = 4, **changed: Any) -> Iterator[BatchMaker]:
    one = maker(dataset, threads=threads, **changed)
    try:
        yield one
    finally:
        one.close()


class Keyed:
    """Numbers of every kind that belong to the sample."""

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        python = stoker.generator("python")
        assert python is stoker.generator("python")
        return (
            index,
            float(stoker.generator().random()),
            python.random(),
            stoker.generator("torch").initial_seed(),
        )


class Meeting:
    """Rows that can only be had if this many threads fetch at once."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)

    def __getitem__(self, index: int) -> tuple[int, str]:
        self.barrier.wait(30)
        return index, threading.current_thread().name


class Latch:
    """Row ``first`` ends after row ``second`` has."""

    def __init__(self, first: int, second: int, errors: dict[int, BaseException]) -> None:
        self.first, self.second, self.errors = first, second, errors
        self.seconds = threading.Event()
        self.begun: list[int] = []

    def __getitem__(self, index: int) -> int:
        self.begun.append(index)
        if index == self.first:
            assert self.seconds.wait(30)
        try:
            if index in self.errors:
                raise self.errors[index]
        finally:
            if index == self.second:
                self.seconds.set()
        return index


@pytest.mark.parametrize("rng", ["batch", "sample", "torch"])
def test_keys_are_those_of_one_thread(rng: str) -> None:
    wanted = order(list(range(300, 340)), position=3)
    with made(Keyed(), threads=5, rng=rng) as one:
        assert one.make(wanted, None) == maker(Keyed(), rng=rng).make(wanted, None)
        ((first, last), *_) = row_ranges(40)
        part = order(list(range(first, last)), part=0, parts=2, start=first, stop=last, rows=40)
        assert one.make_part(part, None, 0) == maker(Keyed(), rng=rng).make_part(part, None, 0)


def test_rows_are_fetched_at_once_and_stay_in_order() -> None:
    with made(Meeting(4)) as one:
        batch = one.make(order(list(range(8))), None)
    assert [index for index, _ in batch] == list(range(8))
    assert {name for _, name in batch} == {f"stoker-fetch-{number}" for number in range(4)}


def test_no_more_threads_than_rows_and_none_before_the_first() -> None:
    before = threading.active_count()
    with made(Keyed(), threads=8) as one:
        assert threading.active_count() == before
        one.make(order([4]), None)
        assert threading.active_count() == before
        one.make(order([4, 5, 6]), None)
        assert threading.active_count() == before + 3
    assert threading.active_count() == before


def test_of_two_errors_the_first_in_order_is_raised() -> None:
    dataset = Latch(1, 2, {1: ValueError("one"), 2: KeyError("two")})
    with made(dataset, threads=3) as one, pytest.raises(ValueError, match="one") as caught:
        one.make(order(list(range(90))), None)
    assert caught.value.__notes__ == ["stoker: while fetching dataset index 1"]


def test_an_error_does_not_stay_behind() -> None:
    with made(Latch(7, 7, {2: ValueError("two")})) as one:
        with pytest.raises(ValueError, match="two"):
            one.make(order([1, 2, 3]), None)
        assert one.make(order([3, 4, 5]), None) == [3, 4, 5]


def test_a_silent_end_and_an_exit_are_what_they_are_without_threads() -> None:
    with made(Latch(-1, -1, {2: StopIteration(), 5: SystemExit(3)})) as one:
        with pytest.raises(SampleStopIteration, match="index 2"):
            one.make(order([1, 2, 3]), None)
        with pytest.raises(SystemExit):
            one.make(order([4, 5, 6]), None)


@pytest.mark.parametrize("mode", ["skip", "replace"])
def test_bad_samples_are_sorted_out(mode: str) -> None:
    def fresh() -> Latch:
        return Latch(-1, -1, {3: ValueError("three"), 21: KeyError("far")})

    wanted = order(list(range(40)), spares=(50, 51))
    with made(fresh(), on_bad_sample=mode) as one:
        assert one.make(wanted, None) == maker(fresh(), on_bad_sample=mode).make(wanted, None)


def test_an_exit_is_not_a_bad_sample() -> None:
    with made(Latch(-1, -1, {3: SystemExit(3)}), on_bad_sample="skip") as one, pytest.raises(SystemExit):
        one.make(order(list(range(5))), None)


@pytest.mark.parametrize("changed", [{"attempt": 1}, {"excluded": (99,)}])
def test_after_a_death_rows_are_fetched_one_by_one(changed: dict[str, Any]) -> None:
    """So that the status page names the one that kills."""
    begun: list[str] = []

    class Named:
        def __getitem__(self, index: int) -> int:
            begun.append(threading.current_thread().name)
            return index

    with made(Named()) as one:
        one.make(order([1, 2, 3], **changed), None)
    assert set(begun) == {threading.current_thread().name}


def test_the_page_shows_the_oldest_row_in_the_making() -> None:
    page = [0] * WORDS
    seen: list[tuple[int, int, int]] = []

    class Second(Latch):
        def __getitem__(self, index: int) -> int:
            if index == 31:
                seen.append((page[ROW], page[INDEX], page[AT_ONCE]))
            return super().__getitem__(index)

    with made(Second(30, 31, {}), threads=2, watch=StatusView(page)) as one:
        one.make(order([30, 31]), None)
    assert seen == [(0, 30, 2)]
    assert page[AT_ONCE] == 0


def test_work_for_nobody_ends() -> None:
    control = [0] * WORDS
    control[EPOCH] = 1
    begun: list[int] = []

    class Leaving:
        def __getitem__(self, index: int) -> int:
            control[EPOCH] = 2
            begun.append(index)
            return index

    with made(Leaving(), threads=2, watch=StatusView([0] * WORDS, control)) as one, pytest.raises(Abandoned):
        one.make(order(list(range(100))), None)
    assert len(begun) <= 2


def test_their_cpu_time_counts() -> None:
    with made(Keyed()) as one:
        one.make(order(list(range(64))), None)
        assert one.fetch_threads is not None
        assert one.fetch_threads.spent()[0] > 0


def test_the_slowest_row_is_measured() -> None:
    with made(Latch(2, 7, {})) as one:
        one.make(order(list(range(8))), None)
        fetched_ns, row, slow_ns = one.measured(0)
    assert fetched_ns > 0
    assert 0 <= row < 8
    assert slow_ns > 0


def test_shared_generators_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Drawing:
        def __getitem__(self, index: int) -> float:
            return random.random()

    with caplog.at_level(logging.WARNING, "stoker"), made(Drawing(), warns_of_shared_rng=True) as one:
        one.make(order([1, 2, 3]), None)
        one.make(order([4, 5, 6]), None)
    (line,) = caplog.messages
    assert line.startswith("random is a random generator that the threads of a worker share")


def test_rows_that_draw_nothing_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stoker"), made(Keyed(), warns_of_shared_rng=True) as one:
        one.make(order([1, 2, 3]), None)
    assert not caplog.messages


def test_parts_of_one_batch_do_not_draw_the_same_numbers() -> None:
    class Drawing:
        def __getitem__(self, index: int) -> float:
            return random.random()

    rows: list[float] = []
    for number, (start, stop) in enumerate(row_ranges(32)):
        with made(Drawing(), threads=2) as one:
            part = order(list(range(start, stop)), part=number, parts=2, start=start, stop=stop, rows=32)
            rows += one.make_part(part, None, 0).raw or []
    assert len(set(rows)) == 32


def test_a_system_without_threads_has_them_fetched_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with made(Keyed()) as one:
        assert one.make(order([1, 2, 3]), None) == maker(Keyed()).make(order([1, 2, 3]), None)


class Batches:
    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return indices


class Doubled(Subset[int]):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) * 2

    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


def test_a_subset_gets_rows_one_by_one_unless_what_is_in_it_gets_batches() -> None:
    rows: Any = list(range(9))
    assert batch_getter(Subset(Subset(rows, [1, 2, 3]), [1])) is None
    assert batch_getter(Subset(Batches(), [1])) is not None  # type: ignore[arg-type]
    assert batch_getter(Subset(Subset(Batches(), [1]), [0])) is not None  # type: ignore[arg-type]
    assert batch_getter(Doubled(rows, [1])) is not None
    assert batch_getter(Batches()) is not None
    assert batch_getter(rows) is None
