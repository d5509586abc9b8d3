"""Bad samples of streams under ``on_bad_sample``, and what a None does by default."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from torch.utils.data import IterableDataset, get_worker_info

from stoker import DataLoader
from stoker.errors import NoGoodSample
from tests.fault.rows import steps, told
from tests.fault.test_bad_samples import Bad, indices_of

THREADS: dict[str, Any] = {"num_workers": 2, "executor": "thread"}


class Source:
    """Goes on after it raised: number 3 of every ten is torn, number 5 is None."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = iter(numbers)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> int | None:
        number = next(self.numbers)
        if number % 10 == 3:
            raise ValueError(f"record {number} is torn")
        return None if number % 10 == 5 else number


def generated(numbers: Sequence[int]) -> Iterator[int]:
    for number in numbers:
        if number == 4:
            raise ValueError("record 4 is torn")
        yield number


class Stream(IterableDataset[Any]):
    """Each worker's share of ``count`` numbers, read by ``make``."""

    def __init__(self, make: Callable[[Sequence[int]], Iterator[Any]], count: int) -> None:
        self.make = make
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return self.make(range(first, self.count, step))


@pytest.mark.parametrize("mode", ["skip", "replace"])
@pytest.mark.parametrize("way", [{}, {"num_workers": 1}, {"num_workers": 2}, THREADS])
def test_an_iterator_goes_on_behind_bad_samples_and_batches_stay_full(mode: Any, way: dict[str, Any]) -> None:
    """Row 18: skipping one bad record does not end the stream."""
    with DataLoader(Stream(Source, 40), batch_size=4, on_bad_sample=mode, **way) as loader:
        batches = [batch.tolist() for batch in loader]
        bad = loader.stats()["bad_samples"]
    assert sorted(number for batch in batches for number in batch) == [
        number for number in range(40) if number % 10 not in (3, 5)
    ]
    assert all(len(batch) == 4 for batch in batches)
    assert bad["count"] == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_without_batches_goes_on_too(workers: int) -> None:
    """Row 18."""
    with DataLoader(Stream(Source, 20), batch_size=None, on_bad_sample="skip", num_workers=workers) as loader:
        assert sorted(loader) == [number for number in range(20) if number % 10 not in (3, 5)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [3, None])
def test_a_generator_that_raises_is_named(workers: int, size: int | None) -> None:
    """Row 18: a generator dies after raising; the error says why it cannot be skipped."""
    with DataLoader(
        Stream(generated, 20), batch_size=size, on_bad_sample="skip", num_workers=workers
    ) as loader:
        errors = [step for step in steps(loader) if isinstance(step, Exception)]
    assert [str(error).splitlines()[0] for error in errors] == ["record 4 is torn"]
    assert isinstance(errors[0], ValueError)
    assert "a generator ends when it raises" in told(errors[0])
    assert f"sample {4 if workers == 0 else 2} of the stream" in told(errors[0])


def through_map(numbers: Sequence[int]) -> Iterator[int]:
    return map(int, generated(numbers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_generator_inside_of_something_else_is_suspected(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 18: nobody can see that ``map`` reads from a generator; that its end follows an error can be seen."""
    with DataLoader(
        Stream(through_map, 20), batch_size=3, on_bad_sample="skip", num_workers=workers
    ) as loader:
        list(loader)
    assert "ended right after its sample" in caplog.text
    assert "the rest of it is not read" in caplog.text


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_of_errors_alone_ends_in_one(workers: int) -> None:
    class Broken:
        def __init__(self, numbers: Sequence[int]) -> None:
            pass

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            raise OSError("the store is gone")

    with (
        DataLoader(Stream(Broken, 1), batch_size=2, on_bad_sample="skip", num_workers=workers) as loader,
        pytest.raises(OSError, match="the store is gone") as caught,
    ):
        next(iter(loader))
    assert "1000 samples of the stream were bad" in told(caught.value)


@pytest.mark.parametrize("way", [{}, {"num_workers": 1}, {"num_workers": 2}, THREADS])
def test_by_default_a_none_names_its_index(way: dict[str, Any]) -> None:
    """Row 25: which sample was it?"""
    with DataLoader(Bad(12, {7: "none"}), batch_size=4, **way) as loader:
        first, error, last = steps(loader)
    assert indices_of([first, last]) == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert isinstance(error, TypeError)
    assert "dataset index 7" in told(error)
    assert "None" in told(error)


def without_none(samples: list[Any]) -> list[int]:
    return [sample["index"] for sample in samples if sample is not None]


@pytest.mark.parametrize("way", [{}, {"num_workers": 2}, THREADS])
def test_by_default_a_collation_that_drops_none_keeps_working(way: dict[str, Any]) -> None:
    """Row 25: how people help themselves today."""
    with DataLoader(Bad(6, {4: "none"}), batch_size=3, collate_fn=without_none, **way) as loader:
        assert list(loader) == [[0, 1, 2], [3, 5]]
        assert loader.stats()["bad_samples"]["count"] == 0


def test_an_endless_sampler_of_bad_samples_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker._runtime.engine.iteration.EMPTY_LIMIT", 20)
    rows: Any = [None]
    loader = DataLoader(rows, batch_sampler=itertools.repeat([0]), on_bad_sample="skip")
    with pytest.raises(NoGoodSample, match="20 batches in a row"):
        next(iter(loader))


def test_samples_of_streams_are_told_apart_by_worker() -> None:
    loader = DataLoader(Gappy(), batch_size=None, num_workers=2, on_bad_sample="skip")
    assert len(list(loader)) == 4
    assert set(loader.stats()["bad_samples"]["indices"]) == {
        "sample 1 of worker 0's stream",
        "sample 1 of worker 1's stream",
    }


class Gappy(IterableDataset[Any]):
    """Three samples of which the second is None, the same in every worker."""

    def __iter__(self) -> Iterator[Any]:
        return iter([0, None, 2])
