"""The moments of a batch that torch's own fetcher makes, on a clock that only the dataset moves."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from stoker._tools.profile.torch_loader import task_clock
from stoker._tools.profile.torch_loader.task_clock import TaskClock, fetches_singly


class Now:
    """Nanoseconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.ns = 1000

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    clock = Now()
    monkeypatch.setattr(task_clock, "_clock", clock)
    return clock


class Slow(Dataset[Any]):
    """Row 7 takes longer than the others."""

    def __init__(self, now: Now, row_ns: int) -> None:
        self.now = now
        self.row_ns = row_ns

    def __getitem__(self, index: int) -> Any:
        self.now.ns += self.row_ns * (5 if index == 7 else 1)
        return index


def made(clock: TaskClock, fetcher: Any, indices: Any, now: Now) -> Any:
    clock.begin(now.ns)
    return fetcher.fetch(clock.indices(indices))


def of(clock: TaskClock) -> tuple[int, ...]:
    return clock.received_ns, clock.fetched_ns, clock.collated_ns, clock.rows


def test_moments_follow_torchs_own_fetcher(now: Now) -> None:
    def collate(samples: Any) -> Any:
        now.ns += 50
        return tuple(samples)

    dataset = Slow(now, 100)
    clock = TaskClock(dataset, collate, batched=True)
    fetcher = _MapDatasetFetcher(dataset, True, clock.collate, False)
    assert made(clock, fetcher, [1, 2], now) == (1, 2)
    assert of(clock) == (1000, 1200, 1250, 2)
    assert clock.slow_row == -1


def test_slow_rows_are_timed_from_the_second_batch_on(now: Now) -> None:
    dataset = Slow(now, 30_000)
    clock = TaskClock(dataset, tuple, batched=True)
    fetcher = _MapDatasetFetcher(dataset, True, clock.collate, False)
    made(clock, fetcher, [1, 2], now)
    assert clock.slow_row == -1
    made(clock, fetcher, [5, 7, 9], now)
    assert (clock.slow_row, clock.slow_ns, clock.slow_index) == (1, 150_000, 7)
    dataset.row_ns = 10
    made(clock, fetcher, [1, 2], now)  # still timed: the batch before was slow
    assert clock.slow_row == 0
    made(clock, fetcher, [1, 7], now)
    assert clock.slow_row == -1


def test_the_index_that_is_worked_on_is_told(now: Now) -> None:
    told: list[tuple[int, int]] = []
    clock = TaskClock(
        Slow(now, 30_000), tuple, batched=True, works_on=lambda index, rows: told.append((index, rows))
    )
    fetcher = _MapDatasetFetcher(Slow(now, 30_000), True, clock.collate, False)
    made(clock, fetcher, [1, 2], now)
    made(clock, fetcher, [5, 7], now)  # its rows are timed
    assert told == [(1, 2), (5, 2), (5, 1), (7, 1)]


def test_a_stream_has_rows_but_no_indices(now: Now) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            for value in range(5):
                now.ns += 40_000 + value
                yield value

    dataset = Stream()
    clock = TaskClock(dataset, tuple, batched=True)
    fetcher = _IterableDatasetFetcher(dataset, True, clock.collate, True)
    assert made(clock, fetcher, [None, None], now) == (0, 1)
    assert made(clock, fetcher, [None, None], now) == (2, 3)
    assert (clock.slow_row, clock.slow_ns, clock.slow_index, clock.rows) == (1, 40_003, -1, 2)
    with pytest.raises(StopIteration):  # drop_last: the length of the indices counts
        made(clock, fetcher, [None, None], now)
    assert clock.collated_ns == 0


def test_one_sample_is_one_row(now: Now) -> None:
    dataset = Slow(now, 30_000)
    clock = TaskClock(dataset, lambda sample: sample, batched=False)
    fetcher = _MapDatasetFetcher(dataset, False, clock.collate, False)
    assert [made(clock, fetcher, index, now) for index in (3, 7)] == [3, 7]
    assert clock.rows == 1


def test_only_datasets_that_never_see_the_list_are_timed() -> None:
    class Plain(Dataset[Any]):
        pass

    class Many(Dataset[Any]):
        def __getitems__(self, indices: Any) -> Any: ...

    class Delegating(Dataset[Any]):
        def __getattr__(self, name: str) -> Any: ...

    class Intercepting(Dataset[Any]):
        def __getattribute__(self, name: str) -> Any: ...

    late = Plain()
    late.__getitems__ = lambda indices: indices  # type: ignore[attr-defined]
    assert fetches_singly(Plain())
    assert fetches_singly([1, 2])
    assert not any(fetches_singly(each) for each in (Many(), Delegating(), Intercepting(), late))
