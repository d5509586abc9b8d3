"""Iterable-style datasets beyond the matrix: length and its warnings, sharding by worker, ends and errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import ChainDataset, IterableDataset, get_worker_info

from tests.compat.compare import BOTH, Arguments, assert_same, assert_same_run, length_of
from tests.compat.samples import Counting, Sharded, Sized, keep_rows

WORKERS = (0, 1, 2)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 4])
@pytest.mark.parametrize("reported", [0, 4, 7, 12])
def test_length_is_an_estimate_from_the_datasets(reported: int, batch_size: int, drop_last: bool) -> None:
    lengths = []
    for loader_class in BOTH:
        loader = loader_class(Sized(10, reported), batch_size=batch_size, drop_last=drop_last)
        assert loader._IterableDataset_len_called is None
        lengths.append(length_of(loader))
        assert loader._IterableDataset_len_called == reported
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("loader_class", BOTH)
def test_no_length_is_a_type_error(loader_class: Any) -> None:
    with pytest.raises(TypeError, match="has no len"):
        len(loader_class(Counting()))


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_more_rows_than_reported_are_warned_about(batch_size: int | None, num_workers: int) -> None:
    """One warning per batch beyond the reported number of rows, as torch counts it, and only after len()."""
    theirs, ours = assert_same_run(
        lambda: {"dataset": Sized(8, 5), "batch_size": batch_size, "num_workers": num_workers}
    )
    about_length = [entry for entry in ours.warned if entry[1].startswith("Length of IterableDataset")]
    assert about_length == theirs.warned


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("loader_class", BOTH)
def test_without_len_there_is_no_such_warning(
    loader_class: Any, num_workers: int, recwarn: pytest.WarningsRecorder
) -> None:
    list(loader_class(Sized(8, 5), num_workers=num_workers))
    assert not [entry for entry in recwarn if "Length of IterableDataset" in str(entry.message)]


class WhoAmI(IterableDataset[Any]):
    """Rows that tell which worker made them."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = info.id if info is not None else 0
        for row in range(self.lengths[worker]):
            yield worker * 100 + row


@pytest.mark.parametrize("lengths", [[5, 5], [1, 9], [9, 1], [0, 4], [4, 0], [0, 0]])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_round_robin_over_workers_of_unequal_length(lengths: list[int], batch_size: int | None) -> None:
    assert_same_run(
        lambda: {"dataset": WhoAmI(lengths), "batch_size": batch_size, "num_workers": 2}, epochs=2
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_persistent_workers_start_the_stream_again(num_workers: int) -> None:
    epochs = []
    for loader_class in BOTH:
        loader = loader_class(Sharded(), batch_size=3, num_workers=num_workers, persistent_workers=True)
        epochs.append([list(loader) for _ in range(3)])
    assert_same(*epochs)


class Forever(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return itertools.count()


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_endless_stream_can_be_left(num_workers: int) -> None:
    heads = [
        list(itertools.islice(loader_class(Forever(), batch_size=4, num_workers=num_workers), 9))
        for loader_class in BOTH
    ]
    assert_same(*heads)


class Breaking(IterableDataset[Any]):
    """Its generator dies in the middle."""

    def __iter__(self) -> Iterator[Any]:
        yield from range(5)
        raise OverflowError("the stream is broken")


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_stream_that_raises_ends_after_its_error(num_workers: int) -> None:
    def story(loader_class: Any) -> list[Any]:
        steps: list[Any] = []
        iterator = iter(loader_class(Breaking(), batch_size=2, num_workers=num_workers))
        while True:
            try:
                steps.append(next(iterator).tolist())
            except OverflowError:
                steps.append("raised")
            except StopIteration:
                return steps

    theirs, ours = (story(loader_class) for loader_class in BOTH)
    assert ours == theirs


class Resuming(IterableDataset[Any]):
    """An iterator that is no generator: it goes on after its error."""

    def __iter__(self) -> Iterator[Any]:
        return ResumingIterator()


class ResumingIterator:
    def __init__(self) -> None:
        self.row = 0

    def __iter__(self) -> ResumingIterator:
        return self

    def __next__(self) -> int:
        self.row += 1
        if self.row > 6:
            raise StopIteration
        if self.row == 3:
            raise ArithmeticError("one bad row")
        return self.row


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_iterator_that_survives_its_error_goes_on(num_workers: int) -> None:
    def story(loader_class: Any) -> list[Any]:
        steps: list[Any] = []
        iterator = iter(loader_class(Resuming(), batch_size=None, num_workers=num_workers))
        while True:
            try:
                steps.append(next(iterator))
            except ArithmeticError:
                steps.append("raised")
            except StopIteration:
                return steps

    theirs, ours = (story(loader_class) for loader_class in BOTH)
    assert ours == theirs


@pytest.mark.parametrize("num_workers", WORKERS)
def test_chained_streams(num_workers: int) -> None:
    def build() -> Arguments:
        chain: Any = ChainDataset([Counting(3), Counting(4)])
        return {"dataset": chain, "batch_size": 2, "num_workers": num_workers, "collate_fn": keep_rows}

    assert_same_run(build)


@pytest.mark.parametrize(("dataset", "told"), [(Counting(), 1), (Sharded(), 0)])
def test_a_stream_that_is_not_shared_out_is_told_once(
    dataset: Any, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    loader = BOTH[1](dataset, batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        list(loader)
    del loader
    assert sum("every worker reads the whole stream" in text for text in caplog.messages) == told
