"""sampler, batch_sampler, __getitems__: who decides which rows make a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DistributedSampler,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from stoker import ElasticDistributedSampler
from tests.compat.compare import BOTH, Arguments, StokerLoader, TorchLoader, assert_same, assert_same_run
from tests.compat.samples import Bulk, Keyed, Shaped, Squares

WORKERS = (0, 1, 2)


class Unsized:
    """An iterable of indices without a length."""

    def __init__(self, indices: list[Any]) -> None:
        self.indices = indices

    def __iter__(self) -> Iterator[Any]:
        return iter(self.indices)


SAMPLERS: dict[str, Any] = {
    "list": lambda: [3, 1, 4, 1, 5, 9, 2, 6],
    "range": lambda: range(0, 20, 3),
    "unsized": lambda: Unsized([5, 0, 5]),
    "random": lambda: RandomSampler(range(20)),
    "replacement": lambda: RandomSampler(range(20), replacement=True, num_samples=45),
    "subset": lambda: SubsetRandomSampler([1, 3, 5, 7, 11]),
    "weighted": lambda: WeightedRandomSampler([0.1, 2.0, 1.0, 0.0], 13),
    "distributed": lambda: DistributedSampler(Squares(20), num_replicas=3, rank=1, seed=3),
    "elastic": lambda: ElasticDistributedSampler(Squares(20), num_replicas=3, rank=1, seed=3),
    "empty": list,
}


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("name", SAMPLERS)
def test_sampler(name: str, batch_size: int | None, num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": Squares(20),
            "sampler": SAMPLERS[name](),
            "batch_size": batch_size,
            "num_workers": num_workers,
        }

    assert_same_run(build, epochs=2)


BATCH_SAMPLERS: dict[str, Any] = {
    "ragged": lambda: [[1, 2, 3], [4], [5, 6], [19]],
    "tuples": lambda: [(1, 2), (3,)],
    "unsized": lambda: Unsized([[0, 1], [2]]),
    "torch's": lambda: BatchSampler(RandomSampler(range(20)), 6, drop_last=True),
    "hollow": lambda: [[1, 2], [], [3]],
}


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("name", [name for name in BATCH_SAMPLERS if name != "hollow"])
def test_batch_sampler(name: str, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": Squares(20), "batch_sampler": BATCH_SAMPLERS[name](), "num_workers": num_workers}

    assert_same_run(build, epochs=2)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("sampler", [torch.tensor([4, 2, 0]), np.array([4, 2, 0])], ids=["torch", "numpy"])
def test_indices_that_are_tensors_or_arrays(sampler: Any, num_workers: int) -> None:
    """Against torch without workers: its index queue keeps a descriptor per tensor, which is a leak here."""
    arguments: Arguments = {"dataset": Squares(9), "sampler": sampler, "batch_size": 2, "collate_fn": keep}
    theirs, ours = list(TorchLoader(**arguments)), list(StokerLoader(**arguments, num_workers=num_workers))
    assert_same(theirs, ours)


def count_rows(rows: list[Any]) -> int:
    return len(rows)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_batch_of_no_rows_reaches_the_collate_function(num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": Squares(20),
            "batch_sampler": BATCH_SAMPLERS["hollow"](),
            "collate_fn": count_rows,
            "num_workers": num_workers,
        }

    _, ours = assert_same_run(build)
    assert ours.epochs == [[2, 0, 1]]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_indices_of_any_kind(num_workers: int) -> None:
    def build() -> Arguments:
        return {
            "dataset": Keyed(),
            "sampler": ["a", ("b", 2), 3.5, None],
            "batch_size": 3,
            "num_workers": num_workers,
        }

    assert_same_run(build)


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_getitems_is_preferred(shuffle: bool, num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": Bulk(), "batch_size": 4, "shuffle": shuffle, "num_workers": num_workers}

    assert_same_run(build)


class WholeBatch(Bulk):
    """Its __getitems__ returns what is no list: the collate function gets it as it is."""

    def __getitems__(self, indices: list[int]) -> Any:
        return torch.tensor(indices) * 2


def keep(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("num_workers", WORKERS)
def test_getitems_may_return_a_finished_batch(num_workers: int) -> None:
    def build() -> Arguments:
        return {"dataset": WholeBatch(), "batch_size": 4, "collate_fn": keep, "num_workers": num_workers}

    assert_same_run(build)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    "dataset",
    [
        Subset(Squares(30), [2, 3, 5, 7, 11, 13]),
        Subset(Bulk(), [9, 1, 4]),
        ConcatDataset([Shaped("dict", 4), Shaped("dict", 5)]),
        TensorDataset(torch.arange(12).reshape(6, 2), torch.arange(6)),
    ],
    ids=["subset", "bulk subset", "concat", "tensors"],
)
def test_torchs_own_datasets(dataset: Any, num_workers: int) -> None:
    assert_same_run(
        lambda: {"dataset": dataset, "batch_size": 4, "shuffle": True, "num_workers": num_workers}
    )


class Breaking:
    """A sampler that raises in the middle."""

    def __iter__(self) -> Iterator[int]:
        yield from [0, 1, 2, 3]
        raise LookupError("the sampler is out of order")


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_sampler_that_raises(num_workers: int) -> None:
    """torch raises as soon as it looks ahead; both must raise the sampler's own error."""
    for loader_class in BOTH:
        with pytest.raises(LookupError, match="out of order"):
            list(loader_class(Squares(20), sampler=Breaking(), batch_size=2, num_workers=num_workers))


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (1, False), (2, False), (2, True)])
def test_the_sampler_is_asked_anew_each_epoch(num_workers: int, persistent: bool) -> None:
    def epochs(loader_class: Any) -> list[Any]:
        sampler: Any = DistributedSampler(Squares(20), num_replicas=2, rank=0, shuffle=True)
        loader = loader_class(
            Squares(20), sampler=sampler, batch_size=3, num_workers=num_workers, persistent_workers=persistent
        )
        seen = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            seen.append(list(loader))
        return seen

    theirs, ours = (epochs(loader_class) for loader_class in BOTH)
    assert_same(theirs, ours)
    assert str(ours[0]) != str(ours[1])


class Replayed:
    """Its own iterator, which ``iter()`` starts anew: Lightning's batch samplers in ``predict`` are made like this."""

    def __iter__(self) -> Replayed:
        self.rest = iter([[3, 1], [4], [1, 5, 9]])
        return self

    def __next__(self) -> list[int]:
        return next(self.rest)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_an_iterator_of_a_sampler_is_only_pulled(num_workers: int) -> None:
    assert_same_run(lambda: {"dataset": Squares(20), "batch_sampler": Replayed(), "num_workers": num_workers})
