"""The doctor's probe of a worker's memory, on datasets that copy and on those that only look like it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset

import stoker
from stoker._tools.doctor.checks.memory import (
    stk601_copy_on_write,
    stk603_out_of_memory,
    stk607_worker_cache,
)
from stoker._tools.doctor.facts.growth import GrowthFacts
from stoker._tools.doctor.probes import FactUnavailable, growth
from stoker._tools.sandbox.subject import Subject
from tests.unit.doctor.test_checks_growth import TARGET


class Listed(Dataset):
    """Reads a list of its own, and beside it an array and a list that nobody reads."""

    def __init__(self, length: int) -> None:
        self.folder = {"paths": [f"/data/images/train/{number:012d}.jpg" for number in range(length)]}
        self.labels = np.arange(length)
        self.unread = [f"never read {number}" for number in range(length)]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([len(self.folder["paths"][index]), int(self.labels[index])])


class Arrayed(Listed):
    """Has the same lists and reads the array only."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(int(self.labels[index]))


class Caching(Dataset):
    """Keeps what it made."""

    def __init__(self) -> None:
        self.made: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.made.setdefault(index, torch.zeros(2000))


class Fresh(Caching):
    """Makes every sample anew."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2000)


@cache
def _kept(index: int) -> torch.Tensor:
    return torch.zeros(2000)


class Remembering(Caching):
    """Has a function that keeps what it made."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return _kept(index)


def _probed(dataset: object) -> GrowthFacts:
    found = growth.probe(Subject(dataset))
    # What a machine with little memory would have to say about it.
    return replace(found, available_bytes=64 << 20)


def test_the_list_that_workers_copy_is_named_and_nothing_that_looks_like_it():
    listed = Listed(200_000)
    copying = _probed(listed)
    (found,) = stk601_copy_on_write.examine(copying, TARGET)
    assert found.where == "dataset.folder['paths']"
    assert found.severity == "high"
    assert found.numbers["ends_at_step"] is not None
    # About 80 bytes a string, and a page for every one of them that is read alone.
    assert 60 * 200_000 < copying.containers[0].object_bytes < 100 * 200_000
    assert 2048 < copying.copied_slope_bytes < 3 * 4096
    assert list(stk603_out_of_memory.examine(copying, TARGET)) == []

    # Parts that are put together, each with a list of its own.
    joined = _probed(ConcatDataset([Listed(15_000) for _ in range(8)]))
    (found,) = stk601_copy_on_write.examine(joined, TARGET)
    assert found.where == "dataset.datasets[*].folder['paths']"
    assert joined.containers[0].items == 8 * 15_000

    for fine in (Arrayed(200_000), stoker.share(listed), Listed(4000)):
        assert list(stk601_copy_on_write.examine(_probed(fine), TARGET)) == []


def test_a_cache_of_its_own_is_not_taken_for_copies():
    caching = _probed(Caching())
    assert list(stk601_copy_on_write.examine(caching, TARGET)) == []
    (found,) = stk603_out_of_memory.examine(caching, TARGET)
    assert found.where == "dataset.made"
    assert 4000 < caching.own_slope_bytes < 20_000
    (found,) = stk603_out_of_memory.examine(_probed(Remembering()), TARGET)
    assert found.where is not None
    assert found.where.endswith("test_doctor_growth._kept")


def test_caches_that_every_worker_fills_are_found_and_one_for_all_workers_is_not():
    for caching, path in ((Caching(), "dataset.made"), (Remembering(), "test_doctor_growth._kept")):
        (found,) = stk607_worker_cache.examine(_probed(caching), TARGET)
        assert found.where is not None
        assert found.where.endswith(path)
        each, all_ = found.numbers["bytes_per_worker"], found.numbers["bytes_of_all"]
        assert isinstance(each, int)
        assert all_ == pytest.approx(TARGET.loader.num_workers * each, abs=8)
    shared = _probed(stoker.cache(Fresh(), budget="256MiB"))
    assert list(stk607_worker_cache.examine(shared, TARGET)) == []
    assert list(stk601_copy_on_write.examine(shared, TARGET)) == []


class Short(IterableDataset):
    def __iter__(self):
        yield from range(40)


def test_a_stream_that_ends_soon_is_not_said_to_have_no_samples():
    with pytest.raises(FactUnavailable, match="the stream has too few items"):
        growth.probe(Subject(Short()))
