"""Datasets whose samples are their own numbers, so that a list of batches says which samples came, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Batches = list[list[int]]


class Numbers(Dataset[Any]):
    """Map-style: sample 7 is a tensor that holds 7."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index)])


class NumberStream(IterableDataset[Any]):
    """Iterable without a length; workers divide it."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for each in range(first, self.length, step):
            yield torch.tensor([float(each)])


def numbers(batch: Any) -> list[int]:
    """A batch as a list of the samples' numbers."""
    return [int(each) for each in torch.as_tensor(batch).flatten().tolist()]


def flat(batches: Batches) -> list[int]:
    """The samples of all batches."""
    return [number for batch in batches for number in batch]
