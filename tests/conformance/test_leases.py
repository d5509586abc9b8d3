"""A batch is the user's for as long as anything of it is held: no slot is written to again before that."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate

import stoker
from stoker._runtime.scheduler.policy import LEASE_CAP
from stoker.testing import holdings

ROWS = 750
WIDTH = 5000  # 20 kB in float32: above what is copied out


class Wide(Dataset[torch.Tensor]):
    """Rows that are told by their first element."""

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index))


def loader_of(dataset: Any, **options: Any) -> Any:
    return stoker.DataLoader(dataset, num_workers=2, multiprocessing_context="fork", **options)


KEEP: dict[str, Any] = {
    "batch": lambda batch: batch,
    "view": lambda batch: batch[:, 10:],
    "numpy": lambda batch: batch.numpy(),
    "numpy of a view": lambda batch: batch[0].numpy()[5:],
    "memoryview": lambda batch: memoryview(batch.numpy()),
    "storage": lambda batch: batch.untyped_storage(),
}


def is_filled_with(kept: Any, value: float) -> bool:
    if isinstance(kept, torch.UntypedStorage):
        kept = torch.tensor([], dtype=torch.float32).set_(kept)[:WIDTH]
    return bool((np.asarray(kept) == value).all())


def test_an_epoch_of_kept_batches_stays_as_it_was_in_bounded_means() -> None:
    ways = list(KEEP.values())
    kept: list[Any] = []
    with loader_of(Wide(), persistent_workers=True) as loader:
        descriptors: frozenset[str] = frozenset()
        for number, batch in enumerate(loader):
            kept.append(ways[number % len(ways)](batch))
            del batch
            if number == 10:
                descriptors = holdings().descriptors
        held = holdings()
        assert held.descriptors <= descriptors
        assert len(held.mappings) <= LEASE_CAP + 100
        assert len(kept) == ROWS
        for number, item in enumerate(kept):
            assert is_filled_with(item, number), f"batch {number} was overwritten"
        pool = loader._iterator
        assert pool.slots.leased >= LEASE_CAP - 100
        slots = len(pool.slots)
        del item
        kept.clear()
        for number, batch in enumerate(loader):
            assert is_filled_with(batch, number)
        assert len(pool.slots) == slots, "slots were made although many are free"
        del batch
        pool.reclaim()
        assert pool.slots.leased == 0
        assert len(pool.slots.coldest(0)) == pool.slots.live
        del pool


@pytest.mark.parametrize("way", KEEP)
def test_each_way_to_keep_a_batch_keeps_it_beyond_the_loader(way: str) -> None:
    loader = loader_of(Wide(60))
    kept = [KEEP[way](batch) for batch in loader]
    del loader
    gc.collect()
    assert [is_filled_with(item, number) for number, item in enumerate(kept)] == [True] * 60


def test_a_batch_written_to_by_its_user_is_nobody_elses() -> None:
    with loader_of(Wide(60), persistent_workers=True) as loader:
        for _ in range(2):
            for number, batch in enumerate(loader):
                assert is_filled_with(batch, number)
                batch.fill_(-1)


class Hoarder:
    """A collation that keeps what it made, and says with each batch whether all that it keeps is as it was."""

    def __init__(self, keeps: int) -> None:
        self._keeps = keeps
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, samples: list[Any]) -> Any:
        batch = default_collate(samples)
        intact = all(torch.equal(tensor, copy) for tensor, copy in self._kept)
        self._kept.append((batch, batch.clone()))
        del self._kept[: -self._keeps]
        return {"rows": batch, "intact": intact, "worker": os.getpid()}


@pytest.mark.parametrize("keeps", [1, 5, 1000])
def test_a_worker_that_keeps_its_batches_sees_them_unchanged(keeps: int) -> None:
    seen = 0
    with loader_of(Wide(200), collate_fn=Hoarder(keeps), persistent_workers=True) as loader:
        for _ in range(2):
            for number, batch in enumerate(loader):
                assert batch["intact"], f"worker {batch['worker']} lost what it keeps before batch {number}"
                assert is_filled_with(batch["rows"], number)
                seen += 1
        slots = len(loader._iterator.slots)
    assert seen == 400
    if keeps < 10:
        assert slots < 100


class Cache(Wide):
    """A dataset that gives out parts of what it made before: tensors over the slot of an earlier batch."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.last: dict[int, torch.Tensor] = {}

    def remember(self, samples: list[torch.Tensor]) -> torch.Tensor:
        batch: torch.Tensor = default_collate(samples)
        self.last[len(self.last)] = batch[0]
        return batch

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.last:
            newest = self.last[len(self.last) - 1]
            assert bool((newest == newest[0]).all()), "a remembered row was overwritten"
        return super().__getitem__(index)


def test_a_dataset_that_remembers_rows_of_its_batches() -> None:
    dataset = Cache(200)
    for number, batch in enumerate(loader_of(dataset, collate_fn=dataset.remember)):
        assert is_filled_with(batch, number)
