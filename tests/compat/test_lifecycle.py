"""Iterators and loaders over their life: independence, early exits, close, copies, persistent workers."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tests.compat.compare import BOTH, StokerLoader, TorchLoader, assert_same
from tests.compat.samples import Counting, Sharded, Squares, keep_rows

WORKERS = (0, 1, 2)
JOIN_S = 20
"""How long a worker that was told to go may take; it only bounds a failure."""


def workers_of(iterator: Any) -> list[Any]:
    return list(getattr(iterator, "_workers", []))


def assert_gone(workers: list[Any]) -> None:
    for worker in workers:
        worker.join(JOIN_S)
        assert not worker.is_alive()


@pytest.mark.parametrize("num_workers", WORKERS)
def test_two_iterators_of_one_loader(num_workers: int) -> None:
    for loader_class in BOTH:
        loader = loader_class(range(10), batch_size=2, num_workers=num_workers)
        pairs = [(one.tolist(), two.tolist()) for one, two in zip(loader, loader, strict=True)]
        assert pairs == [([row, row + 1], [row, row + 1]) for row in range(0, 10, 2)]


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("dataset", [Squares(8), Counting(8)], ids=["map", "iterable"])
def test_two_iterators_of_one_persistent_loader(dataset: Any, num_workers: int) -> None:
    """torch hands out one iterator twice here, so the pairs are (0, 1), (2, 3)."""
    loader = StokerLoader(
        dataset, batch_size=2, num_workers=num_workers, persistent_workers=True, collate_fn=keep_rows
    )
    expected = list(TorchLoader(dataset, batch_size=2, num_workers=num_workers, collate_fn=keep_rows))
    for one, two in zip(loader, loader, strict=True):
        assert_same(one, two)
    assert_same(expected, list(loader))


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_interleaved_iterators_at_different_speeds(persistent_workers: bool) -> None:
    loader = StokerLoader(range(9), num_workers=2, persistent_workers=persistent_workers)
    fast, slow = iter(loader), iter(loader)
    assert [int(next(fast)) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    assert [int(next(slow)) for _ in range(2)] == [0, 1]
    assert [int(batch) for batch in fast] == [6, 7, 8]
    assert [int(batch) for batch in slow] == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("dataset", [Squares(30), Sharded(30)], ids=["map", "iterable"])
def test_an_epoch_left_early_does_not_show_in_the_next(dataset: Any, persistent_workers: bool) -> None:
    expected = list(TorchLoader(dataset, batch_size=4, num_workers=2))
    loader = StokerLoader(dataset, batch_size=4, num_workers=2, persistent_workers=persistent_workers)
    for batches in (0, 1, 3):
        assert_same(expected[:batches], list(itertools.islice(loader, batches)))
    assert_same(expected, list(loader))


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_exhausted_iterator_stays_exhausted(loader_class: Any, num_workers: int) -> None:
    iterator = iter(loader_class(range(3), num_workers=num_workers))
    assert iter(iterator) is iterator
    assert len(iterator) == 3
    assert len(list(iterator)) == 3
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_iterator_cannot_be_pickled(loader_class: Any, num_workers: int) -> None:
    iterator = iter(loader_class(range(3), num_workers=num_workers))
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iterator)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("persistent_workers", [False, True])
def test_with(num_workers: int, persistent_workers: bool) -> None:
    persistent_workers = persistent_workers and num_workers > 0
    with StokerLoader(range(9), num_workers=num_workers, persistent_workers=persistent_workers) as loader:
        iterator = iter(loader)
        assert int(next(iterator)) == 0
        workers = workers_of(iterator)
        assert len(workers) == num_workers
    assert_gone(workers)


def test_with_lets_an_error_through() -> None:
    with pytest.raises(LookupError, match="mine"), StokerLoader(range(9), num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        raise LookupError("mine")
    assert_gone(workers_of(iterator))


@pytest.mark.parametrize("num_workers", WORKERS)
def test_close_may_be_called_at_any_time_and_again(num_workers: int) -> None:
    loader = StokerLoader(range(9), num_workers=num_workers, persistent_workers=num_workers > 0)
    loader.close()
    loader = StokerLoader(range(9), num_workers=num_workers, persistent_workers=num_workers > 0)
    kept = next(iter(loader))
    loader.close()
    loader.close()
    assert int(kept) == 0


@pytest.mark.parametrize("num_workers", [1, 2])
def test_close_ends_every_live_iterator(num_workers: int) -> None:
    loader = StokerLoader(range(9), num_workers=num_workers)
    one, two = iter(loader), iter(loader)
    next(one)
    next(two)
    workers = workers_of(one) + workers_of(two)
    loader.close()
    assert_gone(workers)


@pytest.mark.parametrize("loader_class", BOTH)
def test_resetting_the_iterator_attribute_ends_persistent_workers(loader_class: Any) -> None:
    """Lightning does this between stages."""
    loader = loader_class(range(6), num_workers=2, persistent_workers=True)
    assert len(list(loader)) == 6
    assert loader._iterator is not None
    workers = list(loader._iterator._workers)
    assert len(workers) == 2
    loader._iterator = None
    assert_gone(workers)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(list(loader)) == 6


class ProcessNames(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return os.getpid()


@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("loader_class", BOTH)
def test_persistent_workers_are_the_same_processes(loader_class: Any, persistent_workers: bool) -> None:
    loader = loader_class(ProcessNames(), num_workers=1, persistent_workers=persistent_workers)
    one, two = ({int(pid) for pid in loader} for _ in range(2))
    assert (one == two) is persistent_workers


def test_dropping_a_persistent_loader_ends_its_workers() -> None:
    loader = StokerLoader(range(6), num_workers=2, persistent_workers=True)
    list(loader)
    workers = list(loader._iterator._workers)
    del loader
    assert_gone(workers)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@pytest.mark.parametrize("persistent_workers", [False, True])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_live_loader_can_be_copied(num_workers: int, persistent_workers: bool, duplicate: Any) -> None:
    loader = StokerLoader(
        Squares(8),
        batch_size=3,
        num_workers=num_workers,
        persistent_workers=persistent_workers and num_workers > 0,
    )
    iterator = iter(loader)
    first = next(iterator)
    twin = duplicate(loader)
    assert twin.batch_size == 3
    assert twin.dataset is not loader.dataset
    assert_same(list(TorchLoader(Squares(8), batch_size=3)), list(twin))
    assert_same(list(twin), [first, *iterator])
    with pytest.raises(ValueError, match="should not be set after"):
        twin.batch_size = 5


@pytest.mark.parametrize("loader_class", BOTH)
def test_an_unused_loader_can_be_pickled(loader_class: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    loader = loader_class(Squares(8), batch_size=3, shuffle=True, generator=generator)
    twin = pickle.loads(pickle.dumps(loader))
    assert_same(list(loader), list(twin))


@pytest.mark.parametrize("loader_class", BOTH)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_inside_a_worker_of_another(loader_class: Any, num_workers: int) -> None:
    outer = loader_class(Nested(loader_class), num_workers=num_workers, batch_size=None)
    assert list(outer) == [[0, 1, 2], [0, 1, 2]]


class Nested(Dataset[Any]):
    """Runs a loader without workers for every row."""

    def __init__(self, loader_class: Any) -> None:
        self.loader_class = loader_class

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return [int(row) for row in self.loader_class(range(3))]
