"""Orders in which a map-style dataset is read: torch's samplers and users' own, with and without a state of their own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import stoker


class Buckets(Sampler[list[int]]):
    """A user's batch sampler as they are often written: uneven batches, drawn with global generators at its beginning."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.length).tolist()
        batches = []
        while order:
            size = random.randint(1, 5)
            batches.append(order[:size])
            order = order[size:]
        np.random.shuffle(batches)
        yield from batches


class Counted(Sampler[int]):
    """A sampler with torchdata's methods. It counts its epochs and shuffles by their number."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = self.done = 0
        self.loaded = False

    def __iter__(self) -> Iterator[int]:
        if not self.loaded:
            self.done = 0
        self.loaded = False
        order = torch.randperm(self.length, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        for index in order[self.done :]:
            self.done += 1
            yield index
        self.done = 0
        self.epoch += 1

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done, self.epoch = state["done"], state["epoch"]
        self.loaded = True


class CountedBatches(Sampler[list[int]]):
    """A batch sampler whose iterator can tell where it is and be put elsewhere."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[int]]:
        return _Place(self.length)


class _Place:
    def __init__(self, length: int) -> None:
        self.length = length
        self.at = 0

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        if self.at >= self.length:
            raise StopIteration
        start = self.at
        self.at = min(self.length, start + 1 + start % 4)
        return list(range(start, self.at))

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def arguments(order: str, dataset: Dataset[Any], length: int, salt: int) -> dict[str, Any]:
    """Of the loader, for this order. Generators are seeded with ``salt``: a resumed loader must not depend on it."""
    generator = torch.Generator().manual_seed(1000 + salt)
    match order:
        case "sequential":
            return {}
        case "shuffle":
            return {"shuffle": True}
        case "shuffle, generator":
            return {"shuffle": True, "generator": generator}
        case "random, generator":
            return {"sampler": RandomSampler(dataset, generator=generator)}  # type: ignore[arg-type]
        case "random, replacement":
            count = length + length // 2
            return {"sampler": RandomSampler(dataset, replacement=True, num_samples=count)}  # type: ignore[arg-type]
        case "weighted":
            weights = [1.0 + index % 3 for index in range(length)]
            return {"sampler": WeightedRandomSampler(weights, length, generator=generator)}
        case "subset":
            return {"sampler": SubsetRandomSampler(range(0, length, 2))}
        case "list":
            return {"sampler": [index for index in range(length) if index % 3]}
        case "buckets":
            return {"batch_sampler": Buckets(length)}
        case "counted":
            return {"sampler": Counted(length)}
        case "counted batches":
            return {"batch_sampler": CountedBatches(length)}
        case "distributed":
            return {"sampler": DistributedSampler(dataset, num_replicas=3, rank=1, seed=5)}
        case "elastic":
            return {"sampler": stoker.ElasticDistributedSampler(dataset, num_replicas=3, rank=1, seed=5)}
    raise AssertionError(order)


ORDERS = (
    "sequential",
    "shuffle",
    "shuffle, generator",
    "random, generator",
    "random, replacement",
    "weighted",
    "subset",
    "list",
    "counted",
    "distributed",
    "elastic",
    "buckets",
    "counted batches",
)
BATCH_ORDERS = frozenset({"buckets", "counted batches"})
