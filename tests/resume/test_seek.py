"""What it costs to be far into the data: nothing is read again, and the state stays small."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch.utils.data import Dataset

import stoker

FAR = 100_000


class Counting(Dataset[int]):
    """Counts its reads. Nothing is stored, so that it may be as long as one likes."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.reads: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        self.reads.append(index)
        return index


def far_state(loader: Any, batches: int) -> dict[str, Any]:
    """The state of a loader that has been so far: the counts are what changes on the way. It has no receipt of them."""
    state: dict[str, Any] = loader.state_dict()
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert state["batches"] == 1
    return {**state, "batches": batches, "samples": batches * loader.batch_size, "receipt": (None,)}


@pytest.mark.parametrize("shuffle", [False, True])
def test_no_sample_before_the_point_is_read(shuffle: bool) -> None:
    there = stoker.DataLoader(Counting(1_000_000), batch_size=8, shuffle=shuffle)
    state = far_state(there, FAR)
    dataset = Counting(1_000_000)
    loader: Any = stoker.DataLoader(dataset, batch_size=8, shuffle=shuffle)
    loader.load_state_dict(state)
    assert dataset.reads == []
    iterator = iter(loader)
    batch = next(iterator)
    assert dataset.reads == batch.tolist()
    assert loader.state_dict()["batches"] == FAR + 1


def test_an_elastic_sampler_goes_there_in_one_step() -> None:
    """A billion samples: passing over them would take minutes, and a list of them 8 GB."""
    billion = range(1_000_000_000)

    def running() -> Any:
        sampler = stoker.ElasticDistributedSampler(billion, num_replicas=4, rank=3)
        return stoker.DataLoader(billion, batch_size=4, sampler=sampler)  # type: ignore[arg-type]

    first = running()
    iterator = iter(first)
    next(iterator)
    state = first.state_dict()
    state["sampler_state"][0]["consumed"] = 999_999_968
    alone = stoker.ElasticDistributedSampler(billion, num_replicas=4, rank=3)
    alone.load_state_dict(state["sampler_state"][0])
    second = running()
    second.load_state_dict(state)
    batches = [batch.tolist() for batch in second]
    assert len(batches) == 2
    assert batches[0] + batches[1] == list(alone)


def test_the_state_does_not_grow() -> None:
    """Counts have as many digits as they have; nothing else changes. Without seeding a batch takes 20 µs."""
    loader: Any = stoker.DataLoader(range(10 * FAR), batch_size=None, rng="torch")  # type: ignore[arg-type]
    iterator = iter(loader)
    states = {}
    for number in range(1, FAR + 1):
        next(iterator)
        if number in (10, FAR):
            states[number] = loader.state_dict()
    early, late = states[10], states[FAR]
    assert {name for name in early if early[name] != late[name]} == {"batches", "samples", "receipt"}
    assert len(late["receipt"][0]) - len(early["receipt"][0]) == 2 * (len(str(FAR)) - len("10"))
    same = {"batches": 0, "samples": 0, "receipt": 0}
    assert len(json.dumps(early | same)) == len(json.dumps(late | same)) < 1000
    assert late["batches"] == late["samples"] == FAR
