"""What the short legs have in common: a small dataset, its batches without workers, and loaders to compare with them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import stoker
from tests.soak.account import Account

EXECUTORS = ("inline", "thread", "fork", "forkserver", "spawn")


class Bad(Exception):
    """What a bad row raises."""


class Noisy(Dataset[Any]):
    """Rows with a number from each global generator, where these are the loader's to seed. ``bad`` ones raise, or are None."""

    def __init__(self, rows: int, *, noisy: bool = True, bad: frozenset[int] = frozenset()) -> None:
        self.rows = rows
        self.noisy = noisy
        self.bad = bad

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            if index % 3 == 0:
                return None
            raise Bad(index)
        noise = [torch.rand(()).item(), np.random.rand(), random.random()] if self.noisy else [0.0] * 3
        return torch.tensor([float(index), *noise], dtype=torch.float64)


class Stream(IterableDataset[Any]):
    """The same rows as a stream, each worker its own."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.rows, step):
            yield torch.tensor([float(index)], dtype=torch.float64)


def options_for(where: str, dice: Random, *, workers: int | None = None) -> dict[str, Any]:
    """Arguments of a loader that makes its batches there."""
    if where == "inline":
        return {"num_workers": 0}
    count = workers or dice.choice((1, 2, 3))
    options: dict[str, Any] = {
        "num_workers": count,
        "persistent_workers": dice.random() < 0.5,
        "prefetch_factor": dice.choice((1, 2, 4)),
        "restarts": 1000,
    }
    if where == "thread":
        return {**options, "executor": "thread"}
    return {**options, "multiprocessing_context": where, "split_batches": dice.choice((None, True, False))}


def loader_of(dataset: Any, seed: int, **options: Any) -> Any:
    """A loader whose order is drawn from this seed at every ``iter``: see ``read``."""
    options = {"batch_size": 4, "shuffle": not isinstance(dataset, IterableDataset), **options}
    return stoker.DataLoader(dataset, generator=torch.Generator().manual_seed(seed), **options)


def read(loader: Any, seed: int) -> list[Any]:
    """One epoch as plain values, in the order of this seed."""
    loader.generator.manual_seed(seed)
    return [batch.tolist() for batch in loader]


def compare(account: Account, found: list[Any], expected: list[Any], told: str) -> bool:
    """Note what is different. Whether all is equal."""
    account.batches += len(found)
    if found == expected:
        return True
    plain = [str(each) for each in found]
    if len(set(plain)) < len(plain) and len(found) > len(expected):
        kind = "duplicated"
    elif len(found) < len(expected):
        kind = "lost"
    elif sorted(plain) == sorted(map(str, expected)):
        kind = "disordered"
    else:
        kind = "altered"
    account.find(kind, f"{told}: {len(found)} batches, {len(expected)} expected")
    return False
