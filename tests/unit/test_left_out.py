"""Generators that samplers hold and states of their loader leave out: they are named."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, Sampler

from stoker import DataLoader
from stoker._runtime.checkpoint import rng_snapshot


class Own(Sampler[int]):
    """Draws its order from what it was given."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))

    def __len__(self) -> int:
        return 8


class Stateful(Own):
    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None


class Noisy(Dataset[int]):
    """Has a generator, which is nobody else's business."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("sampler", "found"),
    [
        (Own(rng=np.random.default_rng()), "batch_sampler.sampler.rng"),
        (Own(parts=[random.Random()]), "batch_sampler.sampler.parts[0]"),
        (Own(generator=torch.Generator(), other=torch.Generator()), "batch_sampler.sampler.other"),
        (Own(generator=torch.Generator(), rng=random._inst), None),
        (Own(data=Noisy()), None),
        (Stateful(rng=np.random.default_rng()), None),
        (RandomSampler(Noisy(), generator=torch.Generator()), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_generator_that_states_leave_out_is_named(sampler: Any, found: str | None) -> None:
    assert rng_snapshot.left_out(DataLoader(Noisy(), 2, sampler=sampler)) == found
    inside = BatchSampler(sampler, 2, False)
    assert rng_snapshot.left_out(DataLoader(Noisy(), batch_sampler=inside)) == found


def test_the_user_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stoker"):
        loader = DataLoader(Noisy(), None, sampler=Own(rng=random.Random()))
        loader.state_dict()
        next(iter(loader))
        loader.state_dict()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "sampler.rng is a random generator that state_dict() of this loader does not save"
    )
