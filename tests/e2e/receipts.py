"""Loaders with receipts, and what ``stoker verify`` answers about them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import (
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)

import stoker
from stoker._tools.verify.verification import Verification, verify

DATA: Any = TensorDataset(torch.arange(100))


class Numbers(Dataset[int]):
    """A dataset in which some samples raise."""

    def __init__(self, length: int, bad: tuple[int, ...] = ()) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise ValueError("bad")
        return index


def loader_of(dataset: Any = DATA, seed: int = 0, **arguments: Any) -> Any:
    generator = torch.Generator().manual_seed(seed)
    given: dict[str, Any] = {"batch_size": 8, "shuffle": True, "generator": generator, **arguments}
    return stoker.DataLoader(dataset, **given)


def run(path: Path, loader: Any, epochs: int = 1, leave_after: int | None = None) -> Any:
    """Iterate a loader and save its receipts; returns its state where it was left."""
    state = None
    for _ in range(epochs):
        iterator = iter(loader)
        for _ in itertools.islice(iterator, leave_after):
            pass
        if leave_after is not None:
            state = loader.state_dict()
        loader.receipt().save(path)
        del iterator
    loader.close()
    return state


def found(*paths: Path) -> Verification:
    return verify(paths)


def codes(answers: Verification, level: str | None = None) -> list[str]:
    return [each.code for each in answers.answers if level in (None, each.level)]


def text_of(answers: Verification, code: str) -> str:
    [answer] = [each for each in answers.answers if each.code == code]
    return answer.text


def ranked(
    path: Path, world: int = 2, length: int = 100, epochs: int = 1, set_epoch: bool = True, **given: Any
) -> None:
    dataset = Numbers(length)
    for rank in range(world):
        sampler: Any = DistributedSampler(dataset, num_replicas=world, rank=rank, **given)
        loader = loader_of(dataset, shuffle=False, sampler=sampler)
        for epoch in range(epochs):
            if set_epoch:
                sampler.set_epoch(epoch)
            for _ in loader:
                pass
            loader.receipt().save(path / f"rank{rank}.receipt")


class Stream(IterableDataset[int]):
    """A stream whose state is stale after a resume, as that of datasets 5.0 (torchtitan #3907)."""

    def __init__(self) -> None:
        self.start = self.at = 0
        self.stale = False

    def __iter__(self) -> Iterator[int]:
        for number in range(self.start, 96):
            self.at = number + 1
            yield number

    def state_dict(self) -> dict[str, Any]:
        return {"at": 0 if self.stale else self.at, "stale": self.stale}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start = self.at = state["at"]
        self.stale = True
