"""``num_workers="auto"`` gives torch's batches, whatever else is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler, TensorDataset, WeightedRandomSampler

from tests.compat.compare import Arguments, StokerLoader, TorchLoader, assert_same, seed_everything

DATA = TensorDataset(torch.arange(60).reshape(20, 3), torch.arange(20.0))


def weighted() -> Arguments:
    return {"sampler": WeightedRandomSampler([1.0] * 20, 30, generator=torch.Generator().manual_seed(1))}


def batch_sampled() -> Arguments:
    sampler = RandomSampler(DATA, generator=torch.Generator().manual_seed(1))
    return {"batch_sampler": torch.utils.data.BatchSampler(sampler, 6, drop_last=True), "batch_size": 1}


CASES: dict[str, Any] = {
    "plain": lambda: {"batch_size": 3},
    "shuffled, the last one dropped": lambda: {"batch_size": 7, "shuffle": True, "drop_last": True},
    "no batches": lambda: {"batch_size": None},
    "weighted": weighted,
    "batch sampler": batch_sampled,
    "as torch has it": lambda: {
        "batch_size": 4,
        "prefetch_factor": 3,
        "timeout": 60,
        "persistent_workers": True,
    },
}


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_batches_are_torchs(arguments: Any) -> None:
    runs = []
    for loader_class, count in ((TorchLoader, 2), (StokerLoader, "auto")):
        seed_everything(5)
        loader = loader_class(DATA, num_workers=count, **arguments())
        runs.append([list(loader) for _ in range(2)])
        del loader
    assert_same(runs[0], runs[1])


class Custom(StokerLoader):
    """A subclass as libraries have them: it counts and compares workers before it passes them on."""

    def __init__(self, dataset: Any, *, num_workers: Any = 0, **options: Any) -> None:
        super().__init__(dataset, num_workers=num_workers, **options)
        self.per_worker = len(dataset) // max(1, self.num_workers)
        self.many = self.num_workers > 64


def test_a_subclass_reckons_with_it() -> None:
    loader = Custom(DATA, num_workers="auto", batch_size=5)
    assert not loader.many
    assert loader.per_worker >= 2
    assert len(list(loader)) == 4
