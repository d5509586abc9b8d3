"""A user's program, as mypy sees it in strict mode: every public name, and what comes out of it.

``make check`` checks it against the source, ``make package`` against the installed wheel. It is never run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset

import stoker
from stoker import DataLoader, ElasticDistributedSampler
from stoker.errors import StokerError
from stoker.testing import ExecutorConformance, leak_guard

Sample = tuple[torch.Tensor, int]


class Images(Dataset[Sample]):
    def __init__(self, paths: list[str]) -> None:
        self.paths = stoker.share(paths)
        assert_type(self.paths, list[str])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        rng = stoker.generator()
        assert_type(rng, np.random.Generator)
        assert_type(stoker.generator("torch"), torch.Generator)
        assert_type(stoker.generator("python"), random.Random)
        return torch.from_numpy(rng.random(3)), index


class Stream(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        yield "a line"


def halved(rows: list[Sample]) -> torch.Tensor:
    return torch.stack([row for row, _ in rows]) / 2


def loaders(images: Images) -> None:
    loader = DataLoader(images, batch_size=2, shuffle=True, num_workers="auto", collate_fn=halved)
    assert_type(loader, DataLoader[Sample])
    as_torch: TorchLoader[Sample] = loader
    for pictures, labels in as_torch:
        print(pictures, labels)
    for pictures, labels in loader:
        print(pictures, labels)
    iterator = iter(loader)
    print(next(iterator))
    with loader as same:
        assert_type(same, DataLoader[Sample])
    assert_type(loader.num_workers, int)
    assert_type(len(loader), int)
    assert_type(loader.stats(), dict[str, Any])
    assert_type(DataLoader(Stream()), DataLoader[str])
    DataLoader(images, executor="thread", rng="sample", on_bad_sample="skip", memory_budget="2GiB")
    DataLoader(images, record=Path("runs"), prefetch_epochs=True, persistent_workers=True, num_workers=2)
    DataLoader(images, executor="threads")  # type: ignore[arg-type]
    DataLoader(images, num_workers="many")  # type: ignore[arg-type]
    DataLoader(images, no_such_argument=1)  # type: ignore[call-arg]


def resume(loader: DataLoader[Sample]) -> dict[str, Any]:
    state = loader.state_dict()
    assert_type(state, dict[str, Any])
    loader.load_state_dict(state)
    loader.refresh()
    loader.trim()
    loader.close()
    return state


def ranks(images: Images) -> DataLoader[Sample]:
    sampler = ElasticDistributedSampler(images, num_replicas=2, rank=0, subset=[0, 1])
    assert_type(iter(sampler), Iterator[int])
    sampler.set_epoch(3)
    return DataLoader(images, sampler=sampler)


def tools(loader: DataLoader[Sample]) -> None:
    tuning = stoker.tune(loader, step_s=0.1, budget_s=10)
    assert_type(tuning.verdict, str)
    assert_type(tuning.recommended.workers, int)
    for finding in stoker.doctor(loader, select=["STK2"]).findings:
        assert_type(finding.code, str)
        assert_type(finding.advice, str)
    try:
        list(loader)
    except StokerError as error:
        found = stoker.explain(error).finding
        assert_type(found.code if found is not None else "", str)
    assert_type(stoker.__version__, str)


def shared(images: Images) -> None:
    assert_type(stoker.share(images), Images)
    assert_type(stoker.share({"a": 1}), dict[str, int])
    print(stoker.share(images, report=True))


def tests() -> None:
    with leak_guard():
        print(ExecutorConformance)
