"""What the tests of ranks load, and how they write down what a rank was given."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from stoker import DataLoader, ElasticDistributedSampler

Row = tuple[int, int, int, int]
"""An index, and what Python's, NumPy's and torch's generators said while its sample was made."""

MOST = 2**30


class Augmented(Dataset[Any]):
    """Samples that are their own index and three random numbers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        numbers = (random.randrange(MOST), int(np.random.randint(MOST)), int(torch.randint(MOST, ())))
        return torch.tensor([index, *numbers])


def loader(
    length: int,
    replicas: int | None = None,
    rank: int | None = None,
    *,
    batch_size: int | None = 4,
    sampler: dict[str, Any] | None = None,
    **more: Any,
) -> DataLoader[Any]:
    """A loader for one rank; by default of the process group that there is."""
    data = Augmented(length)
    chosen = ElasticDistributedSampler(data, replicas, rank, **{"seed": 3, **(sampler or {})})
    return DataLoader(data, batch_size=batch_size, sampler=chosen, **{"rng": "sample", **more})


def rows(batch: torch.Tensor) -> list[Row]:
    """A batch as plain numbers."""
    flat: list[list[int]] = batch.reshape(-1, 4).tolist()
    return [(row[0], row[1], row[2], row[3]) for row in flat]


def whole(length: int, epoch: int = 0, sampler: dict[str, Any] | None = None) -> list[Row]:
    """The uninterrupted epoch of one process without workers, in the order of places."""
    alone = loader(length, 1, 0, batch_size=7, sampler=sampler)
    alone.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
    return [row for batch in alone for row in rows(batch)]
